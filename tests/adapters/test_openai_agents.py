"""HoldfastSession for openai-agents: lossless, durable, an ordinary session, written by one process at a time."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from agents import set_tracing_disabled
from agents.memory import OpenAIResponsesCompactionSession
from openai import AsyncOpenAI

from holdfast.adapters import framework_session as session_module
from holdfast.adapters.openai_agents import ADAPTER, HoldfastSession
from holdfast.adapters.shared_store import close_stores, shared_store
from holdfast.model.errors import Busy, Conflict, Invalid, Unavailable
from holdfast.model.session import Session, as_message
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions
from tests.adapters import model_server
from tests.adapters.agent_kills import KILLED, AgentForks, start_agent
from tests.crash.programs import ROOT
from tests.sampling import limit

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
set_tracing_disabled(True)
NAME = "chat-1"


def said(text: str) -> Any:
    return {"role": "user", "content": text}


def call(work: Callable[[Transaction], Any], url: str) -> Any:
    return shared_store(url).database.submit_read(work).result()


def stored(url: str) -> Session:
    found: Session = call(lambda tx: sessions.resolve(tx, f"{ADAPTER}:{NAME}").session, url)
    return found


def holdfast(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout


# What is stored comes back.


async def test_items_come_back_unchanged_with_unknown_fields(url: str) -> None:
    items: list[Any] = [
        said("häl\0lo \ud800 😀 \x7f"),
        {"type": "of_next_year", "deep": [{"n": 10**40, "f": 1e-300, "e": 1e22, "b": [True, None, {}]}], "": "\\ud8"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}', "cost": 1.5},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "out"}]},
    ]
    await HoldfastSession(NAME, url).add_items(items)
    close_stores()

    assert await HoldfastSession(NAME, url).get_items() == items


@pytest.mark.parametrize("bad", [{"role": "user", "content": float("nan")}, {"x": object()}, {"x": {1, 2}}])
async def test_what_is_not_json_is_refused_by_name_and_nothing_is_saved(url: str, bad: Any) -> None:
    session = HoldfastSession(NAME, url)

    with pytest.raises(Invalid, match=r"openai-agents is not JSON"):
        await session.add_items([said("one"), bad])
    assert await session.get_items() == []


async def test_a_large_item_is_kept(url: str) -> None:
    session = HoldfastSession(NAME, url)
    await session.add_items([said("x" * 20_000_000)])

    assert await session.get_items() == [said("x" * 20_000_000)]


async def test_limits_come_from_the_call_or_the_settings(url: str) -> None:
    session = HoldfastSession(NAME, url, session_settings={"limit": 2})
    await session.add_items([said(str(n)) for n in range(600)])

    assert await session.get_items() == [said("598"), said("599")]
    assert await session.get_items(300) == [said(str(n)) for n in range(300, 600)]
    assert await session.get_items(0) == []


async def test_taken_back_items_leave_the_session_and_stay_in_the_log(url: str) -> None:
    session = HoldfastSession(NAME, url)
    await session.add_items([said("a"), said("b"), said("c")])

    assert await session.pop_item() == said("c")
    await session.add_items([said("d")])
    assert await session.pop_item() == said("d")
    assert await session.pop_item() == said("b")
    assert await session.get_items() == [said("a")]
    await session.clear_session()
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.add_items([said("e")])
    assert await session.get_items() == [said("e")]
    entries = call(lambda tx: log.read_complete(tx, stored(url)), url)
    assert [message.text for entry in entries if (message := as_message(entry))] == list("abcde")


class NeverCleared(HoldfastSession):
    """Tells if its items are not replaced in one commit."""

    async def clear_session(self) -> None:
        raise AssertionError("a crash would leave the session empty")


async def test_the_items_of_a_session_that_is_compacted_are_replaced_in_one_commit(url: str) -> None:
    session = NeverCleared(NAME, url)
    await session.add_items([said("one"), said("two")])
    with model_server.running() as variables:
        client = AsyncOpenAI(base_url=variables["OPENAI_BASE_URL"], api_key="none")
        compacting = OpenAIResponsesCompactionSession(NAME, session, client=client)
        await compacting.run_compaction({"force": True, "compaction_mode": "input"})
        await client.close()

    assert [item.get("type") for item in await compacting.get_items()] == ["compaction"]
    session.close()
    close_stores()
    assert await HoldfastSession(NAME, url).get_items() == [
        {"type": "compaction", "id": "c", "encrypted_content": model_server.ANSWER}
    ]
    found = stored(url)
    kinds = [type(entry.event).__name__ for entry in call(lambda tx: log.read_complete(tx, found), url)]
    assert kinds == ["SessionOpened", "ItemAdded", "ItemAdded", "Rewound", "ItemAdded"]


async def test_pop_and_clear_of_a_session_that_does_not_exist_create_none(url: str) -> None:
    session = HoldfastSession(NAME, url)

    assert await session.pop_item() is None
    await session.clear_session()
    assert call(lambda tx: tx.one("sessions.count"), url)[0] == 0


# Event loops, threads and concurrent calls.


def test_one_session_serves_several_event_loops_and_threads(url: str) -> None:
    session = HoldfastSession(NAME, url)
    for number in range(3):
        asyncio.run(session.add_items([said(str(number))]))

    async def many() -> None:
        texts = map(str, range(3, 40))
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, session.add_items([said(one)])) for one in texts))

    asyncio.run(many())
    found = asyncio.run(HoldfastSession(NAME, url).get_items())
    assert found[:3] == [said("0"), said("1"), said("2")]
    assert sorted(int(one["content"]) for one in found) == list(range(40))  # type: ignore[typeddict-item,arg-type]


async def test_a_cancelled_caller_waits_for_the_end_of_its_write(url: str) -> None:
    session = HoldfastSession(NAME, url)
    await session.add_items([said("one")])
    task = asyncio.ensure_future(session.add_items([said("two")]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await session.add_items([said("three")])

    assert await session.get_items() == [said("one"), said("two"), said("three")]


async def test_a_closed_session_refuses_everything(url: str) -> None:
    session = HoldfastSession(NAME, url)
    session.close()

    for work in (session.get_items(), session.add_items([]), session.pop_item(), session.clear_session()):
        with pytest.raises(Unavailable, match="has been closed"):
            await work


async def test_a_session_is_used_again_after_its_store_was_closed(url: str) -> None:
    session = HoldfastSession(NAME, url)
    await session.add_items([said("one")])
    close_stores()
    await session.add_items([said("two")])

    assert await session.get_items() == [said("one"), said("two")]


@pytest.mark.slow
def test_a_forked_process_uses_the_session_of_its_parent(each_url: str) -> None:
    with start_agent("forked_session", each_url, NAME) as program:
        assert program.wait_for_output("\n"), program.stderr
        assert program.stdout == "parent child\n"


# The session is an ordinary one.


@pytest.mark.slow
async def test_commands_find_show_search_verify_and_export_the_session(url: str) -> None:
    session = HoldfastSession(NAME, url)
    await session.add_items([said("Where is the lighthouse?"), {"role": "assistant", "content": "In Kiel."}])
    close_stores()

    listed = holdfast("sessions", "list", "--json")
    assert '"source":"library"' in listed.replace(" ", "")
    assert f"framework:{ADAPTER}:{NAME}" in listed
    assert "In Kiel." in holdfast("sessions", "show", f"{ADAPTER}:{NAME}")
    assert "lighthouse" in holdfast("sessions", "search", "lighthouse")
    holdfast("sessions", "verify")
    assert '"kind":"item_added"' in holdfast("sessions", "export", f"{ADAPTER}:{NAME}")
    holdfast("sessions", "delete", f"{ADAPTER}:{NAME}")
    assert await HoldfastSession(NAME, url).get_items() == []


# Other processes.


@pytest.mark.slow
async def test_a_second_process_is_told_who_holds_the_session_until_that_is_killed(
    each_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "WAIT_SECONDS", 0.0)
    session = HoldfastSession(NAME, each_url)
    with start_agent("openai_agent", each_url, NAME, 0) as agent:
        assert agent.wait_for_output("0\n"), agent.stderr
        assert (await session.get_items())[0] == said("say 0")
        with pytest.raises(Busy, match=rf"held by worker-\w+ \(adapter, pid {agent.pid} "):
            await session.add_items([said("too early")])
        agent.kill()
    await session.get_items()
    await session.add_items([said("free")])

    assert (await session.get_items())[-1] == said("free")


@pytest.mark.slow
async def test_a_write_after_another_process_has_written_is_refused(each_url: str) -> None:
    session = HoldfastSession(NAME, each_url)
    await session.add_items([said("mine")])
    await session.release()
    with start_agent("openai_agent", each_url, NAME, 0) as agent:
        assert agent.wait_for_output("0\n"), agent.stderr
        agent.kill()

    with pytest.raises(Conflict, match="Read it again"):
        await session.add_items([said("late")])
    assert said("late") not in await session.get_items()
    await session.add_items([said("again")])
    assert (await session.get_items())[-1] == said("again")


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(limit(2))
def test_promise_1_every_item_of_a_killed_agent_is_there_once_and_in_order(each_url: str) -> None:
    first = 0
    with AgentForks("openai_agent") as agents:
        for _ in range(KILLED):
            acknowledged = max(agents.kill_one(each_url, NAME, first))
            items = asyncio.run(HoldfastSession(NAME, each_url).get_items())
            texts = [re.findall(r"(say|reply) (\d+)", str(item))[0] for item in items]
            asked = [int(number) for kind, number in texts if kind == "say"]
            answered = [int(number) for kind, number in texts if kind == "reply"]
            assert asked == list(range(asked[-1] + 1))
            assert answered == sorted(set(answered))
            assert set(answered) <= set(asked)
            assert acknowledged in answered
            first = asked[-1] + 1
            close_stores()
