"""The output of tools and background processes in the chat, while they run."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.terminal import ESCAPE, Terminal


def test_the_newest_output_of_a_tool_is_shown_while_it_runs_and_then_replaced_by_its_result(
    home: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    bar = r"printf '\033[31m10%%\r20%%\r'"
    command = f"seq 101 150; {bar}; until [ -e {flag} ]; do sleep 0.05; done; echo; echo over"
    with Terminal(home, model="scripted:tools") as chat:
        chat.ready().say(f"use tool terminal {json.dumps({'command': command})}")
        chat.see("147 148 149 150 20%")
        assert "146" not in chat.text
        flag.touch()
        chat.see("done:")
        assert "149" not in chat.text
        assert "over" in chat.text
        chat.leave()


def test_the_output_of_a_background_process_is_followed_until_esc_or_its_end(
    home: Path, tmp_path: Path, scripted: Callable[..., str]
) -> None:
    flag, end = tmp_path / "flag", tmp_path / "end"
    command = (
        f"echo first; until [ -e {flag} ]; do sleep 0.05; done; echo second; until [ -e {end} ]; do sleep 0.05; done"
    )
    call = {"name": "terminal", "arguments": {"command": command, "background": True}}
    with Terminal(home, model=scripted({"call": [call]}, {"say": "Started."})) as chat:
        chat.ready().say("Start it")
        chat.see("Started.")
        process = chat.match(r"started as process (\S+), pid")[1]
        chat.say(f"/ps {process[:-2]}")
        chat.see("running · Esc closes this first")
        flag.touch()
        chat.see("first second")
        chat.press(ESCAPE)
        chat.see_no("Esc closes this")
        chat.say(f"/ps {process}")
        chat.see("running · Esc closes this first second")
        end.touch()
        chat.see("exit code 0 first second")
        chat.see_no("Esc closes this")
        chat.say("/ps nosuch")
        chat.see("this session has no background process 'nosuch'")
        chat.leave()
