"""`holdfast run` and `holdfast chat`, with the scripted model."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import ENVIRONMENT, Holdfast

pytestmark = pytest.mark.process

ECHO = {**ENVIRONMENT, "HOLDFAST_MODEL": "scripted:echo"}
FIELDS = {"session_id", "turn_id", "epoch", "compacted", "seq", "text", "usage"}


def test_the_reply_is_printed_as_plain_text_to_a_pipe(holdfast: Holdfast) -> None:
    ran = holdfast.process("run", "Hello there", env=ECHO)

    assert (ran.code, ran.out, ran.err) == (0, "You said: Hello there\n", "")


def test_the_json_document_has_the_fields_of_the_contract(holdfast: Holdfast) -> None:
    ran = holdfast.process("run", "Hello", "--json", env=ECHO)

    assert set(ran.json) == FIELDS
    assert ran.json["text"] == "You said: Hello"
    assert ran.json["usage"]["tokens_out"] > 0


def test_a_key_finds_the_same_session_each_time(holdfast: Holdfast) -> None:
    first = holdfast.process("run", "One", "--key", "notes", "--json", env=ECHO).json
    second = holdfast.process("run", "Two", "--key", "notes", "--json", env=ECHO).json

    assert first["session_id"] == second["session_id"]
    assert second["seq"] > first["seq"]
    shown = holdfast("sessions", "show", first["session_id"], "--json").json
    assert [message["content"] for message in shown["messages"] if message["role"] == "user"] == ["One", "Two"]


def test_a_session_is_continued_by_id_prefix_and_title(holdfast: Holdfast) -> None:
    first = holdfast.process("run", "One", "--title", "My plan", "--json", env=ECHO).json["session_id"]

    for ref in (first, first[:18], "My plan"):
        assert holdfast.process("run", "More", "--session", ref, "--json", env=ECHO).json["session_id"] == first


def test_an_ended_session_is_reopened_by_a_new_message(holdfast: Holdfast) -> None:
    first = holdfast.process("run", "One", "--json", env=ECHO).json["session_id"]
    holdfast("sessions", "end", first)

    holdfast.process("run", "Two", "--session", first, env=ECHO)

    shown = holdfast("sessions", "show", first, "--events", "--json").json
    assert [event["kind"] for event in shown["events"]].count("reopened") == 1
    assert shown["end_reason"] == "cli_close", "and is closed in order again"


def test_standard_input_is_the_prompt_for_a_dash(holdfast: Holdfast) -> None:
    assert holdfast.process("run", "-", env=ECHO, input=b"from a pipe").out == "You said: from a pipe\n"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["run"], 2, "PROMPT"),
        (["run", "  "], 2, "empty"),
        (["run", "x", "--session", "hf-00000000000000000000"], 3, "no session"),
        (["run", "x", "--session", "a", "--key", "b"], 2, "cannot be used together"),
        (["run", "x", "--model", "nonsense"], 2, "provider:name"),
        (["chat", "--resume", "nothing"], 3, "no session"),
    ],
)
def test_invalid_input_gets_one_sentence_and_the_right_status(
    holdfast: Holdfast, args: list[str], code: int, said: str
) -> None:
    ran = holdfast.process(*args, env=ECHO)

    assert ran.code == code
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_failed_model_is_reported_and_the_exit_status_says_so(holdfast: Holdfast, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"steps": [{"fail": "refused", "message": "not today"}]}))

    ran = holdfast.process("run", "Hello", env={**ENVIRONMENT, "HOLDFAST_MODEL": f"scripted:{script}"})
    as_json = holdfast.process("run", "Hello", "--json", env={**ENVIRONMENT, "HOLDFAST_MODEL": f"scripted:{script}"})

    assert (ran.code, ran.out) == (1, "")
    assert "not today" in ran.err
    assert as_json.json["error"]["code"] == "refused"


def test_a_tool_runs_in_the_directory_of_the_command(holdfast: Holdfast, tmp_path: Path) -> None:
    env = {**ENVIRONMENT, "HOLDFAST_MODEL": "scripted:tools"}

    ran = holdfast.process("run", 'use tool terminal {"command": "pwd > here"}', env=env, cwd=tmp_path)

    assert ran.code == 0
    assert (tmp_path / "here").read_text().strip() == str(tmp_path)


def test_a_dangerous_command_is_denied_where_no_user_can_answer(holdfast: Holdfast, tmp_path: Path) -> None:
    holdfast.home.mkdir(parents=True)
    (holdfast.home / "config.toml").write_text("[agent]\napproval_seconds = 0\n")
    (tmp_path / "precious").mkdir()
    env = {**ENVIRONMENT, "HOLDFAST_MODEL": "scripted:tools"}

    ran = holdfast.process("run", 'use tool terminal {"command": "rm -rf precious"}', "--json", env=env, cwd=tmp_path)

    assert (tmp_path / "precious").exists()
    shown = holdfast("sessions", "show", ran.json["session_id"], "--json").json
    [result] = [message for message in shown["messages"] if message["role"] == "tool"]
    assert "Not run" in json.dumps(result["content"])


def test_a_read_only_home_reports_that_nothing_is_saved_and_exits_5(holdfast: Holdfast, tmp_path: Path) -> None:
    place = tmp_path / "ro"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(place)], check=True)
    try:
        ran = Holdfast(place / "home", holdfast._capsys).process("run", "Hello", env=ECHO)
    finally:
        subprocess.run(["umount", str(place)], check=True)

    assert ran.code == 5
    assert ran.out == ""
    assert "cannot" in ran.err


def test_a_chat_keeps_its_messages_and_can_be_resumed(holdfast: Holdfast) -> None:
    first = holdfast.process("chat", env=ECHO, input=b"Hello\nHow are you?\n")
    session_id = holdfast("sessions", "list", "--json").json["sessions"][0]["id"]
    again = holdfast.process("chat", "--resume", session_id, env=ECHO, input=b"")

    assert "You said: Hello" in first.out
    assert f"--resume {session_id}" in first.out
    assert "4 messages" in again.out
    assert "How are you?" in again.out
    shown = holdfast("sessions", "show", session_id, "--json").json
    assert (shown["state"], shown["end_reason"], shown["message_count"]) == ("ended", "cli_close", 4)


def test_a_chat_without_a_message_leaves_no_session(holdfast: Holdfast) -> None:
    holdfast.process("chat", env=ECHO, input=b"")

    assert holdfast("sessions", "list", "--json").json["sessions"] == []
