"""A parent delegates tasks to child sessions: awaited, in parallel, in the background, within limits."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.engine.delegation.create import DelegationLimits
from holdfast.engine.delegation.stop import stop_child
from holdfast.model.event import (
    ChildEnded,
    ChildStarted,
    Event,
    ModelSaid,
    SessionOpened,
    ToolEnded,
    TurnEnded,
    Usage,
    UserSaid,
)
from holdfast.model.message import text_of
from holdfast.model.provider import Delta, ModelReply, ModelRequest
from holdfast.store.repos import activity, delegations, input_queue, leases
from tests.engine.delegation.family import Family, answer, family

HANG = {"task": "hang"}


def results(events: list[Event]) -> list[str]:
    return [text_of(event.parts) for event in events if isinstance(event, ToolEnded)]


async def wait_for_child(one: Family, parent: str, **state: Any) -> str:
    """The id of the parent's first child, once its record has these values."""
    while True:
        found = await one.children(parent)
        if found and all(getattr(found[0], name) == value for name, value in state.items()):
            return found[0].child_id
        await asyncio.sleep(0.01)


async def test_promise_30_a_call_returns_the_result_of_its_child(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        events = await one.delegate(parent, {"task": "do one"})

        [record] = await one.children(parent)
        child = await one.session(record.child_id)
        assert results(events) == [f"Sub-agent {child.id} finished after 0 s. Its result:\n\ndone: do one"]
        assert (child.state, child.summary.end_reason, child.delegated_by) == ("ended", "delegate_complete", parent)
        assert record.delivered_at is not None
        assert await one.completions(parent) == [child.id]


async def test_several_calls_of_one_reply_run_in_parallel(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        events = await one.delegate(parent, *({"task": f"do {n}"} for n in range(5)))

        started = [e.child_id for e in events if isinstance(e, ChildStarted)]
        first_end = next(n for n, e in enumerate(events) if isinstance(e, ToolEnded))
        assert len(started) == 5
        assert all(n < first_end for n, e in enumerate(events) if isinstance(e, ChildStarted))
        assert sorted(await one.completions(parent)) == sorted(started)


async def test_promise_30_a_background_completion_wakes_an_idle_parent_once(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        events = await one.delegate(parent, {"task": "do it", "background": True})
        child = await wait_for_child(one, parent, outcome="done")
        await one.quiet()

        log = await one.stage.log(parent)
        replies = [text_of(e.parts) for e in log if isinstance(e, ModelSaid)]
        assert "was started" in results(events)[0]
        assert await one.completions(parent) == [child]
        assert "done: do it" in replies[-1], "the model has reacted to the result"
        assert len([e for e in log if isinstance(e, UserSaid)]) == 1, "no words were put into the conversation"
        assert await one.stage.queued(parent) == []


async def test_a_completion_during_a_turn_joins_the_turn(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        await one.delegate(parent, {"task": "do it", "background": True}, {"task": "do that"})
        child = await wait_for_child(one, parent, outcome="done")
        await one.quiet()

        assert sorted(await one.completions(parent)) == sorted(r.child_id for r in await one.children(parent))
        assert child in await one.completions(parent)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"task": "x", "model": "gpt-99"}, "unknown model 'gpt-99'. Models: play"),
        ({"task": "x", "tools": ["look", "sing"]}, "unknown tools: sing. A sub-agent can use: mail, look"),
        ({"task": "  "}, "the task is empty"),
        ({"task": "x", "limits": {"steps": 0}}, "at least 1"),
        ({"task": "x", "limits": {"days": 1}}, "days"),
        ({}, "task"),
    ],
)
async def test_a_task_that_cannot_be_delegated_is_refused_with_what_to_change(
    tmp_path: Path, call: dict[str, Any], said: str
) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        events = await one.delegate(parent, call)

        assert said in results(events)[0]
        assert await one.children(parent) == []


async def test_a_session_that_ends_with_its_turn_delegates_nothing_in_the_background(tmp_path: Path) -> None:
    task = {"task": "do it", "background": True}
    async with family(tmp_path) as one:
        parent = await one.parent(source="run")
        events = await one.delegate(parent, task)
        assert "Leave out `background`" in results(events)[0]
        assert await one.children(parent) == []

        events = await one.delegate(await one.parent(), {"task": json.dumps([task])})
        assert "Leave out `background`" in results(events)[0]


