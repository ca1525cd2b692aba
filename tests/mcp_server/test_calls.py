"""The tools in one process: list, search, read, open, send and follow, with bounded results and named errors."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError

from holdfast.mcp_server.transcript import PAGE_CHARS
from tests.api.serving import BRISKLY, SLOWLY, write_config
from tests.mcp_server.conftest import MODES, Inside, open_inside

# The library alone takes a second to import.
pytestmark = pytest.mark.slow
NAMES = ["list_sessions", "search_sessions", "read_session", "open_session", "send_message", "follow_turn"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_opens_a_session_sends_a_message_and_gets_the_reply(home: Path, mode: str) -> None:
    async with open_inside(home, mode) as opened:
        mcp = opened.mcp
        tools = (await mcp.client.list_tools()).tools
        session = await mcp.open(title="Plans")
        sent = await mcp.call("send_message", session="Plans", text="Grüße")
        done = await mcp.call("follow_turn", session=session, turn_id=sent["turn_id"])
        read = await mcp.call("read_session", session=session)

    assert [tool.name for tool in tools] == NAMES
    assert sent["state"] == "running"
    assert (done["state"], done["text"], done["next"]) == ("done", "You said: Grüße", None)
    assert [(one["role"], one["text"]) for one in read["messages"]] == [
        ("user", "Grüße"),
        ("assistant", "You said: Grüße"),
    ]
    assert read["next"] is None


async def test_the_same_key_is_the_same_session_as_in_other_interfaces(inside: Inside) -> None:
    first = await inside.mcp.call("open_session", key="notes")
    again = await inside.mcp.call("open_session", key="notes")

    assert (first["new"], again["new"]) == (True, False)
    assert first["session"]["id"] == again["session"]["id"]
    assert first["session"]["channel"] == "key:notes"


async def test_a_message_that_is_sent_again_with_its_key_is_sent_once(inside: Inside) -> None:
    mcp, session = inside.mcp, await inside.mcp.open()
    first = await mcp.call("send_message", session=session, text="Pay", idempotency_key="k1")
    await mcp.call("follow_turn", session=session, turn_id=first["turn_id"])
    again = await mcp.call("send_message", session=session, text="Pay", idempotency_key="k1")
    other = await mcp.call("send_message", session=session, text="Pay", idempotency_key="k2")
    await mcp.call("follow_turn", session=session, turn_id=other["turn_id"])
    texts = [one["text"] for one in (await mcp.call("read_session", session=session))["messages"]]

    assert (again["turn_id"], again["state"]) == (first["turn_id"], "repeated")
    assert await mcp.refused("send_message", session=session, text="Pay more", idempotency_key="k1") == "key_reused"
    assert texts.count("Pay") == 2


async def test_progress_reports_the_text_and_the_tools_of_a_turn(inside: Inside, home: Path) -> None:
    mcp = inside.mcp
    tools = await mcp.open(model="scripted:tools")
    await mcp.say(tools, 'Look\nuse tool terminal {"command": "echo hi"}')
    session = await mcp.open(model=f"scripted:{home}/brisk.json")
    done = await mcp.say(session, "Go")

    assert done["text"].endswith("piece79")
    assert {"tool terminal started", "tool terminal ended: ok"} <= set(mcp.progress)
    assert any("piece" in one for one in mcp.progress)


async def test_following_returns_after_the_time_that_the_client_can_wait(inside: Inside, home: Path) -> None:
    mcp = inside.mcp
    session = await mcp.open(model=f"scripted:{home}/silent.json")
    sent = await mcp.call("send_message", session=session, text="Hello?")
    queued = await mcp.call("send_message", session=session, text="Still there?")
    running = await mcp.call("follow_turn", session=session, turn_id=sent["turn_id"], wait_seconds=0)
    waiting = await mcp.call("follow_turn", session=session, turn_id=queued["turn_id"], wait_seconds=0)
    refused = await mcp.refused("send_message", session=session, text="Now!", busy="reject")
    await inside.engine.cancel(session, queued["turn_id"])
    dropped = await mcp.result("follow_turn", session=session, turn_id=queued["turn_id"])
    await inside.engine.interrupt(session)
    ended = await mcp.result("follow_turn", session=session, turn_id=sent["turn_id"])

    assert (queued["state"], running["state"], waiting["state"]) == ("queued", "running", "queued")
    assert refused == "session_busy"
    assert (dropped.is_error, dropped.structured_content["state"]) == (True, "dropped")
    assert (ended.is_error, ended.structured_content["state"]) == (True, "interrupted")


async def test_a_client_that_does_not_wait_gets_the_reply_of_a_turn_that_has_ended(inside: Inside) -> None:
    mcp = inside.mcp
    session = await mcp.open()
    sent = await mcp.call("send_message", session=session, text="Hello")
    await inside.engine.settled()
    done = await mcp.call("follow_turn", session=session, turn_id=sent["turn_id"], wait_seconds=0)

    assert (done["state"], done["text"]) == ("done", "You said: Hello")


async def test_a_turn_that_fails_is_an_error_with_its_code(tmp_path: Path) -> None:
    write_config(tmp_path / "home", alone="fails")
    async with open_inside(tmp_path / "home") as opened:
        mcp = opened.mcp
        session = await mcp.open()
        sent = await mcp.call("send_message", session=session, text="Do it")
        done = await mcp.result("follow_turn", session=session, turn_id=sent["turn_id"])

    assert done.is_error
    assert (done.structured_content["state"], done.structured_content["code"]) == ("failed", "refused")


async def test_a_question_about_a_tool_is_named_to_the_client(tmp_path: Path) -> None:
    write_config(tmp_path / "home", alone="asks", approval_seconds=600)
    async with open_inside(tmp_path / "home") as opened:
        mcp = opened.mcp
        session = await mcp.open()
        sent = await mcp.call("send_message", session=session, text="Clean up")
        while not (report := await mcp.call("follow_turn", session=session, turn_id=sent["turn_id"], wait_seconds=0.2))[
            "questions"
        ]:
            pass
        await opened.engine.interrupt(session)

    assert report["state"] == "running"
    assert "rm -rf gone" in report["questions"][0]["question"]


async def all_pages(inside: Inside, name: str, key: str, **arguments: Any) -> list[list[Any]]:
    pages, cursor = [], None
    while True:
        page = await inside.mcp.call(name, **arguments, **({} if cursor is None else {"cursor": cursor}))
        pages.append(page[key])
        if (cursor := page["next"]) is None:
            return pages


async def test_long_results_come_in_pages(inside: Inside) -> None:
    mcp = inside.mcp
    sessions = [await mcp.open(title=f"Number {n}") for n in range(5)]
    for n in range(3):
        await mcp.say(sessions[0], f"walrus {n}")

    listed = await all_pages(inside, "list_sessions", "sessions", limit=2)
    hits = await all_pages(inside, "search_sessions", "hits", query="walrus", limit=4)
    read = await all_pages(inside, "read_session", "messages", session=sessions[0], limit=4)
    newest = await mcp.call("read_session", session=sessions[0], last=3)

    assert [len(page) for page in listed] == [2, 2, 1]
    assert sorted(one["id"] for page in listed for one in page) == sorted(sessions)
    assert [len(page) for page in hits if page] == [4, 2]
    assert [len(page) for page in read] == [4, 2]
    assert [one["text"] for one in newest["messages"]] == ["You said: walrus 1", "walrus 2", "You said: walrus 2"]


async def test_a_long_message_continues_on_the_next_page(inside: Inside) -> None:
    mcp, session = inside.mcp, await inside.mcp.open()
    text = "".join(f"{n:07d} " for n in range(PAGE_CHARS // 4))
    done = await mcp.say(session, text)
    pages = await all_pages(inside, "read_session", "messages", session=session)
    said: dict[int, str] = {}
    for page in pages:
        assert sum(len(one["text"]) for one in page) <= PAGE_CHARS
        for one in page:
            assert one.get("offset", 0) == len(said.get(one["seq"], ""))
            said[one["seq"]] = said.get(one["seq"], "") + one["text"]
    rest = await mcp.call("read_session", session=session, cursor=done["next"])

    first, second = said.values()
    assert first == text
    assert done["text"] + rest["messages"][0]["text"] == second[: 2 * PAGE_CHARS]


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("list_sessions", {"limit": 0}, "invalid"),
    ("list_sessions", {"limit": 10**30}, "invalid"),
    ("list_sessions", {"state": "sleeping"}, "invalid"),
    ("list_sessions", {"cursor": "x"}, "invalid"),
    ("list_sessions", {"colour": "red"}, "invalid"),
    ("search_sessions", {}, "invalid"),
    ("search_sessions", {"query": "x", "cursor": "-1"}, "invalid"),
    ("read_session", {"session": "hf-unknown"}, "not_found"),
    ("read_session", {"session": 7}, "invalid"),
    ("read_session", {"session": "Plans", "cursor": "1:x"}, "invalid"),
    ("read_session", {"session": "Plans", "cursor": "1", "last": 2}, "invalid"),
    ("read_session", {"session": "Pl\0ans"}, "invalid"),
    ("search_sessions", {"query": "a\0b"}, "invalid"),
    ("open_session", {"title": "a\0b"}, "invalid"),
    ("send_message", {"session": "Plans", "text": "Hi", "idempotency_key": "\0"}, "invalid"),
    ("open_session", {"session": "Plans", "key": "k"}, "invalid"),
    ("open_session", {"key": "a\nb"}, "invalid"),
    ("open_session", {"model": "nobody:x"}, "invalid"),
    ("send_message", {"session": "Plans", "text": " \n"}, "invalid"),
    ("send_message", {"session": "Plans", "text": None}, "invalid"),
    ("send_message", {"session": "nowhere at all", "text": "Hi"}, "not_found"),
    ("follow_turn", {"session": "Plans", "turn_id": "turn-unknown"}, "not_found"),
    ("follow_turn", {"session": "Plans", "turn_id": "%"}, "not_found"),
    ("follow_turn", {"session": "Plans", "turn_id": "turn-1", "wait_seconds": -1}, "invalid"),
]


async def test_bad_arguments_are_refused_by_name(inside: Inside) -> None:
    await inside.mcp.open(title="Plans")

    for name, arguments, code in BAD:
        assert await inside.mcp.refused(name, **arguments) == code, (name, arguments)
    with pytest.raises(MCPError, match="unknown tool 'drop_tables'; known: list_sessions"):
        await inside.mcp.result("drop_tables")


async def test_a_client_that_stops_following_does_not_stop_the_turn(inside: Inside, home: Path) -> None:
    mcp = inside.mcp
    session = await mcp.open(model=f"scripted:{home}/brisk.json")
    sent = await mcp.call("send_message", session=session, text="Go")
    following = asyncio.ensure_future(mcp.result("follow_turn", session=session, turn_id=sent["turn_id"]))
    while not mcp.progress:
        await asyncio.sleep(0)
    following.cancel()
    await asyncio.wait({following})
    done = await mcp.call("follow_turn", session=session, turn_id=sent["turn_id"])

    assert following.cancelled()
    assert (done["state"], done["text"]) == ("done", BRISKLY)


async def test_any_text_can_be_stored_and_read(inside: Inside) -> None:
    session = await inside.mcp.open()
    strange = "a\0b \ud83d half, 🦭 whole, \x1b[31m"

    done = await inside.mcp.say(session, strange)

    assert done["text"] == f"You said: {strange}".replace("\ud83d", "�")


async def test_a_turn_that_is_read_while_it_streams_shows_its_text_so_far(inside: Inside, home: Path) -> None:
    mcp = inside.mcp
    session = await mcp.open(model=f"scripted:{home}/slow.json")
    sent = await mcp.call("send_message", session=session, text="Tell me")
    seen = ""
    while not seen:
        part = await mcp.call("follow_turn", session=session, turn_id=sent["turn_id"], wait_seconds=0.2)
        seen = part["text"]
    done = await mcp.call("follow_turn", session=session, turn_id=sent["turn_id"])

    assert SLOWLY.startswith(seen)
    assert done["text"] == SLOWLY
