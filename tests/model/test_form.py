"""Forms: what a person types, and what fits."""

import json

import pytest

from holdfast.model.answer import Answer
from holdfast.model.approval import Proposal, describe, rule_kinds
from holdfast.model.errors import Invalid
from holdfast.model.form import complete_answer, parse_reply

FORM = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 2, "description": "Your name"},
            "age": {"type": "integer", "minimum": 18, "default": 30},
            "size": {"type": "string", "enum": ["s", "m"]},
            "tags": {"type": "array", "items": {"anyOf": [{"const": "a"}, {"const": "b"}]}},
            "mail": {"type": "string", "format": "email"},
            "sure": {"type": "boolean"},
        },
        "required": ["name"],
    }
)
ASKED = Proposal(tool="mcp__x__y", kind="elicitation", message="Who?", form=FORM)
ONE = Proposal(
    tool="mcp__x__y",
    kind="elicitation",
    form=json.dumps({"properties": {"name": {"type": "string"}}, "required": ["name"]}),
)


def values(proposal: Proposal, text: str) -> object:
    answer = parse_reply(proposal, text)
    assert answer is not None and answer.allowed
    return json.loads(complete_answer(proposal, answer).content)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name=Ann", {"age": 30, "name": "Ann"}),
        ("name='Ann B' age=40 sure=yes tags=a,b", {"age": 40, "name": "Ann B", "sure": True, "tags": ["a", "b"]}),
        ('{"name": "Ann", "size": "m"}', {"age": 30, "name": "Ann", "size": "m"}),
    ],
)
def test_values_are_read_from_pairs_and_json(text: str, expected: object) -> None:
    assert values(ASKED, text) == expected


def test_the_only_field_needs_no_name() -> None:
    assert values(ONE, "Ann B") == {"name": "Ann B"}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("yes", "needs name"),
        ("name=A", "at least 2 characters"),
        ("name=Ann age=3", "at least 18"),
        ("name=Ann age=old", "an integer"),
        ("name=Ann age=true", "an integer"),
        ("name=Ann size=xl", "one of s, m"),
        ("name=Ann tags=c", "one of a, b"),
        ("name=Ann mail=x", "valid email"),
        ("name=Ann colour=red", "no field 'colour'"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_what_to_correct(text: str, wrong: str) -> None:
    with pytest.raises(Invalid, match=wrong):
        values(ASKED, text)


def test_a_refusal_and_other_text() -> None:
    assert parse_reply(ASKED, "no, later") == Answer(allowed=False, reason="later")
    assert parse_reply(ASKED, "what is this about") is None


def test_the_question_shows_every_field_and_makes_no_rule() -> None:
    shown = describe(ASKED)

    assert "- name (string, required): Your name" in shown
    assert "- age (integer, default 30)" in shown
    assert "- size (s | m)" in shown
    assert rule_kinds(ASKED) == ()


@pytest.mark.parametrize("form", ["[]", "no json", '{"properties": []}'])
def test_a_form_that_is_no_form_is_refused(form: str) -> None:
    with pytest.raises(Invalid):
        complete_answer(Proposal(tool="x", kind="elicitation", form=form), Answer(allowed=True, content="{}"))


def test_the_pattern_of_a_server_is_not_evaluated() -> None:
    field = {"type": "string", "pattern": "^(a+)+$"}
    form = json.dumps({"properties": {"name": field}})

    assert values(Proposal(tool="x", kind="elicitation", form=form), "a" * 40 + "!") == {"name": "a" * 40 + "!"}