async def test_a_worker_that_shuts_down_stops_the_children_of_the_sessions_that_end_with_it(tmp_path: Path) -> None:
    nested = {"task": json.dumps([HANG, HANG]), "background": True}
    async with family(tmp_path) as one:
        parent = await one.parent(source="chat", own=True)
        await one.delegate(parent, HANG | {"background": True}, nested)
        [below] = [record for record in await one.children(parent) if record.title != "hang"]
        while len(await one.children(below.child_id)) < 2:
            await asyncio.sleep(0.01)
        kept = await one.parent()
        await one.delegate(kept, HANG | {"background": True})
        await wait_for_child(one, kept, ended_at=None)

    async with family(tmp_path, watches=False) as another:
        left = [*await another.children(parent), *await another.children(below.child_id)]
        assert [record.outcome for record in left] == ["interrupted"] * 4
        assert {record.reason for record in left} <= {
            "the session that delegated the task has ended",
            "the call that waited for it ended",
        }
        [other] = await another.children(kept)
        assert other.state == "running", "another worker continues the children of a session that goes on"


async def test_a_child_uses_only_the_tools_that_its_parent_allows(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        task = json.dumps([{"task": "x", "tools": ["mail"]}])
        await one.delegate(
            parent, {"task": 'use mail {"to": "bo"}', "tools": ["look"]}, {"task": task, "tools": ["look", "delegate"]}
        )

        refused, nested = sorted(await one.children(parent), key=lambda record: record.title, reverse=True)
        assert "there is no tool called 'mail'" in results(await one.stage.log(refused.child_id))[0]
        assert (
            "unknown tools: mail. A sub-agent can use: look, delegate"
            in results(await one.stage.log(nested.child_id))[0]
        )
        assert not one.stage.mailer.outbox.exists()


async def test_a_child_gets_the_place_and_the_requester_of_its_parent(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent(source="gateway", channel="telegram:1")
        await one.delegate(parent, {"task": json.dumps([{"task": "do it"}])})

        [child] = await one.children(parent)
        [grandchild] = await one.children(child.child_id)
        opened = (await one.stage.log(grandchild.child_id))[0]
        assert isinstance(opened, SessionOpened)
        link = opened.delegation
        assert (link.parent_id, link.root_id, link.depth) == (child.child_id, parent, 2)
        assert (link.root_source, link.requester) == ("gateway", "telegram:1")
        assert opened.workdir == str(tmp_path)


async def test_a_child_is_never_more_permissive_than_its_parent(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        actions = one.stage.engine.actions
        await actions.change(parent, mode="ask", by="test")
        await one.delegate(parent, HANG | {"background": True}, {"task": json.dumps([HANG]), "background": True})
        by_title = {record.title: record.child_id for record in await one.children(parent)}
        nesting = by_title.pop(json.dumps([HANG]))
        while not await one.children(nesting):
            await asyncio.sleep(0.01)
        below = [*by_title.values(), nesting, (await one.children(nesting))[0].child_id]

        assert {(await one.session(child)).summary.mode for child in below} == {"ask"}
        await actions.change(parent, mode="plan", by="test")
        assert {(await one.session(child)).summary.mode for child in below} == {"plan"}
        await actions.change(parent, mode="trusted", by="test")
        assert {(await one.session(child)).summary.mode for child in below} == {"plan"}
        await actions.end(parent)


async def test_children_are_nested_only_so_deep(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        task = "do it"
        for _ in range(4):
            task = json.dumps([{"task": task}])
        await one.stage.play(parent, task)

        [child] = await one.children(parent)
        [grandchild] = await one.children(child.child_id)
        assert await one.children(grandchild.child_id) == []
        assert (
            "nested 2 deep ([agent] max_depth). Do the task yourself"
            in results(await one.stage.log(grandchild.child_id))[0]
        )


async def test_only_so_many_children_run_at_once(tmp_path: Path) -> None:
    async with family(tmp_path, limits=DelegationLimits(2, 2, 600)) as one:
        parent = await one.parent()
        calls = [{"task": "do it", "background": True, "tools": []} for _ in range(2)]
        events = await one.delegate(parent, *calls, {"task": "hang", "background": True}, {"task": "hang"})

        refused = [text for text in results(events) if "[agent] max_children" in text]
        assert refused
        assert len(await one.children(parent)) + len(refused) == 4
        await one.end(parent)


async def test_a_child_that_never_ends_is_stopped_at_its_time_limit(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        events = await one.delegate(parent, HANG | {"limits": {"seconds": 1}})

        assert "was stopped after" in results(events)[0]
        assert "it took longer than its time limit of 1 s" in results(events)[0]
        assert [e.outcome for e in events if isinstance(e, TurnEnded)] == ["done"]


async def test_promise_9_a_child_that_is_stopped_while_a_worker_is_about_to_run_it_ends(tmp_path: Path) -> None:
    async with family(tmp_path, watches=False) as one:
        parent, database = await one.parent(), one.stage.database
        await one.delegate(parent, HANG | {"background": True})
        [child] = await one.children(parent)
        lease = await database.write(leases.take, child.child_id, one.stage.engine.services.worker_id)
        await database.write(delegations.request_stop, child.child_id, "enough")

        await database.write(stop_child, child.child_id, at=child.started_at + 1)
        await database.write(leases.release, lease)
        await database.write(stop_child, child.child_id, at=child.started_at + 2)

        session = await one.session(child.child_id)
        assert (session.state, session.summary.end_reason) == ("ended", "delegate_complete")
        [record] = await one.children(parent)
        assert (record.outcome, record.reason) == ("cancelled", "enough")
        assert not await database.read(input_queue.list_waiting, child.child_id)


async def test_a_child_takes_only_so_many_steps(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        events = await one.delegate(parent, {"task": "use look", "limits": {"steps": 1}})

        assert "failed" in results(events)[0]
        assert "1 step without an end, which is the limit" in results(events)[0]


async def test_a_call_cannot_ask_for_more_time_than_the_settings_allow(tmp_path: Path) -> None:
    async with family(tmp_path, limits=DelegationLimits(2, 2, 1)) as one:
        parent = await one.parent()
        events = await one.delegate(parent, HANG | {"limits": {"seconds": 100_000}})

        assert "time limit of 1 s" in results(events)[0]


async def test_interrupting_a_parent_stops_the_children_that_it_waits_for_and_keeps_the_others(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        turn = asyncio.create_task(one.delegate(parent, HANG, HANG | {"background": True}))
        await wait_for_child(one, parent, ended_at=None)
        while len(await one.children(parent)) < 2:
            await asyncio.sleep(0.01)
        await one.stage.engine.interrupt(parent)
        await turn

        awaited = next(r for r in await one.children(parent) if r.delivery != "wake")
        while (await one.children(parent))[0].outcome is None and (await one.children(parent))[1].outcome is None:
            await asyncio.sleep(0.01)
        await asyncio.wait_for(one.until_ended(awaited.child_id), 20)
        log = await one.stage.log(parent)
        assert [e.child_id for e in log if isinstance(e, ChildEnded)] == [awaited.child_id]
        assert isinstance(log[-1], ChildEnded), "the completion of a cut-off call does not wake its parent"
        other = next(r for r in await one.children(parent) if r.delivery == "wake")
        assert other.state == "running"
        await one.stage.engine.actions.end(parent)


@pytest.mark.parametrize("what", ["end", "trash"])
async def test_ending_or_trashing_a_parent_stops_its_children(tmp_path: Path, what: str) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        nested: dict[str, Any] = {"task": json.dumps([HANG]), "background": True}
        await one.delegate(parent, HANG | {"background": True}, nested, {"task": "do it"})
        by_title = {record.title: record for record in await one.children(parent)}
        hanging, nesting, finished = by_title["hang"], by_title[nested["task"]], by_title["do it"]
        while not await one.children(nesting.child_id):
            await asyncio.sleep(0.01)
        [grandchild] = await one.children(nesting.child_id)
        actions = one.stage.engine.actions
        await (actions.end(parent) if what == "end" else actions.trash(parent, reason="test"))

        for record in (hanging, nesting, grandchild):
            await asyncio.wait_for(one.until_ended(record.child_id), 20)
        await one.quiet()
        assert sorted(await one.completions(parent)) == sorted(r.child_id for r in (hanging, nesting, finished))
        state = await one.session(parent)
        assert state.state == "ended" or what == "trash", "no completion reopens it"
        trashed = [(await one.session(r.child_id)).summary.trashed_at for r in (hanging, nesting, finished, grandchild)]
        assert all(trashed) if what == "trash" else not any(trashed)
        await actions.restore(parent)
        restored = [(await one.session(r.child_id)).summary.trashed_at for r in (hanging, nesting, finished)]
        assert not any(restored)


@pytest.mark.parametrize(
    ("outer", "inner", "gets"),
    [
        ({"steps": 5, "tokens": 900}, {}, (5, 880)),
        ({"steps": 5, "tokens": 900}, {"steps": 3, "tokens": 50}, (3, 50)),
        ({"steps": 5, "tokens": 900}, {"steps": 9, "tokens": 5000}, (5, 880)),
        ({}, {"steps": 3, "tokens": 50}, (3, 50)),
        ({}, {}, (0, 0)),
    ],
)
async def test_the_limits_of_a_child_hold_for_its_own_children(
    tmp_path: Path, outer: dict[str, int], inner: dict[str, int], gets: tuple[int, int]
) -> None:
    async def ask(request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
        async for item in answer(request):
            used = Usage(tokens_in=15, tokens_out=5)
            yield msgspec.structs.replace(item, usage=used) if isinstance(item, ModelReply) else item

    async with family(tmp_path, ask=ask) as one:
        parent = await one.parent()
        task = json.dumps([{"task": "do it", "limits": inner} if inner else {"task": "do it"}])
        await one.delegate(parent, {"task": task, "limits": outer} if outer else {"task": task})
        child = await wait_for_child(one, parent, outcome="done")
        grandchild = await wait_for_child(one, child, outcome="done")

        [opened] = [event for event in await one.stage.log(grandchild) if isinstance(event, SessionOpened)]
        assert (opened.delegation.max_steps, opened.delegation.max_tokens) == gets


async def test_a_trashed_child_ends_the_wait_of_its_parent(tmp_path: Path) -> None:
    """A child without a worker, because no worker has taken it yet."""
    async with family(tmp_path) as one:
        parent = await one.parent()
        await one.delegate(parent, HANG | {"background": True})
        child = await wait_for_child(one, parent)
        while not await one.stage.engine.interrupt(child):  # its turn has not begun
            await asyncio.sleep(0.01)
        await asyncio.wait_for(one.until_ended(child), 20)
        await one.quiet()

        assert (await one.children(parent))[0].outcome == "interrupted"
        assert await one.completions(parent) == [child]


async def test_a_fork_of_a_child_or_a_parent_has_nothing_to_do_with_the_other(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        await one.delegate(parent, {"task": "do it"})
        child = await wait_for_child(one, parent, outcome="done")
        actions = one.stage.engine.actions

        fork = await actions.fork(child)
        assert (fork.summary.parent_id, fork.delegated_by, fork.summary.source) == (child, None, "library")
        await one.delegate(fork.id, {"task": json.dumps([{"task": "do it"}])})
        assert len(await one.children(fork.id)) == 1, "its depth is that of an ordinary session"
        assert await one.children((await actions.fork(parent)).id) == []


async def test_a_result_with_any_characters_arrives(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        task = "do \udcff \x00 ünï \u2028!"
        events = await one.delegate(parent, {"task": task})

        assert task in results(events)[0]


async def test_a_parent_that_waits_is_not_suspected_when_its_worker_dies(tmp_path: Path) -> None:
    """Otherwise it would hold back a child that may only run alone, for which it waits."""
    async with family(tmp_path) as one:
        parent = await one.parent()
        turn = asyncio.create_task(one.delegate(parent, HANG))
        await wait_for_child(one, parent, ended_at=None)

        at_work = await one.stage.database.read(activity.list_by_worker, one.stage.worker_id)
        assert [found.session_id for found in at_work if found.session_id == parent] == []
        await one.stage.engine.interrupt(parent)
        await turn
