"""The sums of usage are what the log says, however they were made; and every store sums up alike."""

import asyncio
from collections import Counter
from time import process_time

import pytest

from holdfast.engine.admission import admit_request, conversation_items
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.engine.admission.played_messages import as_ended_turns
from holdfast.model.event import (
    Compacted,
    Event,
    Imported,
    ModelCalled,
    ModelSaid,
    Rewound,
    TurnEnded,
    TurnStarted,
    Usage,
    UserSaid,
)
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.model.times import DAY
from holdfast.store.database import Database
from holdfast.store.repos import leases, log, session_forks, session_pruning, sessions
from holdfast.store.spending import usage
from holdfast.store.spending.check import find_differences
from holdfast.store.spending.sums import UsageKey, UsageSum, day_of
from tests.contract.conftest import NewSession

MODELS = ("openai:a", "openai:b")


def turn(number: int, *, sender: str = "", model: str = "openai:a", cost: float | None = 0.25) -> list[Event]:
    """The events of a turn with one call, and a title."""
    turn_id = f"turn-{number}"
    spent = Usage(tokens_in=100, tokens_out=10, cache_read=40, reasoning=3, cost=cost)
    return [
        TurnStarted(turn_id=turn_id),
        UserSaid(turn_id=turn_id, parts=(Text("Hello"),), sender=sender),
        ModelSaid(turn_id=turn_id, parts=(Text("Hello!"),), model="a", called=model, usage=spent),
        TurnEnded(turn_id=turn_id, outcome="done", usage=spent),
    ]


async def write(database: Database, worker: str, session: Session, events: list[Event], at: int) -> None:
    lease = await database.write(leases.take, session.id, worker)
    await database.write(log.append, lease, events, at=at)
    await database.write(leases.release, lease)


async def sums(database: Database) -> dict[UsageKey, UsageSum]:
    await usage.catch_up(database)
    return {row.key: row.sum for row in await database.read(usage.list_days)}


async def test_promise_31_usage_is_summed_up_by_day_model_source_and_user(
    database: Database, worker: str, session: Session
) -> None:
    await write(database, worker, session, turn(1), 0)
    await write(database, worker, session, turn(2, sender="telegram:1", cost=None), 0)
    await write(database, worker, session, turn(3, model="openai:b", sender="telegram:1"), DAY)
    source = session.summary.source

    found = await sums(database)
    plain = UsageSum(1, 1, 0, 100, 10, 40, 0, 3, 250_000_000)
    assert found == {
        UsageKey("1970-01-01", "openai:a", source, ""): plain,
        UsageKey("1970-01-01", "openai:a", source, "telegram:1"): UsageSum(1, 1, 1, 100, 10, 40, 0, 3, 0),
        UsageKey("1970-01-02", "openai:b", source, "telegram:1"): plain,
    }
    by_model = await database.read(usage.list_of_session, session.id)
    assert {model: (one.calls, one.turns) for model, one in by_model.items()} == {
        "openai:a": (2, 2),
        "openai:b": (1, 1),
    }


async def test_calls_beside_the_conversation_count_and_a_recorded_summary_counts_once(
    database: Database, worker: str, session: Session
) -> None:
    spent = Usage(tokens_in=7, tokens_out=1, cost=0.5)
    summary = Compacted(epoch=1, upto_seq=1, summary="", how="summary", model="openai:a", chunks=2, usage=spent)
    recorded = Compacted(epoch=2, upto_seq=1, summary="", how="summary", model="openai:a", usage=spent, recorded=True)
    called = ModelCalled(purpose="title", model="openai:a", usage=spent)
    await write(database, worker, session, [summary, recorded, called], 0)

    [found] = (await sums(database)).values()
    assert (found.calls, found.unpriced, found.tokens_in, found.cost) == (3, 0, 14, 10**9)


async def test_an_interrupted_call_counts_for_the_model_that_was_asked(
    database: Database, worker: str, session: Session
) -> None:
    begun = turn(1)[:2]
    cut = ModelSaid(turn_id="turn-1", parts=(Text("Hel"),), partial=True, called="openai:a")
    stopped = TurnEnded(turn_id="turn-1", outcome="interrupted", called="openai:a")
    silent = [TurnStarted(turn_id="turn-2"), TurnEnded(turn_id="turn-2", outcome="failed", called="openai:b")]
    refused = [TurnStarted(turn_id="turn-3"), TurnEnded(turn_id="turn-3", outcome="failed", code="budget_exceeded")]
    old = ModelSaid(turn_id="turn-4", parts=(Text("Hel"),), partial=True)
    await write(database, worker, session, [*begun, cut, stopped, *silent, *refused, old], 0)

    await usage.catch_up(database)
    assert await database.read(usage.list_of_session, session.id) == {
        "openai:a": UsageSum(turns=1, calls=1, unpriced=1, interrupted=1),
        "openai:b": UsageSum(turns=1),
        "": UsageSum(turns=1, calls=1, unpriced=1),
    }
    assert await find_differences(database) == []
    await database.write(usage.restart)
    assert [(key.model, one.interrupted) for key, one in sorted((await sums(database)).items(), key=str)] == [
        ("", 0),
        ("openai:a", 1),
        ("openai:b", 0),
    ]


