"""Tools that an editor brings: its unsaved files, and its MCP servers."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from acp.schema import EnvVariable, McpServerStdio, SseMcpServer

from tests.acp.editor import Editor, editing

pytestmark = pytest.mark.process
SERVER = Path(__file__).parents[1] / "fakes" / "mcp_server.py"


def use(tool: str, **arguments: Any) -> str:
    return f"use tool {tool} {json.dumps(arguments)}"


def result(editor: Editor, session: str) -> str:
    """The text of the newest result."""
    ended = [update for update in editor.shown(session) if update.get("rawOutput")]
    return str(ended[-1]["rawOutput"]["text"])


async def test_a_read_returns_the_unsaved_text_of_the_editor(home: Path, folder: Path) -> None:
    path = folder / "a.txt"
    path.write_text("saved\n")
    async with editing(home, fs=True, buffers={str(path): "one\nunsaved\n"}) as editor:
        session = await editor.new(folder)
        await editor.say(session, use("read_file", path="a.txt"))
        whole = result(editor, session)
        await editor.say(session, use("read_file", path="a.txt", offset=2))
        part = result(editor, session)

    assert "one" in whole and "unsaved" in whole and "\tsaved" not in whole
    assert part.strip() == "2\tunsaved"
    assert path.read_text() == "saved\n", "reading saves nothing"


async def test_an_edit_keeps_the_unsaved_text_and_appears_in_the_editor(home: Path, folder: Path) -> None:
    path = folder / "a.txt"
    path.write_text("saved\n")
    async with editing(home, fs=True, buffers={str(path): "saved\nunsaved\n"}) as editor:
        session = await editor.new(folder)
        await editor.say(session, use("edit_file", path="a.txt", old="unsaved", new="changed"))

    assert path.read_text() == "saved\nchanged\n"
    assert editor.written == [(str(path), "saved\nunsaved\n"), (str(path), "saved\nchanged\n")]


@pytest.mark.parametrize(
    ("before", "old"),
    [
        (None, None),
        ("", ""),
        ("saved\n", "saved\n"),
        ("x" * 100_001, "unknown"),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}\n".encode("latin-1"), "unknown"),
    ],
    ids=["new", "empty", "text", "too-long", "binary"],
)
async def test_a_file_that_is_replaced_is_shown_with_its_old_text(
    home: Path, folder: Path, before: str | bytes | None, old: str | None
) -> None:
    path = folder / "a.txt"
    if before is not None:
        path.write_bytes(before if isinstance(before, bytes) else before.encode())
    async with editing(home) as editor:
        session = await editor.new(folder)
        await editor.say(session, use("write_file", path="a.txt", content="new\n"))
        live = editor.shown(session)
        await editor.load(folder, session)
        loaded = editor.shown(session)[len(live) :]

    shown = [
        [part for part in one["content"] if part["type"] == "diff"] for one in (*live, *loaded) if "rawOutput" in one
    ]
    diff = {"type": "diff", "path": str(path), "newText": "new\n"} | ({} if old is None else {"oldText": old})
    assert shown == [[] if old == "unknown" else [diff]] * 2
    assert path.read_text() == "new\n"


async def test_the_old_text_of_a_replaced_file_is_that_of_the_editor(home: Path, folder: Path) -> None:
    path = folder / "a.txt"
    path.write_text("saved\n")
    async with editing(home, fs=True, buffers={str(path): "unsaved\n"}) as editor:
        session = await editor.new(folder)
        await editor.say(session, use("write_file", path="a.txt", content="new\n"))
        [ended] = [update for update in editor.shown(session) if "rawOutput" in update]

    assert ended["content"][0]["oldText"] == "unsaved\n"


async def test_an_approved_edit_keeps_the_unsaved_text(home: Path, folder: Path) -> None:
    path = folder / "a.txt"
    path.write_text("saved\n")
    async with editing(
        home, fs=True, buffers={str(path): "saved\nunsaved\n"}, choose=lambda question: "allow"
    ) as editor:
        session = await editor.new(folder)
        await editor.connection.set_session_mode(session_id=session, mode_id="ask")
        await editor.say(session, use("edit_file", path="a.txt", old="unsaved", new="changed"))

    assert path.read_text() == "saved\nchanged\n"
    assert editor.written == [(str(path), "saved\nunsaved\n"), (str(path), "saved\nchanged\n")]


async def test_text_that_was_typed_while_a_change_waited_for_approval_is_not_overwritten(
    home: Path, folder: Path
) -> None:
    path = folder / "a.txt"
    path.write_text("saved\n")
    async with editing(home, fs=True) as editor:
        session = await editor.new(folder)
        await editor.connection.set_session_mode(session_id=session, mode_id="ask")
        turn = asyncio.create_task(editor.say(session, use("write_file", path="a.txt", content="new\n")))
        question = await editor.asked.get()
        editor.buffers[str(path)] = "saved\ntyped\n"
        question.answer.set_result("allow")
        await turn

    assert "changed in the editor" in result(editor, session)
    assert (path.read_text(), editor.written) == ("saved\n", [])


async def test_an_editor_without_file_access_is_not_asked(home: Path, folder: Path) -> None:
    path = folder / "a.txt"
    path.write_text("saved\n")
    async with editing(home, buffers={str(path): "unsaved\n"}) as editor:
        session = await editor.new(folder)
        await editor.say(session, use("read_file", path="a.txt"))
        await editor.say(session, use("write_file", path="a.txt", content="new\n"))

    assert path.read_text() == "new\n"
    assert editor.written == []


@pytest.mark.parametrize("name", ["config.toml", "holdfast.db"])
async def test_the_home_of_holdfast_is_out_of_reach_through_the_editor_too(home: Path, folder: Path, name: str) -> None:
    path = home / name
    async with editing(home, fs=True, buffers={str(path): "a secret\n"}, choose=lambda question: "allow") as editor:
        session = await editor.new(folder)
        await editor.say(session, use("read_file", path=str(path)))
        read = result(editor, session)
        await editor.say(session, use("write_file", path=str(path), content="x"))

    assert "a secret" not in read
    assert editor.written == []


async def test_the_editors_mcp_servers_are_tools_of_its_session_only(home: Path, folder: Path) -> None:
    server = McpServerStdio(
        name="fake",
        command=sys.executable,
        args=[str(SERVER), str(folder), "stdio"],
        env=[EnvVariable(name="SEEN", value="yes")],
    )
    async with editing(home, choose=lambda question: "allow") as editor:
        with_server = (await editor.connection.new_session(cwd=str(folder), mcp_servers=[server])).session_id
        without = await editor.new(folder)
        await editor.say(with_server, use("mcp__fake__talk", characters=5))
        await editor.say(without, use("mcp__fake__talk", characters=5))

    assert result(editor, with_server) == "xxxxx"
    assert "no tool called" in result(editor, without)


async def test_a_server_that_does_not_start_leaves_the_session_usable(home: Path, folder: Path) -> None:
    broken = McpServerStdio(name="broken", command="/nonexistent/server", args=[], env=[])
    async with editing(home) as editor:
        session = (await editor.connection.new_session(cwd=str(folder), mcp_servers=[broken])).session_id

        assert await editor.say(session, "Hello") == "end_turn"


async def test_a_prompt_that_waits_for_a_server_can_be_cancelled(home: Path, folder: Path) -> None:
    silent = McpServerStdio(name="silent", command="sleep", args=["100"], env=[])
    async with editing(home) as editor:
        session = (await editor.connection.new_session(cwd=str(folder), mcp_servers=[silent])).session_id
        prompt = asyncio.create_task(editor.say(session, use("write_file", path="a", content="x")))
        await asyncio.sleep(0)
        await editor.connection.cancel(session_id=session)

        assert await prompt == "cancelled"
    assert not (folder / "a").exists()


async def test_a_transport_that_is_not_supported_is_refused_and_leaves_no_session(home: Path, folder: Path) -> None:
    sse = SseMcpServer(type="sse", name="x", url="http://127.0.0.1:9/sse", headers=[])
    async with editing(home) as editor:
        with pytest.raises(Exception, match="not supported"):
            await editor.connection.new_session(cwd=str(folder), mcp_servers=[sse])
        assert (await editor.connection.list_sessions()).sessions == []
