import hashlib
import json
import math
import re
from typing import get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.entry import FLOAT_FIELDS, GENESIS, WITHOUT_FLOATS, Entry, decode, dumps, encode, link
from holdfast.model.errors import Corrupt, Invalid
from holdfast.model.event import (
    ANNOTATIONS,
    KIND_OF,
    KINDS,
    Event,
    ModelSaid,
    SessionOpened,
    Titled,
    ToolEnded,
    Usage,
    UserSaid,
)
from holdfast.model.message import Text, ToolCall
from tests.model.strategies import TEXT, events

AT = 1_800_000_000_000_000
PINNED = [
    (
        SessionOpened(source="chat", title="Plans"),
        '{"source":"chat","title":"Plans"}',
        "4dae266f4ad593f6b353f2f930c345156d5a4f070b1a087e2bdb86f8647fef01",
    ),
    (
        UserSaid(turn_id="turn-1", parts=(Text("Grüße \ud83d\0"),)),
        '{"turn_id":"turn-1","parts":[{"type":"text","text":"Gr\\u00fc\\u00dfe \\ud83d\\u0000"}]}',
        "8bf590f4c087b67ff678f8fb2d15044de91c4b4f3cf50b7ce1986ac831158db7",
    ),
    (
        ModelSaid(
            turn_id="turn-1",
            parts=(Text("Hi"), ToolCall("c1", "terminal", '{"command":"ls"}')),
            usage=Usage(tokens_in=3, tokens_out=5, cost=0.25),
        ),
        '{"turn_id":"turn-1","parts":[{"type":"text","text":"Hi"},{"type":"tool_call","id":"c1","name":"terminal",'
        '"arguments":"{\\"command\\":\\"ls\\"}"}],"usage":{"tokens_in":3,"tokens_out":5,"cost":0.25}}',
        "a4d6ec8ca2009e401ec01d1840a0e0fe9153eebd259f907fe52e96ab5a136fd3",
    ),
]
"""Logs are permanent: if one of these changed, old stores could no longer be verified."""


ASCII = st.text(st.characters(max_codepoint=127), max_size=30)


@pytest.mark.slow
@settings(max_examples=200)
@given(event=events())
def test_every_event_is_written_in_the_one_form_that_hashes_depend_on(event: Event) -> None:
    assert encode(event) == dumps(msgspec.to_builtins(event))


@given(text=ASCII, cost=st.none() | st.floats(allow_nan=False, allow_infinity=False))
def test_plain_text_is_written_in_that_form_too(text: str, cost: float | None) -> None:
    event = ModelSaid(turn_id=text, parts=(Text(text),), usage=Usage(tokens_in=3, cost=cost))
    assert encode(event) == dumps(msgspec.to_builtins(event))


def test_every_float_of_an_event_is_known_to_the_encoder() -> None:
    assert {f'"{name}":'.encode() for cls in KINDS.values() for name in _float_fields(cls)} == set(FLOAT_FIELDS)
    assert not any(_float_fields(cls) for cls in WITHOUT_FLOATS)