async def test_a_long_session_of_one_message_is_summed_up_in_time_that_grows_with_its_length_only(
    database: Database, worker: str, session: Session
) -> None:
    spent = Usage(tokens_in=1)
    said = ModelSaid(turn_id="t", parts=(), model="a", called="a", usage=spent)
    await write(database, worker, session, [*turn(1, sender="telegram:1")[:2], *[said] * 8_000], 0)

    start = process_time()
    found = await sums(database)
    assert process_time() - start < 5, "if each reply looks for the message again, it takes three times as long"
    assert [(key.user, one.calls) for key, one in found.items()] == [("telegram:1", 8_000)]


async def test_promise_31_the_sums_equal_the_log_whichever_way_they_were_made(
    database: Database, another: Database, worker: str, new_session: NewSession
) -> None:
    expected: Counter[str] = Counter()
    for number in range(12):
        session = await new_session()
        at = number * DAY // 3
        await write(database, worker, session, turn(number, model=MODELS[number % 2]), at)
        expected[day_of(at)] += 1
        if number % 4 == 0:
            await asyncio.gather(usage.catch_up(database), usage.catch_up(another), usage.catch_up(database))

    found = await sums(database)
    by_day: Counter[str] = Counter()
    for key, one in found.items():
        by_day[key.day] += one.calls
    assert by_day == expected
    assert await find_differences(database) == []

    await database.write(usage.restart)
    await asyncio.gather(usage.catch_up(another), usage.catch_up(database))
    assert await sums(another) == found


async def test_a_difference_is_found_and_corrected(database: Database, worker: str, session: Session) -> None:
    await write(database, worker, session, turn(1), 0)
    found = await sums(database)
    [key] = found
    await database.write(usage.add_to_days, {key: UsageSum(calls=1)})

    assert await find_differences(database) == [
        f"the usage of 1970-01-01, openai:a, {key.source}, the local user is wrong"
    ]
    await database.write(usage.restart)
    assert await sums(database) == found


async def test_a_fork_does_not_count_what_its_parent_has_spent(
    database: Database, worker: str, session: Session
) -> None:
    await write(database, worker, session, turn(1), 0)
    shared = await database.read(session_forks.prepare_fork, session.id)
    forked = await database.write(session_forks.fork, shared, "hf-forked", at=1)
    await write(database, worker, forked, turn(2), 1)

    [found] = (await sums(database)).values()
    assert (found.calls, found.turns) == (2, 2)
    assert {model: one.calls for model, one in (await database.read(usage.list_of_session, forked.id)).items()} == {
        "openai:a": 1
    }


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_client_that_sends_a_changed_history_has_spent_what_its_turns_cost(
    database: Database, worker: str, session: Session, *, is_late: bool
) -> None:
    sent = [ClientMessage(role=role, parts=(Text("changed"),)) for role in ("user", "assistant")]  # type: ignore[arg-type]
    await write(database, worker, session, turn(1), 0)
    if not is_late:
        await usage.catch_up(database)
    for number, form in enumerate((admit_request.FORMAT, conversation_items.FORMAT), 2):
        played = as_ended_turns(sent, [f"played-{number}"] * 2)
        again = [Rewound(to_seq=1), *played, Imported(format=form, messages=2)]
        await write(database, worker, session, [*again, *turn(number)], 0)

    [found] = (await sums(database)).values()
    assert (found.calls, found.turns) == (3, 3)
    assert await find_differences(database) == []


@pytest.mark.parametrize("is_late", [False, True])
async def test_what_a_deleted_session_has_spent_stays_spent(
    database: Database, worker: str, new_session: NewSession, *, is_late: bool
) -> None:
    kept, pruned = await new_session(), await new_session()
    await write(database, worker, kept, turn(1), 0)
    await write(database, worker, pruned, turn(2), 0)
    if not is_late:
        await usage.catch_up(database)
    await database.write(sessions.trash, pruned.id, reason="", at=1)
    assert await database.write(session_pruning.prune, pruned.id, before=2)

    found = await sums(database)
    assert [one.calls for one in found.values()] == [2]
    assert await find_differences(database) == []
    await database.write(usage.restart)
    assert await sums(database) == found
