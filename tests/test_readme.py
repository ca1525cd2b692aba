"""The commands in the README work as written."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.crash.programs import Process

pytestmark = pytest.mark.crash
README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
WORDS = [f"word{n}" for n in range(400)]


def section(title: str) -> str:
    return re.split(r"^##+ ", README.partition(f"# {title}\n")[2], flags=re.MULTILINE)[0]


def block(language: str, title: str) -> str:
    [code] = re.findall(rf"```{language}\n(.*?)```", section(title), flags=re.DOTALL)
    return code


def test_promise_2_the_demo_kills_the_chat_and_resumes_it(tmp_path: Path) -> None:
    story, kill, resume, yes = re.findall(r"^\d\. [^`]*`(.+?)`", section("A 20-second demo"), flags=re.MULTILINE)
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"steps": [{"say": " ".join(WORDS), "delay_seconds": 0.05}]}))
    home, model = tmp_path / "home", f"scripted:{script}"
    program, *options = resume.split()
    assert program == ".venv/bin/holdfast"

    with Terminal(home, model=model, env={"SHELL": "/bin/bash"}) as chat:
        chat.ready().say(story)
        chat.see(WORDS[20])
        shown = re.findall(r"word\d+", chat.text)
        chat.say(kill)
        assert chat.wait() == -9

    with Terminal(home, *options, model=model) as chat:
        chat.see("Resume it?")
        chat.see(shown[-1])
        assert set(shown) <= set(re.findall(r"word\d+", chat.text))
        chat.say(yes)
        chat.see("[cut off here]")


def test_promise_19_curl_starts_a_session_that_the_python_program_continues(tmp_path: Path) -> None:
    home = tmp_path / ".holdfast"
    home.mkdir()
    (home / "config.toml").write_text('model = "scripted:echo"\n')
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}

    def run(*command: str) -> str:
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=True, text=True).stdout

    with Process(sys.executable, "-m", "holdfast", "--home", str(home), "serve", "--port", "0") as server:
        assert server.wait_for_output("Holdfast is listening on")
        [address] = re.findall(r"http://[\d.:]+", server.stdout)
        curl = block("sh", "Use it from a program").replace("http://127.0.0.1:8420", address)
        answer = json.loads(run("bash", "-c", curl))
        printed = run(sys.executable, "-c", block("python", "Use it from a program"))

    assert "What is the capital of France?" in answer["choices"][0]["message"]["content"]
    assert "And the capital of Italy?" in printed
    shown = run(sys.executable, "-m", "holdfast", "sessions", "show", answer["holdfast"]["session_id"])
    assert shown.index("capital of France?") < shown.index("capital of Italy?")