def _float_fields(hint: object, name: str = "") -> set[str]:
    if hint is float:
        return {name}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return set().union(*(_float_fields(field, name) for name, field in get_type_hints(hint).items()))
    return set().union(*(_float_fields(part, name) for part in get_args(hint)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(data=st.data())
def test_an_event_of_any_kind_survives_serialization(kind: str, data: st.DataObject) -> None:
    event = data.draw(events(kind))
    body = encode(event)

    assert decode(kind, body) == event
    assert body.isascii()
    assert dumps(json.loads(body)) == body, "the serialized form is unique"


def test_the_serialized_form_and_the_chain_do_not_change() -> None:
    hash_ = GENESIS
    for event, body, expected in PINNED:
        hash_ = link(hash_, KIND_OF[type(event)], AT, body)

        assert encode(event) == body
        assert decode(KIND_OF[type(event)], body) == event
        assert hash_ == expected


def test_a_hash_can_be_computed_with_any_sha256() -> None:
    text = f"{GENESIS}\ntitled\n{AT}\n" + '{"title":"Plans"}'

    assert link(GENESIS, "titled", AT, encode(Titled(title="Plans"))) == hashlib.sha256(text.encode()).hexdigest()


@given(events(), events(), st.integers(0, 2**53), st.integers(0, 2**53))
def test_a_hash_distinguishes_any_two_events(one: Event, two: Event, at: int, later: int) -> None:
    hashes = {link(GENESIS, KIND_OF[type(e)], t, encode(e)) for e, t in ((one, at), (two, later))}

    assert (len(hashes) == 1) == ((one, at) == (two, later) and type(one) is type(two))


def test_a_hash_depends_on_all_earlier_events() -> None:
    body = encode(Titled(title="Plans"))

    assert link(GENESIS, "titled", AT, body) != link("1" * 64, "titled", AT, body)


# kinds


def test_kinds_are_snake_case_and_in_the_past_tense() -> None:
    for kind, cls in KINDS.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind)
        assert re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower() == kind
        last = kind.rpartition("_")[2]
        assert last.endswith("ed") or last in ("said", "undone", "rewound", "left", "lost", "set"), (
            f"{kind} does not say that something happened"
        )


def test_every_event_has_its_own_kind() -> None:
    assert {cls: kind for kind, cls in KINDS.items()} == KIND_OF
    assert set(KINDS.values()) == set(Event.__args__)


def test_the_kinds_of_the_first_release_are_never_renamed() -> None:
    assert KINDS.keys() >= {
        *("session_opened", "user_said", "model_said", "tool_started", "tool_ended", "turn_started", "turn_ended"),
        *("compacted", "compaction_failed", "compaction_undone", "titled", "model_changed", "forked", "ended"),
        *("reopened", "reset_skipped", "process_started", "process_ended", "recovered", "imported"),
    }


def test_an_entry_knows_its_kind() -> None:
    assert Entry(1, AT, Titled(title="x")).kind == "titled"


def test_annotations_add_no_message() -> None:
    assert not set(ANNOTATIONS) & {UserSaid, ModelSaid, ToolEnded}


# what cannot be read or written


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("from_the_future", "{}"),
        ("No such kind", "{}"),
        ("user_said", ""),
        ("user_said", "{"),
        ("user_said", "[]"),
        ("user_said", "null"),
        ("user_said", "{}"),
        ("user_said", '{"turn_id":1,"parts":[]}'),
        ("user_said", '{"turn_id":"\\ud83d","parts":[{"type":"hologram"}]}'),
        ("user_said", '{"turn_id":"\\ud83d","parts":'),
        ("user_said", '{"turn_id":"\\ud8'),
        ("ended", '{"reason":"boredom"}'),
    ],
)
def test_an_event_that_this_release_cannot_read_is_corrupt(kind: str, body: str) -> None:
    with pytest.raises(Corrupt, match=re.escape(kind)):
        decode(kind, body)


def test_fields_of_a_later_release_are_ignored() -> None:
    assert decode("titled", '{"title":"Plans","mood":"good"}') == Titled(title="Plans")
    assert decode("titled", '{"title":"\\ud83d","mood":"good"}') == Titled(title="\ud83d")


@given(TEXT)
def test_fields_with_their_defaults_are_not_written(text: str) -> None:
    assert json.loads(encode(Titled(title=text))) == {"title": text}


@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_cannot_represent_is_refused(cost: float) -> None:
    with pytest.raises(Invalid, match="model_said"):
        encode(ModelSaid(turn_id="turn-1", parts=(), usage=Usage(cost=cost)))


def test_events_are_immutable() -> None:
    for cls in KINDS.values():
        assert cls.__struct_config__.frozen
        assert msgspec.structs.fields(cls) is not None
