"""A home, a backup, exports and settings of an earlier version work as they did; `make_sample` describes how they were made."""

import gzip
import hashlib
import hmac
import http.server
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import config, logs
from holdfast.cli.main import main
from holdfast.process_lookup import current_identity, get_start_time
from tests.migrations import interface, make_sample, sample

COMMAND = "trap 'cat message' USR1; echo serving; sleep 1000 & while true; do wait; done"


class Commands(sample.Program):
    """The commands of this version, in this process for speed."""

    def __init__(self, user: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(user)
        self._capsys = capsys

    def __call__(self, *args: str, code: int | None = 0) -> str:
        self._capsys.readouterr()
        ended = main(["--home", str(self.home), *args])
        said = self._capsys.readouterr()
        assert code in (None, ended), f"{args}: {ended}\n{said.out}\n{said.err}"
        return said.out


@pytest.fixture(params=sorted(sample.SAMPLES.iterdir()), ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def user(folder: Path, tmp_path: Path) -> Path:
    return sample.unpack(folder, tmp_path)


@pytest.fixture
def commands(user: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Commands]:
    yield Commands(user, capsys)
    logs.remove_handlers()


@pytest.fixture
def program(user: Path) -> sample.Program:
    return sample.Program(user)


@pytest.fixture
def expected(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress((folder / "expected.json.gz").read_bytes()))
    return found


def sql(home: Path, text: str, *values: object) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(home / "holdfast.db"))
    try:
        return connection.execute(text, values).fetchall()
    finally:
        connection.close()


def declare_dead(home: Path, expected: dict[str, Any]) -> str:
    """Make the killed worker one of this machine, where it is recognised as gone; returns its id."""
    [worker] = [one["id"] for one in expected["workers"] if one["ended_at"] is None]
    ours = current_identity()
    text = "UPDATE worker SET host = ?, boot = ?, pid = ?, process_started = '1' WHERE id = ?"
    sql(home, text, ours.host, ours.boot, ours.pid, worker)
    found: str = worker
    return found


def check_contains(now: Any, before: Any, where: str = "") -> None:
    """Everything old is present; new names do not matter."""
    if isinstance(before, dict):
        for name, value in before.items():
            assert name in now, f"{where} has no {name}"
            check_contains(now[name], value, f"{where} {name}")
    elif isinstance(before, list) and before and isinstance(before[0], dict):
        assert len(now) == len(before), where
        for number, value in enumerate(before):
            check_contains(now[number], value, f"{where} {number}")
    else:
        assert now == before, where


def titled(seen: dict[str, Any], title: str) -> str:
    [found] = [ref for ref, one in seen["sessions"].items() if one["title"] == title]
    return found


# the store


def test_a_user_sees_in_the_store_what_the_earlier_version_showed(commands: Commands, expected: dict[str, Any]) -> None:
    check_contains(sample.observe(commands), expected)

    assert expected["verify"]["ok"]


@pytest.mark.parametrize(
    "title", ["Rivers", "A fork", "A compacted session", "A compaction taken back", "Ended", "A deadly turn", "A chat"]
)
def test_a_session_of_the_store_can_be_continued(commands: Commands, expected: dict[str, Any], title: str) -> None:
    ref = titled(expected, title)
    before = expected["messages"][ref]
    reply = commands.json("run", "--no-stdin", "--session", ref, "--model", "scripted:tools", "And now?")

    after = commands.json("sessions", "show", ref)
    assert reply["text"] == "You said: And now?"
    assert after["messages"][: len(before)] == before
    assert [one["content"] for one in after["messages"][len(before) :]] == ["And now?", "You said: And now?"]
    assert commands.json("sessions", "verify")["ok"]


@pytest.mark.process
def test_a_batch_of_the_earlier_version_does_not_run_again(program: sample.Program, folder: Path) -> None:
    done = program.json("batch", "prompts.jsonl", "--out", "again.jsonl")

    assert (done["prompts"], done["finished_before"]) == (2, 2)
    assert (program.home.parent / "again.jsonl").read_text() == (folder / "batch.results.jsonl").read_text()


@pytest.mark.process
def test_turns_of_a_dead_worker_are_recovered(program: sample.Program, user: Path, expected: dict[str, Any]) -> None:
    declare_dead(program.home, expected)
    for name in ("slow", "stuck"):
        (user / f"{name}.json").write_text(json.dumps({"steps": [{"say": "The end."}]}))
    program("questions", "answer", expected["questions"][0]["id"], "no", "not today")
    program("janitor", "--once")

    stats = program.json("sessions", "stats")
    said = {ref: program.json("sessions", "show", ref)["messages"] for ref in expected["sessions"]}
    command = said[titled(expected, "Killed while a command ran")]
    story = said[titled(expected, "Killed while it spoke")]
    asked = said[titled(expected, "Approvals")]
    assert (stats["leaked"], program.json("sessions", "verify")["ok"]) == (0, True)
    assert [one["outcome"] for one in command if one["role"] == "tool"] == ["unknown"]
    assert [one["content"] for one in command if one["role"] == "user"][1:] == ["Queued as well", "Queued behind it"]
    assert command[-1]["content"] == "You said: Queued behind it"
    assert [one["content"] for one in story if not one["partial"]] == ["Tell a story", "The end."]
    assert [one["outcome"] for one in asked if one["role"] == "tool"][-1] == "denied"
    assert sql(program.home, "SELECT count(*) FROM slot WHERE state = 'running'") == [(0,)]


def form(text: object) -> object:
    """The type of a value; for JSON the types inside it."""
    if isinstance(text, str) and text[:1] in ("{", "["):
        return form(json.loads(text))
    if isinstance(text, dict):
        return {name: form(value) for name, value in text.items() if name != "millis"}  # left out where it is 0
    return [form(one) for one in text] if isinstance(text, list) else type(text).__name__


def without_new_fields(now: Any, then: Any) -> Any:
    """The form of an event without fields that the earlier version does not know: it ignores them."""
    if isinstance(now, dict) and isinstance(then, dict):
        return {name: without_new_fields(value, then[name]) for name, value in now.items() if name in then}
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [without_new_fields(*pair) for pair in zip(now, then, strict=True)]
    return now


def test_events_of_a_turn_have_the_same_form_as_before(commands: Commands, expected: dict[str, Any]) -> None:
    """So that a worker of the earlier version on the same store understands it."""
    ref = titled(expected, "Rivers")
    events = "SELECT kind, body FROM event WHERE session_id = ? AND seq {} ORDER BY seq"
    turn = sql(commands.home, events.format("BETWEEN 6 AND 12"), ref)
    workers = "SELECT * FROM worker WHERE kind = 'run' ORDER BY started_at"
    session = "SELECT * FROM session WHERE id = ?"
    before = sql(commands.home, workers), sql(commands.home, session, ref)
    said = 'use tool write_file {"path": "rivers.txt", "content": "Elbe"}'
    commands("run", "--no-stdin", "--session", ref, "--model", "scripted:tools", said)

    new = sql(commands.home, events.format(f"> {expected['sessions'][ref]['seq']}"), ref)
    assert [kind for kind, _ in new] == [kind for kind, _ in turn]
    for now, then in zip(new, turn, strict=True):
        assert without_new_fields(form(list(now)), form(list(then))) == form(list(then))
    assert form(list(sql(commands.home, workers)[-1])) == form(list(before[0][0]))
    after, known = sql(commands.home, session, ref)[0], before[1][0]
    assert [type(value) for value in after[: len(known)]] == [type(value) for value in known]


class Bridge(http.server.BaseHTTPRequestHandler):
    """The other side of the bridge: it accepts every message."""

    taken: queue.Queue[dict[str, Any]]

    def do_POST(self) -> None:
        self.taken.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def bridge() -> Iterator[tuple[int, queue.Queue[dict[str, Any]]]]:
    """The port at which the bridge takes messages, and the messages."""
    taken: queue.Queue[dict[str, Any]] = queue.Queue()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Taking", (Bridge,), {"taken": taken})) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1], taken
        server.shutdown()
        thread.join()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def post(url: str, body: dict[str, Any], **headers: str) -> Any:
    given = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), given), timeout=30) as answer:
        return json.loads(answer.read())


