"""Background processes of a killed agent: they continue, and the next agent finds them with all their output."""

import json
from pathlib import Path

import psutil
import pytest

from tests import sampling
from tests.cli.conftest import ENVIRONMENT
from tests.crash.programs import Process, command, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]
ROUNDS = max(2, sampling.ROUNDS // 10)
LINES = 20_000


def script(home: Path, *steps: dict[str, object]) -> str:
    home.mkdir(exist_ok=True)
    (home / "script.json").write_text(json.dumps({"steps": steps}))
    return f"scripted:{home / 'script.json'}"


def background(text: str) -> dict[str, object]:
    return {"name": "terminal", "arguments": {"command": text, "background": True}}


class Agent(Process):
    """`holdfast` as a separate process."""

    def __init__(self, home: Path, model: str, *words: str) -> None:
        variables = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        line = ["env", "-i", *variables, f"HOLDFAST_MODEL={model}", command("say")[0], "-m", "holdfast"]
        super().__init__(*line, "--home", str(home), *words)

    @classmethod
    def asked(cls, home: Path, *words: str) -> dict:
        with cls(home, "scripted:echo", *words, "--json") as agent:
            assert agent.wait() == 0, agent.stderr
            [document] = agent.lines()
            return document


@pytest.fixture
def home(tmp_path):
    yield tmp_path / "home"
    for process in psutil.process_iter():
        if _marker(process, tmp_path) is not None:
            process.kill()


def shims(home: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in (home / "processes").glob("*/keeper")]


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_promise_13_the_next_agent_finds_the_processes_of_a_killed_one(home, tmp_path, round_):
    build = f"cd {tmp_path}; seq 1 {LINES}; while [ ! -e go ]; do sleep 0.02; done; seq {LINES + 1} {2 * LINES}; exit 7"
    server = f"cd {tmp_path}; exec sleep 600"
    model = script(home, {"call": [background(build), background(server)]}, {"say": "Both run.", "hang": True})
    with Agent(home, model, "run", "Build it.") as agent:
        sign = "*/output-*" if round_ % 2 else "*/started"
        wait_until(lambda: len(list((home / "processes").glob(sign))) >= 2, "they were started")
        agent.kill()
    wait_until(lambda: not _is_being_started(home), "no start is under way")

    found = Agent.asked(home, "ps")["processes"]
    building, serving = sorted(found, key=lambda one: one["command"] == server)
    (tmp_path / "go").touch()
    wait_until((home / "processes" / building["id"] / "done").exists, "the build is over")
    after = {one["id"]: one for one in Agent.asked(home, "ps", "--all")["processes"]}
    output = Agent.asked(home, "ps", "log", building["id"], "--lines", str(3 * LINES))

    assert [one["state"] for one in found] == ["working", "working"]
    assert {one["pid"] for one in found} == {_shell(home, one["id"]) for one in found}
    assert (after[building["id"]]["state"], after[building["id"]]["exit_code"]) == ("gone", 7)
    assert output["output"] == "".join(f"{n}\n" for n in range(1, 2 * LINES + 1)), "not a line is missing"
    assert output["bytes_dropped"] == 0
    assert after[serving["id"]]["ended_at"] is None
    killed = Agent.asked(home, "ps", "kill", serving["id"])["processes"][0]
    assert (killed["exit_code"], killed["end_reason"]) == (-15, "stopped by the user (ended by signal 15)")
    wait_until(lambda: not any(psutil.pid_exists(one["pid"]) for one in shims(home)), "the shims are gone")


def _shell(home: Path, process_id: str) -> int:
    return json.loads((home / "processes" / process_id / "started").read_text())["pid"]


@pytest.mark.parametrize("stage", ["a store", "a folder", "a shim", "a program"])
def test_an_agent_killed_at_any_moment_of_a_start_leaves_no_unknown_process(home, tmp_path, stage):
    model = script(home, {"call": [background(f"cd {tmp_path}; exec sleep 600")]}, {"say": "Yes."})
    signs = {"a store": "holdfast.db", "a folder": "processes/*", "a shim": "processes/*/keeper"}
    with Agent(home, model, "run", "Go.") as agent:
        wait_until(lambda: any(home.glob(signs.get(stage, "processes/*/started"))), "it has come so far")
        agent.kill()
    wait_until(lambda: not _is_being_started(home), "no start is under way")

    listed = Agent.asked(home, "ps")["processes"]
    known = {one["id"] for one in listed if one["pid"] is not None}
    wait_until(lambda: _running(tmp_path) == known, "what runs is what is known")

    if stage == "a program":
        assert len(known) == 1
    if listed:
        Agent.asked(home, "ps", "kill", *(one["id"] for one in listed))
    assert not _running(tmp_path)


def _running(tmp_path: Path) -> set[str]:
    return {one for process in psutil.process_iter() if (one := _marker(process, tmp_path)) is not None}


def _marker(process: psutil.Process, tmp_path: Path) -> str | None:
    try:
        found = process.environ().get("HOLDFAST_PROCESS", "")
    except psutil.Error:
        return None
    return found if (tmp_path / "home" / "processes" / found).is_dir() and found else None


def _is_being_started(home: Path) -> bool:
    """Whether a shim runs that has not recorded its command yet."""
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if str(home) in " ".join(line) and "start" in line and not (Path(line[-1]) / "started").exists():
            return True
    return False


def test_the_next_turn_learns_how_a_process_ended_meanwhile(home, tmp_path):
    text = f"cd {tmp_path}; while [ ! -e go ]; do sleep 0.02; done; echo the very end; exit 3"
    model = script(home, {"call": [background(text)]}, {"say": "It runs."}, {"say": "I know."})
    with Agent(home, model, "run", "Start it.", "--key", "k") as agent:
        assert agent.wait() == 0, agent.stderr
    (tmp_path / "go").touch()
    [folder] = (home / "processes").glob("*")
    wait_until((folder / "done").exists, "it has ended")

    with Agent(home, model, "run", "And now?", "--key", "k", "--json") as agent:
        assert agent.wait() == 0, agent.stderr
        session_id = agent.lines()[0]["session_id"]

    shown = Agent.asked(home, "sessions", "show", session_id)
    assert [message["content"] for message in shown["messages"]][-1] == "I know."
    why = Agent.asked(home, "why", session_id)
    [ended] = [one for one in why["decisions"] if one["kind"] == "process_ended"]
    assert "exit code 3" in ended["what"] + ended["evidence"]
