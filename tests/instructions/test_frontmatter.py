"""The header of a skill: what is understood, and that everything else is refused with the line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.instructions.frontmatter import parse
from holdfast.model.errors import Invalid

WANTED = ("name", "description")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Fills forms.", "Fills forms."),
        ("Use when: the user asks", "Use when: the user asks"),
        ("Fills forms. # a comment", "Fills forms."),
        ("C# code", "C# code"),
        ('"Fills: \\"forms\\" \\u00e4" # a comment', 'Fills: "forms" ä'),
        ("'It''s a form'", "It's a form"),
        ("Fills\n  forms\n  and more", "Fills forms and more"),
        ("'Fills\n  # forms'", "Fills # forms"),
        ("\n  Fills forms", "Fills forms"),
        (">-\n  Fills\n  forms\n\n  and more", "Fills forms\n\nand more"),
        ("|\n  Fills\n    forms", "Fills\n  forms"),
        ("", ""),
    ],
)
def test_a_text_is_understood_in_every_style(value: str, expected: str) -> None:
    found = parse(f"---\nname: x\ndescription: {value}\nlicense: MIT\n---\n\nBody\n---\n", WANTED)

    assert found.fields == {"name": "x", "description": expected}
    assert found.body == "Body\n---"


def test_fields_that_are_not_wanted_may_have_any_form_and_metadata_is_a_map_of_texts() -> None:
    text = (
        "---\r\n# a comment\r\nallowed-tools: [Read, Bash(git:*)]\r\nhooks:\r\n  - a: &x\r\n- b\r\nname: x\r\nmetadata:\r\n"
        '  version: "1.0"\r\n  author: someone\r\n---\r\n'
    )

    found = parse(text, WANTED)

    assert found.fields == {"name": "x"}
    assert found.metadata == {"version": "1.0", "author": "someone"}
    assert found.body == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# Forms\n", "does not begin with a header"),
        ("", "does not begin with a header"),
        ("---\nname: x\n", "has no end"),
        ("---\n" + "# long\n" * 300 + "---\n", "300 lines, and at most 200"),
        ("---\n  name: x\n---\n", "line 2 is not `name: value`"),
        ("---\nname: x\nnothing\n---\n", "line 3 is not `name: value`"),
        ("---\nname: x\nname: y\n---\n", "line 3: the field 'name' is there twice"),
        ("---\nname: [x]\n---\n", "line 2: 'name' is not text; put it in quotes"),
        ("---\nname: *x\n---\n", "line 2: 'name' is not text"),
        ("---\nname: !!python/object:os.system x\n---\n", "line 2: 'name' is not text"),
        ("---\nname: 'x\n---\n", "line 2: 'name' has a quote without an end"),
        ('---\nname: "x" y\n---\n', "line 2: 'name' has a quote without an end"),
        ('---\nname: "\\x41"\n---\n', "line 2: 'name' has an escape sequence"),
        ("---\nname: >\n\tx\n---\n", "line 2: 'name' is indented with tabs"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=r"^[^\n]*$") as caught:
        parse(text, WANTED)

    assert reason in str(caught.value)


@given(st.text("-:#'\"|>[]{}&*!%@` \t\n\\abc", max_size=80))
def test_no_header_breaks_the_parser(text: str) -> None:
    try:
        found = parse(f"---\nname: {text}\n---\nBody", WANTED)
    except Invalid:
        return

    assert set(found.fields) <= set(WANTED)
