"""How HoldfastSaver stores values: each once, lists by their parts, whatever a graph does to them, and as earlier releases did."""

import copy
import dataclasses
import json
import random
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.adapters.framework_session import constant, framework_session
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.item_writer import describe
from holdfast.adapters.langgraph.items import ADAPTER
from holdfast.adapters.shared_store import close_stores, shared_store
from holdfast.model.errors import Corrupt, Unsupported
from holdfast.model.event import ItemAdded

pytestmark = [pytest.mark.process, pytest.mark.clients]
NAME = "chat-1"
CONFIG: Any = {"configurable": {"thread_id": NAME, "checkpoint_ns": ""}}
SAMPLE = Path(__file__).parent / "samples" / "langgraph_0.1.jsonl"


@dataclasses.dataclass
class Artifact:
    """Something that is neither a message nor plain data."""

    number: int


def put(saver: HoldfastSaver, value: list[Any], version: int) -> None:
    checkpoint: Any = empty_checkpoint() | {"channel_values": {"items": value}}
    checkpoint["channel_versions"] = {"items": f"{version:032}"}
    saver.put(CONFIG, checkpoint, {"step": version}, checkpoint["channel_versions"])


def stored(saver: HoldfastSaver) -> list[Any]:
    """The lists of all checkpoints, oldest first."""
    return [one.checkpoint["channel_values"]["items"] for one in saver.list(CONFIG)][::-1]


async def append(url: str, *events: ItemAdded) -> None:
    session = framework_session(shared_store(url), ADAPTER, NAME)
    await session.write(constant(events))
    await session.read(lambda *_: None)


async def append_sample(url: str) -> None:
    lines = SAMPLE.read_text("utf-8").splitlines()
    await append(url, *(ItemAdded(adapter=ADAPTER, **json.loads(line)) for line in lines))


@pytest.mark.parametrize("copies", [False, True])
async def test_threads_of_an_earlier_release_are_read_and_continued(url: str, copies: bool) -> None:
    await append_sample(url)
    close_stores()
    saver = HoldfastSaver(url)
    if copies:
        saver.copy_thread(NAME, "copy")
    config: Any = {"configurable": {"thread_id": "copy" if copies else NAME, "checkpoint_ns": ""}}
    found = list(saver.list(config))

    assert [one.checkpoint["id"][-1] for one in found] == ["4", "3", "2", "1"]
    assert [len(one.checkpoint["channel_values"]["messages"]) for one in found] == [0, 70, 2, 1]
    assert [one.content for one in found[1].checkpoint["channel_values"]["messages"][:3]] == [
        "one",
        "two ünï",
        "more 3",
    ]
    assert found[1].checkpoint["channel_values"]["b"] == b"\0\xff"
    assert found[3].checkpoint["channel_versions"] == dict.fromkeys(("messages", "n"), f"{1:032}")
    assert [(task, channel) for task, channel, _ in found[3].pending_writes or ()] == [
        ("task-1", "messages"),
        ("task-1", "branch:to:x"),
    ]

    messages = [*found[1].checkpoint["channel_values"]["messages"], AIMessage("new", id="new")]
    checkpoint: Any = empty_checkpoint() | {"channel_values": {"messages": messages, "n": 2}}
    checkpoint["channel_versions"] = {"messages": f"{6:032}", "n": f"{2:032}"}
    saver.put(found[0].config, checkpoint, {"step": 6}, {"messages": f"{6:032}"})
    newest = saver.get_tuple(config)
    assert newest is not None
    assert newest.checkpoint["channel_values"] == {"messages": messages, "n": 2}


async def test_items_of_a_newer_release_are_refused_by_name(url: str) -> None:
    await append(url, ItemAdded(adapter=ADAPTER, item='["vector",[1,2]]'))

    with pytest.raises(Unsupported, match=r"newer release.*vector"):
        HoldfastSaver(url).get_tuple(CONFIG)


def test_any_element_that_was_changed_in_place_is_stored_again(url: str) -> None:
    saver = HoldfastSaver(url)
    items: list[Any] = [AIMessage(f"text {number}", id=str(number)) for number in range(100)]
    expected = []
    for version, change in enumerate(
        (
            lambda: None,
            lambda: setattr(items[0], "content", "changed"),
            lambda: items[50].additional_kwargs.update(seen=[1]),
            lambda: items[50].additional_kwargs["seen"].append(2),
            lambda: setattr(items[70], "unknown_field", "kept"),
            lambda: items[99].tool_calls.append({"name": "f", "args": {}, "id": "1", "type": "tool_call"}),
        )
    ):
        change()
        put(saver, items, version)
        expected.append(copy.deepcopy(items))

    assert stored(saver) == expected


def test_an_element_that_cannot_be_compared_is_stored_again_when_it_has_changed(url: str) -> None:
    saver = HoldfastSaver(url)
    artifact = Artifact(1)
    messages = [HumanMessage("a"), ToolMessage("b", tool_call_id="1", artifact=artifact), AIMessage("c")]
    for items in (messages, [{"plain": 1}, {"deep": [artifact]}, (1, 2)], [artifact, *messages]):
        artifact.number = 1
        put(saver, items, 1)
        artifact.number = 2
        put(saver, items, 2)
        before, after = stored(saver)[-2:]
        assert set(re.findall(r"number\W+(\d)", str(before))) == {"1"}
        assert set(re.findall(r"number\W+(\d)", str(after))) == {"2"}