@pytest.mark.process
def test_a_server_works_with_the_old_home(
    program: sample.Program, user: Path, expected: dict[str, Any], bridge: tuple[int, queue.Queue[dict[str, Any]]]
) -> None:
    out, taken = bridge
    api, into = free_port(), free_port()
    text = (program.home / "config.toml").read_text()
    for before, now in ((make_sample.API, api), (make_sample.BRIDGE, into), (make_sample.PLATFORM, out)):
        text = text.replace(str(before), str(now))
    (program.home / "config.toml").write_text(text)
    declare_dead(program.home, expected)

    def send(message: str, words: str) -> None:
        body = {"chat": "ada", "message": message, "person": "ada", "name": "Ada", "text": words}
        stamp = str(int(time.time()))
        signed = f"{stamp}.{json.dumps(body)}".encode()
        signature = hmac.new(make_sample.SECRET.encode(), signed, hashlib.sha256).hexdigest()
        post(f"http://127.0.0.1:{into}/", body, X_Holdfast_Timestamp=stamp, X_Holdfast_Signature=f"v1={signature}")

    line = [sys.executable, "-m", "holdfast", "serve"]
    with subprocess.Popen(line, env=program.environment, cwd=user, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            delivered = [taken.get()["text"]]
            send("m1", "Hello from the bridge")  # as the platform has sent it before
            send("m3", "Is it still you?")
            while delivered[-1] != "You said: Is it still you?":
                delivered.append(taken.get()["text"])
            ref = titled(expected, "Rivers")
            url = f"http://127.0.0.1:{api}/v1/sessions/{ref}/turns"
            key = {"Authorization": f"Bearer {make_sample.KEY}", "Idempotency_Key": "first"}
            repeated = post(url, {"input": "Grüße 日本語 🙂"}, **key)
        finally:
            server.kill()

    [chat] = [one for one in expected["sessions"] if expected["sessions"][one]["channel"] == "bridge:ada"]
    said = [one["content"] for one in program.json("sessions", "show", chat)["messages"]]
    assert "You said: Nobody takes the reply" in delivered
    assert said[-2:] == ["Is it still you?", "You said: Is it still you?"]
    assert said.count("Hello from the bridge") == 1
    assert (repeated["state"], repeated["turn_id"]) == ("repeated", expected["messages"][ref][0]["turn_id"])
    assert program.json("sessions", "verify")["ok"]


# the backup and the exports


def test_a_backup_is_restored(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], expected: dict[str, Any]
) -> None:
    file = tmp_path / "backup.db"
    file.write_bytes(gzip.decompress((folder / "backup.db.gz").read_bytes()))
    commands = Commands(tmp_path, capsys)
    commands("restore", str(file))

    listed = commands.json("sessions", "list", "--all")["sessions"]
    assert by_id(listed) == by_id({**one, "mode": "edits", "goal_state": ""} for one in expected["sessions"].values())
    assert {one["id"]: commands.json("sessions", "show", one["id"])["messages"] for one in listed} == expected[
        "messages"
    ]
    assert commands.json("sessions", "verify") == expected["verify"]
    logs.remove_handlers()


