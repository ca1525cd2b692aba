"""HoldfastSaver for LangGraph: the conformance suite, linear growth, fencing, and killed graphs."""

import asyncio
import itertools
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate

from holdfast.adapters import framework_session as session_module
from holdfast.adapters import langgraph
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.items import ADAPTER
from holdfast.adapters.shared_store import close_stores, shared_store
from holdfast.model.errors import Busy, Conflict, Invalid
from holdfast.model.session import Session, as_message
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions
from tests.adapters.agent_kills import KILLED, AgentForks, start_agent
from tests.adapters.programs.langgraph_agent import make_graph
from tests.sampling import limit

pytestmark = [pytest.mark.process, pytest.mark.clients, pytest.mark.timeout(120)]
NAME = "chat-1"
CONFIG: Any = {"configurable": {"thread_id": NAME, "checkpoint_ns": ""}}


def put(saver: HoldfastSaver, values: dict[str, Any], version: int, config: Any = CONFIG) -> Any:
    checkpoint: Any = empty_checkpoint() | {"channel_values": values}
    checkpoint["channel_versions"] = dict.fromkeys(values, f"{version:032}")
    return saver.put(config, checkpoint, {"step": version}, checkpoint["channel_versions"])


def entries(url: str) -> list[Any]:
    def read(tx: Transaction) -> list[Any]:
        session: Session = sessions.resolve(tx, f"{ADAPTER}:{NAME}").session
        return log.read_complete(tx, session)

    found: list[Any] = shared_store(url).database.submit_read(read).result()
    return found


async def test_the_conformance_suite_of_langgraph_passes_with_all_capabilities(url: str) -> None:
    number = itertools.count()

    @checkpointer_test(name="HoldfastSaver")
    async def make() -> AsyncIterator[HoldfastSaver]:
        async with HoldfastSaver.from_url(url.replace(".db", f"-{next(number)}.db")) as saver:
            yield saver

    report = await validate(make)
    assert {name: (one.passed, one.failures) for name, one in report.results.items()} == dict.fromkeys(
        ("put", "put_writes", "get_tuple", "list", "delete_thread", "delete_for_runs", "copy_thread", "prune"),
        (True, []),
    )


def test_a_graph_continues_after_a_restart_and_its_messages_are_in_the_transcript(url: str) -> None:
    make_graph(HoldfastSaver(url)).invoke({"messages": [("user", "one")]}, CONFIG)
    close_stores()
    graph = make_graph(HoldfastSaver(url))
    graph.invoke({"messages": [("user", "two")]}, CONFIG)
    state = graph.get_state(CONFIG)

    assert [one.content for one in state.values["messages"]] == ["one", "reply one", "two", "reply two"]
    assert len(list(graph.get_state_history(CONFIG))) == 6
    shown = [message.text for entry in entries(url) if (message := as_message(entry))]
    assert set(shown) == {"one", "reply one", "two", "reply two"}


async def test_an_asynchronous_graph_continues_a_synchronous_one(url: str) -> None:
    await asyncio.to_thread(make_graph(HoldfastSaver(url)).invoke, {"messages": [("user", "one")]}, CONFIG)
    async with HoldfastSaver.from_url(url) as saver:
        result = await make_graph(saver).ainvoke({"messages": [("user", "two")]}, CONFIG)

    assert [one.content for one in result["messages"]] == ["one", "reply one", "two", "reply two"]


@pytest.mark.parametrize("length", [0, 1, 64, 64 + 1, 64**2 + 1])
def test_lists_of_every_length_come_back(url: str, length: int) -> None:
    saver = HoldfastSaver(url)
    value = [{"n": number, "b": b"\0\xff"} for number in range(length)]
    stored = put(saver, {"items": value, "other": {"deep": [1, [2, 3]]}, "none": None}, 1)
    close_stores()
    found = HoldfastSaver(url).get_tuple(stored)

    assert found is not None
    assert found.checkpoint["channel_values"] == {"items": value, "other": {"deep": [1, [2, 3]]}, "none": None}


def test_a_list_that_grows_stores_each_element_once(url: str) -> None:
    saver, values = HoldfastSaver(url), []
    sizes = []
    for step in range(1, 201):
        values.append(AIMessage(f"{step}: " + "x" * 500, id=str(step)))
        put(saver, {"messages": list(values)}, step)
        sizes.append(sum(len(getattr(entry.event, "item", "")) for entry in entries(url)) if step % 50 == 0 else 0)
    grown = [later - earlier for earlier, later in itertools.pairwise([0, *filter(None, sizes)])]

    assert max(grown) < 1.2 * min(grown)


