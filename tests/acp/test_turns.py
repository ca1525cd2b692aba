"""Prompts, tool calls, plans and commands, as an editor sees them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from acp import helpers

from tests.acp.editor import Editor, editing

pytestmark = pytest.mark.process


def use(tool: str, **arguments: Any) -> str:
    return f"use tool {tool} {json.dumps(arguments)}"


async def test_a_prompt_is_answered_before_its_response(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        session = await editor.new(folder)
        stop = await editor.say(session, "Hello")

        assert stop == "end_turn"
        assert editor.text(session) == "You said: Hello"
        assert editor.text(session, "user_message_chunk") == "", "the editor shows its own prompt"


async def test_a_tool_call_goes_from_pending_to_completed_with_its_file_and_diff(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        session = await editor.new(folder)
        await editor.say(session, use("write_file", path="a.txt", content="one\n"))
        await editor.say(session, use("edit_file", path="a.txt", old="one", new="two"))
        calls = [update for update in editor.shown(session) if update["sessionUpdate"].startswith("tool_call")]

    start, running, ended = calls[3:]
    assert (folder / "a.txt").read_text() == "two\n"
    assert (start["kind"], start["status"], start["title"]) == ("edit", "pending", "edit_file a.txt")
    assert start["locations"] == [{"path": str(folder / "a.txt")}]
    diff = {"type": "diff", "path": str(folder / "a.txt"), "oldText": "one", "newText": "two"}
    assert start["content"] == [diff]
    assert start["rawInput"] == {"path": "a.txt", "old": "one", "new": "two"}
    assert (running["status"], running["toolCallId"]) == ("in_progress", start["toolCallId"])
    assert (ended["status"], ended["content"][0]) == ("completed", diff)
    assert ended["rawOutput"]["outcome"] == "ok"


async def test_the_files_of_a_call_have_absolute_paths(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        session = await editor.new(folder)
        await editor.say(session, use("read_file", path="~/no-such-file"))
        await editor.say(session, use("read_file", path="~nobody-here/x"))
        calls = [update for update in editor.shown(session) if update["sessionUpdate"] == "tool_call"]

    assert [call.get("locations") for call in calls] == [[{"path": str(Path("~/no-such-file").expanduser())}], None]


async def test_the_output_of_a_command_and_a_failure_are_shown(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        session = await editor.new(folder)
        await editor.say(session, use("terminal", command="echo seen; pwd"))
        await editor.say(session, use("read_file", path="missing.txt"))
        ended = [update for update in editor.shown(session) if update.get("status") in ("completed", "failed")]

    assert [update["status"] for update in ended] == ["completed", "failed"]
    assert f"seen\n{folder}" in ended[0]["content"][0]["content"]["text"]
    assert "missing.txt" in ended[1]["content"][0]["content"]["text"]


async def test_the_output_of_a_command_is_shown_while_it_runs(home: Path, folder: Path) -> None:
    command = "echo begun; until [ -e flag ]; do sleep 0.05; done; echo over"
    async with editing(home) as editor:
        session = await editor.new(folder)
        turn = asyncio.create_task(editor.say(session, use("terminal", command=command)))

        def newest() -> list[str]:
            running = [update for _, update in editor.updates if update.get("status") == "in_progress"]
            return [update["content"][0]["content"]["text"] for update in running if update.get("content")]

        await editor.wait_for(lambda: newest() == ["begun\n"])
        (folder / "flag").touch()
        await turn
        [ended] = [update for update in editor.shown(session) if update.get("status") == "completed"]

    assert ended["content"][0]["content"]["text"].startswith("begun\nover\n")


async def test_a_plan_is_shown_when_it_changes_and_when_the_session_is_opened(home: Path, folder: Path) -> None:
    items = [{"content": "Dig", "status": "completed"}, {"content": "Plant", "status": "in_progress"}]
    entries = [{**item, "priority": "medium"} for item in items]
    async with editing(home) as editor:
        session = await editor.new(folder)
        await editor.say(session, use("todo", items=items))
        plans = [update["entries"] for update in editor.shown(session) if update["sessionUpdate"] == "plan"]
    async with editing(home) as other:
        await other.connection.resume_session(cwd=str(folder), session_id=session, mcp_servers=[])
        resumed = other.shown(session)

    assert plans == [entries]
    assert [update["sessionUpdate"] for update in resumed] == ["plan"]
    assert resumed[0]["entries"] == entries


async def test_commands_are_listed_and_run(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        session = await editor.new(folder)
        await editor.say(session, "Hello")
        await editor.say(session, "/title Garden")
        await editor.say(session, "/status")
        await editor.say(session, "/nosuch")
        await editor.say(session, "/resume hf-123456")
        listed = [u for _, u in editor.updates if u["sessionUpdate"] == "available_commands_update"]
        titles = [u["title"] for _, u in editor.updates if u["sessionUpdate"] == "session_info_update"]
        text = editor.text(session)
        stop = await editor.say(session, "/retry")

    names = {command["name"] for command in listed[0]["availableCommands"]}
    assert {"compact", "undo", "why", "model"} <= names
    assert not {"quit", "resume", "new"} & names
    assert titles == ["Garden"]
    assert session in text
    assert "unknown command /nosuch" in text
    assert stop == "end_turn"
    assert editor.text(session).endswith("You said: Hello")


async def test_own_commands_and_skills_are_listed_and_run(home: Path, folder: Path) -> None:
    (home / "commands").mkdir()
    (home / "commands" / "review.md").write_text("---\nargument-hint: FILE\n---\nReview $ARGUMENTS.")
    skill = folder / ".agents" / "skills" / "deploy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: deploy\ndescription: Deploys it\n---\nRun it.")
    async with editing(home) as editor:
        session = await editor.new(folder)
        await editor.say(session, "/review a.py")
        [listed] = [u for _, u in editor.updates if u["sessionUpdate"] == "available_commands_update"]

    found = {command["name"]: command for command in listed["availableCommands"]}
    assert found["review"]["input"] == {"hint": "FILE"}
    assert found["deploy"]["description"] == "Deploys it"
    assert "You said: Review a.py." in editor.text(session)


async def test_a_command_whose_argument_is_a_mentioned_file_is_run(home: Path, folder: Path) -> None:
    (home / "commands").mkdir()
    (home / "commands" / "review.md").write_text("Review $ARGUMENTS now.")
    blocks = [helpers.text_block("/review "), helpers.resource_link_block("a.py", "file:///p/a.py")]
    async with editing(home) as editor:
        session = await editor.new(folder)
        await editor.connection.prompt(session_id=session, prompt=blocks)

    assert "You said: Review [a.py](file:///p/a.py) now." in editor.text(session)


async def test_a_command_can_be_cancelled(home: Path, folder: Path) -> None:
    script = home.parent / "script.json"
    script.write_text(json.dumps({"steps": [{"hang": True}]}))
    with (home / "config.toml").open("a") as file:
        file.write(f'[context]\nsummary_model = "scripted:{script}"\n')
    async with editing(home) as editor:
        session = await editor.new(folder)
        for number in range(3):
            await editor.say(session, f"{number} " + "rain and roses " * 500)
        command = asyncio.create_task(editor.say(session, "/compact"))
        await asyncio.sleep(0)
        await editor.connection.cancel(session_id=session)

        assert await command == "cancelled"
        assert await editor.say(session, "again") == "end_turn"
    assert "compacted" not in editor.text(session)


async def test_a_change_of_the_model_is_shown_in_the_menu(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        session = await editor.new(folder)
        await editor.say(session, "/model scripted:echo")
        await editor.say(session, "Hello")
        changes = [u["configOptions"][0] for _, u in editor.updates if u["sessionUpdate"] == "config_option_update"]

    assert [option["currentValue"] for option in changes] == ["scripted:echo"]


async def test_the_model_is_chosen_from_a_menu(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        response = await editor.connection.new_session(cwd=str(folder), mcp_servers=[])
        [option] = response.config_options or []
        changed = await editor.connection.set_config_option(
            config_id="model", session_id=response.session_id, value="scripted:echo"
        )
        await editor.say(response.session_id, use("terminal", command="echo no"))
        with pytest.raises(Exception, match="no option"):
            await editor.connection.set_config_option(config_id="x", session_id=response.session_id, value="y")

    assert (option.id, option.category, option.current_value) == ("model", "model", "scripted:tools")
    assert changed is not None and changed.config_options[0].current_value == "scripted:echo"
    assert "You said: use tool terminal" in editor.text(response.session_id)


async def test_the_permission_mode_is_set_and_shown_wherever_it_is_changed(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        response = await editor.connection.new_session(cwd=str(folder), mcp_servers=[])
        session = response.session_id
        await editor.connection.set_session_mode(session_id=session, mode_id="plan")
        await editor.say(session, use("write_file", path="a.txt", content="x"))
        written = (folder / "a.txt").exists()
        await editor.say(session, "/mode edits")
        await editor.say(session, use("write_file", path="a.txt", content="x"))
        with pytest.raises(Exception, match="unknown permission mode"):
            await editor.connection.set_session_mode(session_id=session, mode_id="yolo")
        changes = [u["currentModeId"] for _, u in editor.updates if u["sessionUpdate"] == "current_mode_update"]

    assert response.modes is not None
    assert response.modes.current_mode_id == "edits"
    assert [mode.id for mode in response.modes.available_modes] == ["plan", "ask", "edits", "trusted"]
    assert not written and (folder / "a.txt").exists()
    assert changes == ["plan", "edits"]


async def test_sessions_are_listed_by_directory_and_forked(home: Path, folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "other"
    elsewhere.mkdir()
    async with editing(home) as editor:
        one, two = await editor.new(folder), await editor.new(elsewhere)
        await editor.say(one, "Hello")
        forked = (await editor.connection.fork_session(cwd=str(folder), session_id=one)).session_id
        await editor.say(forked, "In the fork")
        here = await editor.connection.list_sessions(cwd=str(folder))
        everywhere = await editor.connection.list_sessions()
        await editor.load(folder, forked)

    assert {found.session_id for found in here.sessions} == {one, forked}
    assert {found.session_id for found in everywhere.sessions} == {one, two, forked}
    assert {found.cwd for found in here.sessions} == {str(folder)}
    assert editor.text(forked, "user_message_chunk") == "HelloIn the fork"


async def test_several_sessions_run_at_once(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        names = [await editor.new(folder) for _ in range(3)]
        await _all_say(editor, names)

        for number, name in enumerate(names):
            assert editor.text(name) == f"You said: number {number}"


async def _all_say(editor: Editor, names: list[str]) -> None:
    import asyncio

    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(names):
            group.create_task(editor.say(name, f"number {number}"))
