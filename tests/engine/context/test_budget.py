"""When the context is compacted, when the model is called anyway, and when the turn must end: as a table."""

import pytest

from holdfast.engine.context.budget import MAX_ATTEMPTS, NO_GAIN, bounds, decide
from holdfast.engine.context.context import Context
from holdfast.model.entry import Entry
from holdfast.model.event import (
    Compacted,
    CompactionFailed,
    Event,
    ModelChanged,
    ModelSaid,
    TurnEnded,
    TurnStarted,
    Usage,
    UserSaid,
)
from holdfast.model.message import Text

WINDOW = 4_000
LIMIT, MOST = 3_000, 3_500
TURN = "turn-2"


def said(tokens: int = 10) -> UserSaid:
    return UserSaid(turn_id=TURN, parts=(Text("x" * 3 * tokens),))


def counted(tokens: int) -> ModelSaid:
    """A reply for which the provider counted that many tokens in total."""
    return ModelSaid(turn_id="turn-1", parts=(Text("Fine."),), usage=Usage(tokens_in=tokens - 1, tokens_out=1))


def compacted(after: int, *, turn: str = TURN, refused: int = 0) -> Compacted:
    return Compacted(
        epoch=1, upto_seq=1, summary="s", how="summary", tokens_after=after, turn_id=turn, refused_tokens=refused
    )


def failed(tokens: int, code: str = NO_GAIN, *, turn: str = TURN, refused: int = 0) -> CompactionFailed:
    return CompactionFailed(reason="it is so", code=code, tokens=tokens, turn_id=turn, refused_tokens=refused)


TABLE: list[tuple[str, list[Event], str]] = [
    ("there is room", [counted(2_900), said()], "enough"),
    ("the provider's count is over the limit", [counted(3_001), said()], "short"),
    ("the provider counts less than we guess", [said(8_000), counted(2_100), said()], "enough"),
    ("the provider counts so little that nobody would believe it", [said(13_000), counted(50), said()], "short"),
    ("new words bring it over the limit", [counted(2_900), said(200)], "short"),
    ("nothing was counted, and the guess is over the limit", [said(2_500), said(600)], "short"),
    ("the newest words alone do not fit", [said(5_000)], "none"),
    ("older words do not fit, but the newest do", [said(5_000), said()], "short"),
    ("it was compacted in this turn and has not grown", [compacted(3_100), said()], "enough"),
    ("it was compacted in this turn and has grown", [compacted(3_100), said(400)], "short"),
    ("it was compacted in an earlier turn and has not grown", [compacted(3_100, turn="turn-1"), said()], "enough"),
    ("nothing was to gain in this turn", [counted(3_100), said(), failed(3_116)], "enough"),
    ("nothing was to gain in an earlier turn", [counted(3_100), failed(3_100, turn="turn-1"), said()], "enough"),
    ("nothing was to gain, and it has grown", [counted(3_100), failed(3_100, turn="turn-1"), said(400)], "short"),
    (
        "nothing was to gain in an earlier turn, and now it does not fit",
        [counted(3_450), failed(3_450, turn="turn-1"), said(100)],
        "short",
    ),
    ("nothing was to gain, and it does not fit", [counted(3_600), said(), failed(3_616)], "none"),
    (
        "no summary was written in this turn, and it fits",
        [counted(3_100), said(), failed(3_116, "summary_failed")],
        "enough",
    ),
    (
        "no summary was written in an earlier turn",
        [counted(3_100), failed(3_100, "summary_failed", turn="turn-1"), said()],
        "short",
    ),
    (
        "no summary was written, and it does not fit",
        [counted(3_600), said(), failed(3_616, "summary_failed")],
        "none",
    ),
    ("a smaller one was refused before", [compacted(700, turn="turn-1", refused=1_000), said(120)], "short"),
    (
        "a smaller one was refused by another model",
        [compacted(700, turn="turn-1", refused=1_000), ModelChanged(model="m"), said(120)],
        "enough",
    ),
    (
        "it was refused, and could not be made smaller",
        [counted(1_000), said(), failed(1_016, refused=1_016)],
        "none",
    ),
]


def context_of(events: list[Event]) -> Context:
    return Context(Entry(seq, 1, event) for seq, event in enumerate([TurnStarted(turn_id=TURN), *events], 1))


def judged(context: Context) -> str:
    return decide(context, 0, bounds(WINDOW, 0.75, context.refused_tokens), TURN).kind


@pytest.mark.parametrize(("events", "kind"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_room(events: list[Event], kind: str) -> None:
    assert judged(context_of(events)) == kind


def test_promise_18_a_context_that_has_not_grown_is_not_compacted_again_at_a_limit_of_a_few_tokens() -> None:
    context = context_of([counted(1_000), said(), failed(1_016)])

    assert decide(context, 0, bounds(WINDOW, 0.001), TURN).kind == "enough"


def test_a_rejected_context_is_compacted_as_often_as_that_helps() -> None:
    context = context_of([counted(1_000), said()])
    context.refused = "too long"

    assert judged(context) == "short"
    for seq in range(10, 10 + MAX_ATTEMPTS):
        context.add(Entry(seq, 1, compacted(500, refused=1_000)))
        context.refused = "still too long"
    assert judged(context) == "none"


def test_a_refusal_does_not_outlive_its_turn() -> None:
    context = context_of([counted(100), said()])
    context.refused = "too long"
    context.add(Entry(10, 1, TurnEnded(turn_id=TURN, outcome="failed")))

    assert context.refused is None


@pytest.mark.parametrize(
    ("window", "compact_at", "refused", "limit", "most"),
    [
        (4_000, 0.75, 0, 3_000, 3_500),
        (4_000, 0.95, 0, 3_500, 3_500),
        (128_000, 0.75, 0, 96_000, 126_976),
        (128_000, 0.75, 10_000, 8_000, 126_976),
        (2_000, 0.75, 0, 1_500, 1_750),
    ],
)
def test_bounds(window: int, compact_at: float, refused: int, limit: int, most: int) -> None:
    within = bounds(window, compact_at, refused)

    assert (within.limit, within.max_context) == (limit, most)


def test_the_reason_says_what_is_too_large() -> None:
    large = decide(context_of([said(5_000)]), 100, bounds(WINDOW, 0.75), TURN)
    framed = decide(context_of([said()]), 3_900, bounds(WINDOW, 0.75), TURN)

    assert "newest message alone takes about 5,006 tokens, and the window holds 4,000" in large.reason
    assert "system text and the tools alone take about 3,900" in framed.reason
    assert large.code == framed.code == "context_too_long"
