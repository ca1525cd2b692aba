"""What it costs to build the context of a long session, to add to it, and to ask for the next reply."""

import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from bench.figures import Figure, Goal
from holdfast.engine.context import budget
from holdfast.engine.context.context import Context
from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, ModelSaid, TurnEnded, TurnStarted, Usage, UserSaid
from holdfast.model.message import Text

DEPTHS = (100, 10_000, 100_000)
WINDOW = 128_000
EVERY = 200
"""Messages between two compactions of a log that has some."""
SAID = "Something about the garden, the rain and the bees. " * 20


async def measure(folder: Path, *, rounds: int) -> list[Figure]:
    figures: list[Figure] = []
    steps: list[float] = []
    for depth in DEPTHS:
        whole, compacted = log(depth), log(depth, compactions=True)
        figures += [
            _building(f"build the context of {depth:,} messages", whole, rounds),
            _building(f"the same, compacted every {EVERY}", compacted, rounds),
            _weighing(f"weigh {depth:,} messages that nobody has counted", log(depth, counted=False), rounds),
        ]
        steps.append(_step(Context(compacted), rounds))
    goal = Goal("≤", 1.5)
    figures += [
        Figure(
            what=f"one more turn behind {depth:,} compacted messages: add, weigh, judge, request",
            value=f"{took * 1e6:,.0f} µs",
            beside=f"behind {DEPTHS[0]:,}" if depth != DEPTHS[0] else "",
            judged=took / steps[0] if depth != DEPTHS[0] else None,
            goal=goal if depth != DEPTHS[0] else None,
        )
        for depth, took in zip(DEPTHS, steps, strict=True)
    ]
    return figures


def log(messages: int, *, compactions: bool = False, counted: bool = True) -> list[Entry]:
    """Turns of two messages of a thousand letters each."""
    entries: list[Entry] = []

    def add(event: TurnStarted | UserSaid | ModelSaid | TurnEnded | Compacted) -> None:
        entries.append(Entry(len(entries) + 1, 1, event))

    for number in range(messages // 2):
        turn_id = f"turn-{number}"
        usage = Usage(tokens_in=500, tokens_out=250) if counted else Usage()
        add(TurnStarted(turn_id=turn_id))
        add(UserSaid(turn_id=turn_id, parts=(Text(f"{number} {SAID}"),)))
        add(ModelSaid(turn_id=turn_id, parts=(Text(f"{number} {SAID}"),), usage=usage))
        add(TurnEnded(turn_id=turn_id, outcome="done", usage=usage))
        if compactions and number and number % (EVERY // 2) == 0:
            upto = len(entries) - 16
            epoch = number // (EVERY // 2)
            add(Compacted(epoch=epoch, upto_seq=upto, summary=SAID, how="summary", tokens_after=3_000))
    return entries


def _timed(work: Callable[[], object], rounds: int) -> float:
    took = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def _building(what: str, entries: list[Entry], rounds: int) -> Figure:
    took = _timed(lambda: Context(entries), rounds)
    tracemalloc.start()
    kept = Context(entries)
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    each = memory / max(1, len(kept.messages))
    return Figure(
        what=what, value=f"{took * 1e3:,.2f} ms", beside=f"{memory / 1e6:,.2f} MB, {each:,.0f} bytes a message"
    )


def _weighing(what: str, entries: list[Entry], rounds: int) -> Figure:
    contexts = [Context(entries) for _ in range(rounds)]
    took = _timed(lambda: contexts.pop().estimate_size(2_000), rounds)
    return Figure(what=what, value=f"{took * 1e3:,.2f} ms")


def _step(context: Context, rounds: int) -> float:
    """What a turn does to the context, beside asking and saving."""
    seq = context.messages[-1].seq + 1_000
    within = budget.bounds(WINDOW, 0.75)
    took = []
    for number in range(rounds * 20):
        turn_id = f"new-{number}"
        start = time.perf_counter()
        context.add(Entry(seq, 1, TurnStarted(turn_id=turn_id)))
        context.add(Entry(seq + 1, 1, UserSaid(turn_id=turn_id, parts=(Text(SAID),))))
        budget.decide(context, 2_000, within, turn_id)
        context.visible_to(turn_id)
        context.add(Entry(seq + 2, 1, ModelSaid(turn_id=turn_id, parts=(Text(SAID),), usage=Usage(tokens_in=500))))
        context.add(Entry(seq + 3, 1, TurnEnded(turn_id=turn_id, outcome="done")))
        took.append(time.perf_counter() - start)
        seq += 4
    return statistics.median(took)
