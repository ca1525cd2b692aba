"""`holdfast run --output-format` and `holdfast -p`: a stream of JSON lines whose last one is the result, whatever happens."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ENVIRONMENT, Holdfast
from tests.cli.terminal import Terminal

pytestmark = pytest.mark.process
STREAM = ("--output-format", "stream-json")


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_the_stream_has_the_session_the_text_each_event_and_the_result(
    holdfast: Holdfast, scripted: Callable[..., str]
) -> None:
    call = {"name": "terminal", "arguments": {"command": "echo out"}}
    model = scripted({"think": "Hm.", "say": "I look.", "call": [call]}, {"say": "Done."})

    ran = holdfast.process("-p", "Look", "--model", model, *STREAM)

    found = lines(ran.out)
    assert ran.code == 0, ran.err
    assert [line["type"] for line in (found[0], found[-1])] == ["session", "result"]
    assert found[0]["model"] == model
    assert "".join(line["text"] for line in found if line["type"] == "text") == "I look.Done."
    assert [line["text"] for line in found if line["type"] == "reasoning"] == ["Hm."]
    events = [line for line in found if line["type"] == "event"]
    assert [event["kind"] for event in events][-4:] == ["tool_started", "tool_ended", "model_said", "turn_ended"]
    shown = holdfast("sessions", "show", found[0]["session_id"], "--events", "--json").json["events"]
    stored = {event["seq"]: (event["kind"], event["at"], event["body"]) for event in shown}
    assert all(stored[event["seq"]] == (event["kind"], event["at"], event["body"]) for event in events)
    result = found[-1]
    assert (result["text"], result["seq"]) == ("Done.", events[-1]["seq"])
    assert result["usage"]["tokens_in"] > 0 and "error" not in result


def test_a_failed_turn_ends_the_stream_with_its_error_and_status_1(
    holdfast: Holdfast, scripted: Callable[..., str]
) -> None:
    ran = holdfast.process("run", "Hello", "--model", scripted({"fail": "refused", "message": "not today"}), *STREAM)

    assert ran.code == 1
    assert lines(ran.out)[-1]["type"] == "result"
    assert lines(ran.out)[-1]["error"]["code"] == "refused"


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (("--session", "nowhere1"), 3, "not_found"),
        (("--model", "nonsense"), 2, "invalid"),
        (("--no-such-option",), 2, "invalid"),
    ],
)
def test_an_error_before_the_turn_is_a_result_too(
    holdfast: Holdfast, arguments: tuple[str, ...], status: int, code: str
) -> None:
    ran = holdfast("run", "Hello", *arguments, *STREAM)

    assert ran.code == status
    [result] = lines(ran.out)
    assert (result["type"], result["error"]["code"]) == ("result", code)
    assert json.loads(ran.err)["error"] == result["error"]


def test_an_interrupted_stream_ends_with_a_result_and_status_130(
    holdfast: Holdfast, scripted: Callable[..., str]
) -> None:
    command = holdfast.command("run", "Hello", "--model", scripted({"say": "Once", "hang": True}), *STREAM)
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        found = [json.loads(next(run.stdout))]
        while found[-1]["type"] != "text":
            found.append(json.loads(next(run.stdout)))
        run.send_signal(signal.SIGINT)
        found += lines(run.stdout.read())

    assert run.returncode == 130
    assert found[-1]["type"] == "result" and found[-1]["error"]


def test_the_format_json_is_the_same_as_json(holdfast: Holdfast) -> None:
    ran = holdfast.process("-p", "Hello", "--model", "scripted:echo", "--output-format", "json")

    assert ran.json["text"] == "You said: Hello"
    assert holdfast("run", "Hello", "--json", *STREAM).code == 2


def test_a_pipe_is_the_prompt_if_none_is_given(holdfast: Holdfast) -> None:
    ran = holdfast.process("-p", "--model", "scripted:echo", input=b"from a pipe")

    assert ran.out == "You said: from a pipe\n"


def test_a_prompt_opens_the_chat_with_it(home: Path) -> None:
    with Terminal(home, "tell me about lighthouses") as chat:
        chat.see("You said: tell me about lighthouses")
        chat.leave()
    with Terminal(home, "--continue", "and about buoys") as chat:
        chat.see("You said: tell me about lighthouses")
        chat.see("You said: and about buoys")
        chat.leave()


def test_run_on_a_terminal_needs_a_prompt(home: Path) -> None:
    with Terminal(home, "run", program=(sys.executable, "-m", "holdfast")) as run:
        run.see("Missing argument 'PROMPT'")
        assert run.wait() == 2
