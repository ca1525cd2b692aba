"""Surrogates in text: pairs are joined, also across chunks; lone ones become U+FFFD."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import sse
from holdfast.model.surrogates import SurrogateJoiner, repair_text

HIGH, LOW, GRIN = "\ud83d", "\ude00", "\U0001f600"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        (HIGH + LOW, GRIN),
        (f"a{HIGH}", "a\ufffd"),
        (f"{LOW}b", "\ufffdb"),
        (f"{HIGH}{HIGH}{LOW}", f"\ufffd{GRIN}"),
        (f"{LOW}{HIGH}", "\ufffd\ufffd"),
        (f"{GRIN}{HIGH}{LOW}", f"{GRIN}{GRIN}"),
    ],
)
def test_pairs_are_joined_and_lone_surrogates_are_replaced(text: str, shown: str) -> None:
    assert repair_text(text) == shown


@given(st.lists(st.text(alphabet=["a", HIGH, LOW, GRIN]), max_size=8))
def test_chunks_give_the_same_text_as_the_whole(pieces: list[str]) -> None:
    joiner = SurrogateJoiner()

    shown = "".join(joiner.add(piece) for piece in pieces)

    whole = repair_text("".join(pieces))
    assert whole in (shown, shown + "\ufffd"), "at most a half at the very end waits for its other half"
    shown.encode("utf-8")


def test_json_with_lone_surrogates_can_be_sent() -> None:
    document = {"text": f"a{HIGH}", "parts": [{LOW: (HIGH + LOW, 1)}]}

    assert sse.encode_json(document).decode("utf-8") == '{"text":"a\ufffd","parts":[{"\ufffd":["' + GRIN + '",1]}]}'