class ChangedMeanwhile(JsonPlusSerializer):
    """Serializes while another thread, as with LangGraph's durability "async", goes on to change a message."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        stored = super().dumps_typed(obj)
        if isinstance(obj, AIMessage):
            obj.content = "after"
        return stored


def test_a_change_while_the_list_is_serialized_is_stored_with_the_next_one(url: str) -> None:
    saver, items = HoldfastSaver(url, serde=ChangedMeanwhile()), [AIMessage("before")]
    put(saver, items, 1)
    put(saver, items, 2)

    assert [one[0].content for one in stored(saver)] == ["before", "after"]


@pytest.mark.parametrize("seed", range(4))
def test_lists_come_back_whatever_was_done_to_them(url: str, seed: int) -> None:
    chance = random.Random(seed)
    saver, items, expected = HoldfastSaver(url), list[Any](), []
    for version in range(60):
        match chance.randrange(8):
            case 0 | 1 | 2:
                items = [*items, *(make(chance) for _ in range(chance.randrange(1, 12)))]
            case 3:
                items = items[chance.randrange(len(items) + 1) :]
            case 4 if items:
                items[chance.randrange(len(items))] = make(chance)
            case 5:
                items = copy.deepcopy(items)
            case 6 if items:
                change_in_place(chance, chance.choice(items))
            case 7:
                chance.shuffle(items)
        if chance.random() < 0.1:
            close_stores()
            saver = HoldfastSaver(url)
        put(saver, items, version)
        expected.append(copy.deepcopy(items))

    assert stored(saver) == expected
    close_stores()
    assert stored(HoldfastSaver(url)) == expected


def make(chance: random.Random) -> Any:
    number = chance.randrange(20)
    return chance.choice(
        [AIMessage(f"m{number}"), {"n": number, "deep": {"list": [number]}}, number, f"t{number}", None]
    )


def change_in_place(chance: random.Random, element: Any) -> None:
    if isinstance(element, AIMessage):
        element.response_metadata["changed"] = chance.random()
    elif isinstance(element, dict):
        element["deep"]["list"].append(chance.random())


def test_names_with_half_a_surrogate_pair_come_back(url: str) -> None:
    saver = HoldfastSaver(url)
    checkpoint: Any = empty_checkpoint() | {"channel_values": {"c\ud800": ["a"]}}
    checkpoint["channel_versions"] = {"c\ud800": "1"}
    stored_at = saver.put(CONFIG, checkpoint, {}, checkpoint["channel_versions"])
    saver.put_writes(stored_at, [("c\ud800", "b")], "task\ud800")
    close_stores()
    found = HoldfastSaver(url).get_tuple(CONFIG)

    assert found is not None
    assert found.checkpoint["channel_values"] == {"c\ud800": ["a"]}
    assert found.pending_writes == [("task\ud800", "c\ud800", "b")]


def test_branches_that_give_a_channel_the_same_version_keep_their_values(url: str) -> None:
    def step(parent: Any, values: dict[str, Any], versions: dict[str, int], changed: list[str]) -> Any:
        checkpoint: Any = empty_checkpoint() | {"channel_values": values}
        checkpoint["channel_versions"] = {name: f"{version:032}" for name, version in versions.items()}
        new: Any = {name: checkpoint["channel_versions"][name] for name in changed}
        return saver.put(parent, checkpoint, {}, new)

    saver = HoldfastSaver(url)
    root = step(CONFIG, {"a": 0, "b": []}, {"a": 1, "b": 1}, ["a", "b"])
    one = step(root, {"a": 0, "b": ["one"]}, {"a": 1, "b": 2}, ["b"])
    step(root, {"a": 0, "b": ["other"]}, {"a": 1, "b": 2}, ["b"])
    continued = saver.get_tuple(step(one, {"a": 1, "b": ["one"]}, {"a": 2, "b": 2}, ["a"]))

    assert continued is not None
    assert continued.checkpoint["channel_values"] == {"a": 1, "b": ["one"]}


def test_a_list_is_described_by_slices_of_the_one_before() -> None:
    assert describe([1, 2, 3], [1, 2, 3, 4]) == [(0, 3), 4]
    assert describe([1, 2, 3, 4], [2, 3, 9, 4]) == [(1, 3), 9, (3, 4)]
    assert describe([1, 1], [1, 1, 1]) == [(0, 2), (0, 1)]
    assert describe([], [5]) == [5]


def test_a_changed_event_is_named(url: str) -> None:
    saver = HoldfastSaver(url)
    put(saver, [AIMessage("before")], 1)
    close_stores()
    with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
        database.execute("UPDATE event SET body = replace(body, 'before', 'behind') WHERE body LIKE '%before%'")
    database.close()

    with pytest.raises(Corrupt, match="event 2"):
        HoldfastSaver(url).get_tuple(CONFIG)