def test_an_element_that_was_changed_in_place_is_stored_again(url: str) -> None:
    saver, message = HoldfastSaver(url), AIMessage("before", id="1")
    put(saver, {"messages": [message]}, 1)
    message.content = "after"
    put(saver, {"messages": [message]}, 2)

    assert [one.checkpoint["channel_values"]["messages"][0].content for one in saver.list(CONFIG)] == [
        "after",
        "before",
    ]


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """The calls of functions of the checkpointer, by name, in the threads that start from now on and in this one."""
    counts: Counter[str] = Counter()

    def count(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_globals["__name__"].startswith(langgraph.__name__):
            counts[frame.f_code.co_name] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        yield counts
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def test_the_newest_checkpoints_cost_the_same_in_a_long_thread(url: str) -> None:
    costs: list[Counter[str]] = []
    with counted_calls() as calls:
        saver = HoldfastSaver(url)
        for step in range(1, 121):
            stored = put(saver, {"n": step}, step)
            if step in (20, 120):
                calls.clear()
                [newest] = saver.list(CONFIG, limit=1)
                [earlier] = saver.list({"configurable": {"thread_id": NAME}}, before=newest.config, limit=1)
                [again] = saver.list(stored)
                latest = saver.get_tuple(CONFIG)
                costs.append(calls.copy())
        close_stores()

    assert newest == again == latest
    assert (newest.metadata, earlier.metadata) == ({"step": 120}, {"step": 119})
    assert costs[0]["load"] == 4, "the calls are counted"
    assert costs[0] == costs[1]


def test_checkpoints_of_all_namespaces_are_listed_newest_first_without_removed_ones(url: str) -> None:
    saver = HoldfastSaver(url)
    inner: Any = {"configurable": {"thread_id": NAME, "checkpoint_ns": "inner"}}
    stored = [put(saver, {"n": step}, step, inner if step % 3 == 0 else CONFIG) for step in range(1, 8)]

    def steps(*given: Any, **options: Any) -> list[int]:
        return [one.metadata["step"] for one in saver.list(*given, **options)]

    every: Any = {"configurable": {"thread_id": NAME}}
    assert (steps(every), steps(inner), steps(None, limit=2)) == ([7, 6, 5, 4, 3, 2, 1], [6, 3], [7, 6])
    assert steps(every, before=stored[4]) == [4, 3, 2, 1]
    assert steps(every, filter={"step": 3}, limit=1) == [3]
    assert steps(
        {"configurable": {**every["configurable"], "checkpoint_id": stored[2]["configurable"]["checkpoint_id"]}}
    ) == [3]
    saver.prune([NAME])
    assert (steps(every), steps(inner)) == ([7, 6], [6])


def test_a_thread_begins_anew_after_its_deletion(url: str) -> None:
    saver = HoldfastSaver(url)
    put(saver, {"n": 1}, 1)
    saver.delete_thread(NAME)
    stored = put(saver, {"n": 2}, 1)

    assert [one.config for one in saver.list(CONFIG)] == [stored]


def test_an_unknown_strategy_of_pruning_is_refused(url: str) -> None:
    saver = HoldfastSaver(url)
    put(saver, {"n": 1}, 1)

    with pytest.raises(Invalid, match="keep_everything"):
        saver.prune([NAME], strategy="keep_everything")


@pytest.mark.slow
def test_two_processes_cannot_interleave_on_one_thread(each_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "WAIT_SECONDS", 0.0)
    saver = HoldfastSaver(each_url)
    put(saver, {"n": 1}, 1)
    saver.release()
    with start_agent("langgraph_agent", each_url, NAME, 0) as other:
        assert other.wait_for_output("0\n"), other.stderr
        with pytest.raises(Busy, match=rf"adapter, pid {other.pid} "):
            put(saver, {"n": 2}, 2)
        other.kill()
    with pytest.raises(Conflict, match="Read it again"):
        put(saver, {"n": 2}, 2)
    saver.get_tuple(CONFIG)
    put(saver, {"n": 2}, 2)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(limit(2))
def test_promise_1_every_step_of_a_killed_graph_is_there_once_and_in_order(each_url: str) -> None:
    """LangGraph itself may drop the input of a run that was killed, when it gets the next one; never what a run has returned."""
    acknowledged: list[int] = []
    first = 0
    with AgentForks("langgraph_agent") as agents:
        for _ in range(KILLED):
            acknowledged += agents.kill_one(each_url, NAME, first)
            state = make_graph(HoldfastSaver(each_url)).get_state(CONFIG)
            texts = [one.content for one in state.values["messages"]]
            asked = [int(text) for text in texts if text.isdigit()]
            answered = [int(text.removeprefix("reply ")) for text in texts if not text.isdigit()]
            assert asked == sorted(set(asked))
            assert answered == sorted(set(answered))
            assert set(acknowledged) <= set(answered) <= set(asked)
            first = asked[-1] + 1
            close_stores()
