"""Goals from their start to their end, in one process."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from holdfast.engine.context.context import Context
from holdfast.engine.goals.check import SYSTEM
from holdfast.model.entry import Entry
from holdfast.model.errors import Conflict, Invalid
from holdfast.model.event import (
    Compacted,
    Delegation,
    Event,
    GoalChecked,
    GoalEnded,
    GoalSet,
    ModelCalled,
    ModelSaid,
    SessionOpened,
    TurnStarted,
    UserSaid,
)
from holdfast.model.message import text_of
from holdfast.model.price import Price
from holdfast.store.repos import delegations
from tests.engine.goals.worker import decisions_in, goal_worker
from tests.engine.well_formed import assert_well_formed


async def test_a_goal_continues_until_the_check_says_that_it_is_reached(tmp_path: Path) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        await one.set(session, "reach 3")
        goal = await one.until(session, "done")
        log = await one.stage.log(session)

        assert (goal.turns, goal.reason, goal.due) == (3, "as counted", False)
        assert (await one.read(session)).summary.goal == "done"
        assert await one.decisions(session) == ["continue", "continue", "done"]
        assert await one.turns(session) == ["done"] * 3

    assert_well_formed(log)
    kinds = [type(event) for event in log]
    starts = [index for index, kind in enumerate(kinds) if kind is TurnStarted]
    assert kinds[starts[0] - 1] is GoalSet
    assert [kinds[index + 1] for index in starts[1:]] == [GoalChecked, GoalChecked], "the decision begins the turn"
    assert kinds[-1] is GoalEnded


async def test_the_model_is_told_the_goal_and_what_the_check_said(tmp_path: Path) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        await one.set(session, "reach 2")
        await one.until(session, "done")
        turns = [request for request in one.stage.requests if request.system != SYSTEM]
        first, second = ([message.text for message in request.messages] for request in turns)

    assert "the next message of the user is the goal" in first[-2]
    assert first[-1] == "reach 2"
    assert "The goal: reach 2" in second[-1]
    assert "as counted" in second[-1]


async def test_the_check_may_use_another_model(tmp_path: Path) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        await one.set(session, "reach 1")
        await one.until(session, "done")
        log = await one.stage.log(session)

    [called] = [event for event in log if isinstance(event, ModelCalled)]
    [checked] = [event for event in log if isinstance(event, GoalChecked)]
    assert called.purpose == "goal"
    assert checked.model == "play"
    assert log.index(called) < log.index(checked), "its cost is on record even if the worker dies before the decision"


async def test_the_limit_of_turns_pauses_the_goal_and_a_resume_allows_as_many_again(tmp_path: Path) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        await one.set(session, "reach 100", max_turns=2)
        goal = await one.until(session, "paused")
        assert goal.reason == "it has taken 2 turns, which is the limit"

        await one.stage.engine.goals.resume(session, by="test")
        async with asyncio.timeout(30):
            while len(await one.turns(session)) < 4:
                await one.until(session, "paused", "active")
        goal = await one.until(session, "paused")

        assert goal.total_turns == 4
        assert goal.turns == 2


async def test_a_goal_that_was_paused_at_its_limit_is_not_continued_with_the_next_message(tmp_path: Path) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        await one.set(session, "reach 100", max_turns=1)
        await one.until(session, "paused")
        await one.stage.play(session, "Something else")
        latest = [message.text for message in one.stage.requests[-1].messages]

    assert latest[-1] == "Something else"
    assert not any("Continue with it" in text for text in latest)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('say {"decision": "stuck", "reason": "no key"}', "the check says it is stuck: no key"),
        ("say sure, all is well", "the check failed 3 times in a row: the check gave no decision"),
        ("break", "the check failed 3 times in a row: the checker is away"),
        ("fail", "its turn failed: the provider is closed"),
    ],
)
async def test_what_does_not_clearly_continue_pauses_the_goal_with_the_reason(
    tmp_path: Path, text: str, reason: str
) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        await one.set(session, text)
        goal = await one.until(session, "paused")

        assert goal.reason.startswith(reason)
        assert len(await one.turns(session)) == 1
        assert await one.decisions(session) in ([], ["stuck"], ["failed"] * 3)


async def test_a_message_of_the_user_comes_first_and_stops_the_check(tmp_path: Path) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        one.script.holds_check.clear()
        await one.set(session, "reach 2")
        await one.script.checking.wait()

        events = await one.stage.play(session, "and one thing more")
        one.script.holds_check.set()
        await one.until(session, "done")
        log = await one.stage.log(session)

    assert any(isinstance(event, ModelSaid) for event in events), "it was answered while the check hung"
    said = [event for event in log if isinstance(event, UserSaid)]
    assert [text_of(event.parts) for event in said] == ["reach 2", "and one thing more"]
    assert decisions_in(log) == ["done"], "the goal is checked after the user's turn"


async def test_queued_messages_are_answered_before_the_goal_goes_on(tmp_path: Path) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        await one.set(session, "slow reach 3")
        await one.stage.admit(session, "first question")
        await one.stage.admit(session, "second question")
        one.script.holds_turn.set()
        await one.until(session, "done")
        log = await one.stage.log(session)

    order = [
        text_of(event.parts) if isinstance(event, UserSaid) else "check"
        for event in log
        if isinstance(event, UserSaid | GoalChecked)
    ]
    assert order == ["slow reach 3", "first question", "second question", "check"]


async def test_an_interrupt_of_the_turn_pauses_the_goal(tmp_path: Path) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        await one.set(session, "slow reach 2")
        assert await one.stage.engine.interrupt(session)
        goal = await one.until(session, "paused")

        assert goal.reason == "its turn was interrupted"
        assert await one.decisions(session) == []

        one.script.holds_turn.set()
        await one.stage.engine.goals.resume(session, by="test")
        await one.until(session, "done")


async def test_an_interrupt_of_the_check_pauses_the_goal(tmp_path: Path) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        one.script.holds_check.clear()
        await one.set(session, "reach 2")
        await one.script.checking.wait()
        assert await one.stage.engine.interrupt(session)
        goal = await one.until(session, "paused")

        assert goal.reason == "it was interrupted"
        assert len(await one.turns(session)) == 1
        assert not await one.stage.engine.interrupt(session), "nothing is left to interrupt"


@pytest.mark.parametrize("what", ["pause", "clear", "replace"])
async def test_a_decision_about_a_goal_that_was_changed_meanwhile_has_no_effect(tmp_path: Path, what: str) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        one.script.holds_check.clear()
        await one.set(session, "reach 2")
        await one.script.checking.wait()
        goals = one.stage.engine.goals
        if what == "pause":
            await goals.pause(session, by="test")
        elif what == "clear":
            await goals.clear(session, by="test")
        else:
            await one.set(session, "reach 3")
        one.script.holds_check.set()
        goal = await one.until(session, "done" if what == "replace" else f"{what}d" if what == "pause" else "cleared")

        assert len(await one.turns(session)) == (4 if what == "replace" else 1)
        assert goal.text == ("reach 3" if what == "replace" else "reach 2")


@pytest.mark.parametrize("action", ["pause", "resume", "clear"])
async def test_a_goal_that_is_over_stays_over(tmp_path: Path, action: str) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        with pytest.raises(Conflict, match="has no goal"):
            await getattr(one.stage.engine.goals, action)(session, by="test")
        await one.set(session, "reach 1")
        await one.until(session, "done")
        before = await one.stage.log(session)
        with pytest.raises(Conflict, match="is over: done after 1 turn"):
            await getattr(one.stage.engine.goals, action)(session, by="test")

        assert await one.stage.log(session) == before


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        *(
            (" ", {}),
            ("x" * 5_000, {}),
            ("a", {"max_turns": 0}),
            ("a", {"max_turns": 10**9}),
            ("a", {"max_hours": 0.0}),
        ),
        *(("a", {"max_hours": float("nan")}), ("a", {"max_cost": -1.0}), ("a", {"max_cost": float("inf")})),
    ],
)
async def test_an_impossible_goal_is_refused(tmp_path: Path, text: str, changes: dict[str, float]) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        with pytest.raises(Invalid):
            await one.set(session, text, **changes)

        assert (await one.read(session)).summary.goal == ""


async def test_ending_or_trashing_a_session_ends_its_goal(tmp_path: Path) -> None:
    async with goal_worker(tmp_path) as one:
        for action in ("end", "trash"):
            session = await one.session()
            one.script.holds_check.clear()
            one.script.checking.clear()
            await one.set(session, "reach 2")
            await one.script.checking.wait()
            await one.stage.engine.goals.pause(session, by="test")
            await one.until(session, "paused")
            if action == "end":
                await one.stage.engine.actions.end(session, detail="a person ended it")
            else:
                await one.stage.engine.actions.trash(session, reason="a person")
            goal = await one.goal(session)
            assert goal.state == "ended"
            assert goal.reason.startswith("its session")
            await one.stage.engine.actions.restore(session)
            await one.stage.engine.actions.reopen(session, reason="a person")
            assert (await one.goal(session)).state == "ended", "it does not come back with its session"


async def test_a_fork_has_no_goal(tmp_path: Path) -> None:
    async with goal_worker(tmp_path) as one:
        session = await one.session()
        one.script.holds_check.clear()
        await one.set(session, "reach 2")
        await one.script.checking.wait()
        forked = await one.stage.engine.actions.fork(session)
        one.script.holds_check.set()
        await one.until(session, "done")

        assert forked.summary.goal == ""
        assert await one.stage.engine.goals.get(forked.id) is None


async def test_a_goal_stays_in_the_context_after_a_compaction() -> None:
    said = UserSaid(turn_id="turn-1", parts=())
    started: list[Event] = [
        SessionOpened(source="api"),
        GoalSet(goal_id="goal-1", text="reach the sea", deadline_at=1, max_turns=1),
        said,
    ]
    context = Context([Entry(seq, 0, event) for seq, event in enumerate(started, 1)])
    assert context.goal == "reach the sea"
    context.add(Entry(4, 0, Compacted(epoch=1, upto_seq=3, summary="short", how="summary", goal=context.goal)))
    assert "reach the sea" in context.view[0].text
    context.add(Entry(5, 0, GoalEnded(goal_id="goal-1", outcome="done")))
    assert context.goal == ""


async def test_the_budget_of_a_goal_is_checked_before_each_call_and_pauses_it(tmp_path: Path) -> None:
    price = Price(input=0.0, output=1_000_000.0)
    async with goal_worker(tmp_path, find_price=lambda model: price) as one:
        session = await one.session()
        await one.set(session, "reach 100", max_cost=2.5)
        goal = await one.until(session, "paused")
        log = await one.stage.log(session)

        assert "the budget of this goal is used up" in goal.reason
        assert await one.stage.engine.goals.get(session) is not None
        free = await one.session()
        await one.set(free, "reach 1")
        await one.until(free, "done")
    calls = [event for event in log if isinstance(event, ModelSaid | ModelCalled)]
    assert len(calls) <= 3, "each call costs about a dollar"


async def test_a_goal_waits_for_sub_agents_in_the_background(tmp_path: Path) -> None:
    async with goal_worker(tmp_path) as one:
        parent, child = await one.session(source="run", own=True), await one.session()
        database, worker_id = one.stage.database, one.stage.worker_id
        link = Delegation(parent_id=parent, turn_id="t", call_id="c")
        child_of = partial(delegations.add, task_turn="t", title="count", delivery="wake", at=1, deadline=2**60)
        await database.write(child_of, child, link)
        await one.set(parent, "reach 2")
        while not await one.turns(parent):
            await asyncio.sleep(0.01)
        await one.stage.engine.settled()
        await one.stage.engine.goal_watch.look()
        assert (one.script.checks, await one.decisions(parent)) == (0, [])
        assert (await one.goal(parent)).due

        record = await database.read(delegations.get, child)
        assert record is not None
        await database.write(delegations.end, record, "done", "", at=1)
        assert await database.read(delegations.list_unclaimed, worker_id, takes_left=False) == [parent]
        assert await database.read(delegations.list_unclaimed, "another", takes_left=False) == []
        await one.stage.engine.delegation.check()
        await one.until(parent, "done")
        assert (await one.turns(parent), await one.decisions(parent)) == (["done"] * 2, ["done"])