def by_id(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Sessions without their holders, which a restore removes, and without what the earlier version did not show."""
    left_out = ("state", "worker_id", "last_heartbeat_at", "delegated_by", "children")
    return {one["id"]: {name: value for name, value in one.items() if name not in left_out} for one in rows}


@pytest.fixture
def exports(folder: Path, tmp_path: Path) -> Path:
    with tarfile.open(folder / "exports.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "exports"


def test_exports_are_imported_with_the_same_hashes(
    exports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], expected: dict[str, Any]
) -> None:
    commands = Commands(tmp_path / "new", capsys)
    files = commands.json("sessions", "import", *map(str, sorted(exports.glob("*.jsonl"))))["files"]

    heads = {ref: (one["seq"], one["hash"]) for ref, one in expected["sessions"].items()}
    assert {one["outcome"] for one in files} == {"new"}
    assert {one["session_id"]: (one["seq"], one["hash"]) for one in files} == heads
    assert commands.json("sessions", "verify")["ok"]
    assert {ref: commands.json("sessions", "show", ref)["messages"] for ref in heads} == expected["messages"]
    again = commands.json("sessions", "import", *map(str, sorted(exports.glob("*.jsonl"))))["files"]
    assert {one["outcome"] for one in again} == {"same"}
    logs.remove_handlers()


def test_an_export_is_written_as_the_earlier_version_wrote_it(
    commands: Commands, exports: Path, tmp_path: Path
) -> None:
    commands("sessions", "export", "--all", "--out", str(tmp_path / "ours"))

    ours = {file.name: file.read_text() for file in (tmp_path / "ours").iterdir()}
    assert ours == {file.name: file.read_text() for file in exports.glob("*.jsonl")}


# the settings


@pytest.mark.process
def test_every_setting_has_the_value_of_the_file(program: sample.Program, folder: Path) -> None:
    check_contains(sample.read_settings(program, folder), json.loads((folder / "settings.json").read_text()))


def test_secrets_and_options_of_platforms_have_the_values_of_the_file(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "config.toml", tmp_path)
    settings = config.read({"SAMPLE_KEY": "anthropic-sample-key"}, tmp_path)

    telegram = settings.gateway.platforms["telegram"]
    assert {
        "openai-sample-key",
        "anthropic-sample-key",
        "sample-key-of-the-api",
        "telegram-sample-token",
        "bridge-sample-secret",
        "peer-sample-key",
        "mcp-sample-token",
        "mcp-sample-header",
    } <= set(settings.secrets())
    assert (telegram["allow"], telegram["chat_approvers"]) == ([4711], {"-100123": ["42"]})


# the interface


@pytest.mark.process
def test_every_name_of_the_interface_is_still_there(folder: Path, tmp_path: Path) -> None:
    before = json.loads(gzip.decompress((folder / "interface.json.gz").read_bytes()))
    now = interface.describe(tmp_path)

    check_contains(now, before)


# background processes


@pytest.fixture
def kept(program: sample.Program, folder: Path, user: Path, expected: dict[str, Any]) -> Iterator[Path]:
    """The folder of a process that runs here, started and kept by the program of the earlier version."""
    [ref] = [one["id"] for one in expected["processes"] if one["command"] == "echo serving; sleep 100000"]
    place = program.home / "processes" / ref
    keeper = user / "old_keeper.py"
    keeper.write_bytes(gzip.decompress((folder / "keeper.py.gz").read_bytes()))
    spec = json.loads((place / "spec.json").read_text())
    for name in ("started", "keeper", "lock", "output-000000000000000"):
        (place / name).unlink()
    (place / "spec.json").write_text(json.dumps(spec | {"workdir": str(user), "command": COMMAND}))
    command = [sys.executable, "-I", "-S", str(keeper), "start", str(place)]
    subprocess.run(command, input=json.dumps({"PATH": os.environ["PATH"]}).encode(), env={}, check=True)
    keeper.unlink()  # as an upgrade of the package does
    leader, ours = json.loads((place / "started").read_text()), current_identity()
    row = (ours.host, ours.boot, str(place), leader["pid"], leader["started"], ref)
    text = "UPDATE process SET host = ?, boot = ?, folder = ?, pid = ?, process_started = ? WHERE id = ?"
    sql(program.home, text, *row)
    yield place
    program("ps", "kill", ref, code=None)


def shown(program: sample.Program, place: Path) -> dict[str, Any]:
    [found] = [one for one in program.json("ps", "--all")["processes"] if one["id"] == place.name]
    return dict(found)


def log_with(program: sample.Program, place: Path, text: str) -> str:
    """The output of the process, once the text is in it."""
    while text not in (found := str(program.json("ps", "log", place.name)["output"])):
        time.sleep(0.05)
    return found


def make_it_print(program: sample.Program, place: Path, text: str) -> None:
    """Make the process print a text."""
    log_with(program, place, "serving")
    (place.parents[2] / "message").write_text(text)
    os.kill(json.loads((place / "started").read_text())["pid"], signal.SIGUSR1)


@pytest.mark.process
def test_a_process_of_the_earlier_version_is_known_and_ended(program: sample.Program, kept: Path) -> None:
    leader = json.loads((kept / "started").read_text())
    before = shown(program, kept)
    make_it_print(program, kept, "hello\n")

    assert before["pid"] == leader["pid"]
    assert before["ended_at"] is None
    assert log_with(program, kept, "hello") == "serving\nhello\n"
    program("ps", "kill", kept.name)
    after = shown(program, kept)
    assert after["ended_at"] is not None
    assert after["exit_code"] == -15
    assert get_start_time(leader["pid"]) is None
    assert (kept / "done").exists()


@pytest.mark.process
def test_a_process_whose_earlier_shim_was_killed_is_kept(program: sample.Program, kept: Path) -> None:
    old = json.loads((kept / "keeper").read_text())
    os.kill(old["pid"], 9)
    while get_start_time(old["pid"]) is not None:
        time.sleep(0.01)
    before = shown(program, kept)
    make_it_print(program, kept, "hello\n")

    new = json.loads((kept / "keeper").read_text())
    assert before["ended_at"] is None
    assert new["pid"] != old["pid"]
    assert log_with(program, kept, "hello") == "serving\nhello\n"
    program("ps", "kill", kept.name)
    assert shown(program, kept)["ended_at"] is not None
    while get_start_time(new["pid"]) is not None:
        time.sleep(0.01)


@pytest.mark.process
def test_a_command_that_outlived_its_worker_becomes_a_process(
    program: sample.Program, user: Path, expected: dict[str, Any]
) -> None:
    ref = titled(expected, "Killed while a command ran")
    [record] = (program.home / "processes" / "foreground").iterdir()
    command = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    ours, began = current_identity(), get_start_time(command.pid)
    stored = json.loads(record.read_text())
    stored["program"] |= {"host": ours.host, "boot": ours.boot, "pid": command.pid, "process_started": began}
    record.write_text(json.dumps(stored))
    worker = declare_dead(program.home, expected)
    sql(
        program.home,
        "UPDATE session SET lease_worker = NULL, open_turn = NULL WHERE lease_worker = ? AND id <> ?",
        worker,
        ref,
    )
    try:
        program("janitor", "--once")
        [process] = [one for one in program.json("ps")["processes"] if one["session_id"] == ref]
        assert (process["pid"], process["command"]) == (command.pid, stored["command"])
        program("ps", "kill", process["id"])
        assert command.wait() == -15
    finally:
        command.kill()
        command.wait()
