"""Makes the home that a version of Holdfast leaves behind when its machine fails: python -m tests.migrations.make_sample SRC DIR

SRC is the `src` folder of that version, DIR an empty folder in `samples/`. The program is used only through its commands
and its HTTP API, so that this script works with every version. It runs in a sandbox with its own host name, paths and
processes. Nothing is stopped cleanly: when everything is set up, the server is killed and the home is packed.
The same version then makes the backup, the exports and the expectations (`sample.observe`) from a copy of that home.

Run it once for a version, never again: a sample is a fact.
"""

import contextlib
import gzip
import hashlib
import hmac
import http.server
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.migrations import sample

USER = Path("/home/ada")
HOME = USER / ".holdfast"
SECRET = "a bridge needs a secret"
KEY = "a key of sixteen characters"
API, BRIDGE, PLATFORM = 8420, 8421, 8422
LIMIT_SECONDS = 90
CONFIG = f"""
model = "scripted:tools"
fallback_models = ["scripted:~/slow.json", "scripted:~/stuck.json", "scripted:~/deadly.json"]
log = "warning"

[api]
key = "{KEY}"
port = {API}

[agent]
approvals = "APPROVALS"
approval_seconds = 86400

[broker]
first_uid = 0

[terminal]
sandbox = "off"

[liveness]
heartbeat_seconds = 2
sweep_seconds = 1

[processes]
ttl_minutes = 600

[reset.channels."bridge:reset"]
mode = "idle"
idle_minutes = 1

[gateway]
home_channel = "bridge:ada"

[gateway.bridge]
kind = "webhook"
listen = "127.0.0.1:{BRIDGE}"
url = "http://127.0.0.1:{PLATFORM}/"
secret = "{SECRET}"
allow = ["ada"]
on_unknown = "hold"
keyed = false
"""
SCRIPTS: dict[str, dict[str, Any]] = {
    "slow": {"steps": [{"say": "A long story about a lighthouse. " * 20, "think": "Slowly.", "delay_seconds": 0.1}]},
    "stuck": {"steps": [{"say": "I begin.", "hang": True}]},
    "deadly": {"loop": True, "steps": [{"call": [{"name": "terminal", "arguments": {"command": "kill -9 $PPID"}}]}]},
}


def until(what: Callable[[], Any], name: str) -> Any:
    """Wait for a true answer, and return it."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{name} did not happen within {LIMIT_SECONDS} s")


class Platform(http.server.BaseHTTPRequestHandler):
    """The other side of the bridge. The chat decides what happens to a message."""

    delivered: list[str] = []

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status = {"away": 503, "refused": 403, "doubtful": 500}.get(message["chat"], 200)
        if status == 200:
            self.delivered.append(message["chat"])
        self.send_response(status)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


def holdfast(*args: str, given: str | None = None) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "holdfast", *args]
    return subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, cwd=USER, check=True).stdout


def call(method: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
    """The answer of the API."""
    given = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{API}{path}", data, given, method=method)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as e:
        raise RuntimeError(f"{method} {path}: {e.code} {e.read().decode()}") from e


def post_to_bridge(chat: str, message: str, text: str, *, person: str = "ada", raw: bytes | None = None) -> None:
    body = raw or json.dumps({"chat": chat, "message": message, "person": person, "name": "Ada", "text": text}).encode()
    stamp = str(int(time.time()))
    signature = hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    headers = {"x-holdfast-timestamp": stamp, "x-holdfast-signature": f"v1={signature}"}
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{BRIDGE}/", body, headers), timeout=30).close()


def session(title: str, model: str | None = None, **fields: str) -> str:
    found: str = call("POST", "/v1/sessions", {"title": title, "model": model, **fields})["id"]
    return found


def say(ref: str, text: str, **headers: str) -> str:
    found: str = call("POST", f"/v1/sessions/{ref}/turns", {"input": text}, **headers)["turn_id"]
    return found


def turn(ref: str, text: str, **headers: str) -> None:
    """Send a message and wait for the end of its turn."""
    turn_id = say(ref, text, **headers)
    until(
        lambda: call("GET", f"/v1/sessions/{ref}/turns/{turn_id}")["state"] not in ("running", "queued", "open"), text
    )


def tool(name: str, **arguments: object) -> str:
    return f"use tool {name} {json.dumps(arguments)}"


def question(ref: str) -> str:
    """The id of the open question of a session."""
    found: str = until(
        lambda: [one["id"] for one in call("GET", "/v1/questions")["questions"] if one["session_id"] == ref],
        "a question",
    )[0]
    return found


class Server:
    def __init__(self, approvals: str = "ask") -> None:
        (HOME / "config.toml").write_text(CONFIG.replace("APPROVALS", approvals))
        (HOME / "config.toml").chmod(0o600)
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "holdfast", "serve"], cwd=USER)
        until(self.answers, "the start of the server")

    def answers(self) -> bool:
        if self.process.poll() is not None:
            self.process = subprocess.Popen([sys.executable, "-m", "holdfast", "serve"], cwd=USER)
        try:
            return bool(call("GET", "/v1/idle"))
        except (urllib.error.URLError, ConnectionError):
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def fill() -> None:
    """Sessions in every state, and rows in every table that a user can fill."""
    (HOME / "work").mkdir(parents=True)
    for name, script in SCRIPTS.items():
        (USER / f"{name}.json").write_text(json.dumps(script))
    (USER / "prompts.jsonl").write_text('"Name a river"\n{"id": "second", "prompt": "Name a lake", "meta": {"n": 1}}\n')
    threading.Thread(
        target=http.server.ThreadingHTTPServer(("127.0.0.1", PLATFORM), Platform).serve_forever, daemon=True
    ).start()

    quarantine()
    server = Server()
    conversations()
    approvals()
    gateway()
    commands()
    left_in_mid_work()
    wait_for_the_rest()
    server.kill()


def quarantine() -> None:
    """A turn that kills every worker that runs it."""
    server = Server("allow")
    ref = session("A deadly turn", "scripted:~/deadly.json")
    with contextlib.suppress(OSError):  # the server may die before it answers
        say(ref, "Try it")

    def quarantined() -> bool:
        try:
            return server.answers() and call("GET", f"/v1/sessions/{ref}")["state"] == "quarantined"
        except OSError:
            return False

    until(quarantined, "the quarantine")
    server.stop()


def conversations() -> None:
    ref = session("Notes about rivers", key="rivers", system="You are a geographer.")
    turn(ref, "Grüße 日本語 🙂", idempotency_key="first")
    turn(ref, tool("write_file", path="rivers.txt", content="Elbe\nOder\n"))
    turn(ref, "\n".join((tool("read_file", path="rivers.txt"), tool("terminal", command="ls; false"))))
    call("PATCH", f"/v1/sessions/{ref}", {"pinned": True})
    fork = call("POST", f"/v1/sessions/{ref}/fork", {"title": "A fork"})["id"]
    turn(fork, "Only in the fork")
    call("POST", f"/v1/sessions/{ref}/fork", {"at": 5, "title": "A shorter fork"})

    ref = session("A compacted session")
    for number in range(10):
        turn(ref, f"Chapter {number}: " + f"the keeper of lighthouse {number} looks at the sea. " * 25)
    holdfast("sessions", "pin", ref, "--message", "3")
    call("POST", f"/v1/sessions/{ref}/compact", {"about": "lighthouses"})
    turn(ref, "What came before?")
    undone = call("POST", f"/v1/sessions/{ref}/fork", {"title": "A compaction taken back"})["id"]
    call("POST", f"/v1/sessions/{undone}/compact", {"undo": True})

    for title in ("In the trash", "Restored", "Ended", "Reopened"):
        turn(session(title), f"I am {title.lower()}")
    for title in ("In the trash", "Restored"):
        call("DELETE", f"/v1/sessions/{title.replace(' ', '%20')}")
    trashed = call("GET", "/v1/sessions?trash=true")["sessions"]
    call("POST", f"/v1/sessions/{next(one['id'] for one in trashed if one['title'] == 'Restored')}/restore")
    for title in ("Ended", "Reopened"):
        call("POST", f"/v1/sessions/{title}/end")
    call("POST", "/v1/sessions/Reopened/reopen")

    ref = session("Interrupted by its user", "scripted:~/stuck.json")
    turn_id = say(ref, "Begin")
    call("POST", f"/v1/sessions/{ref}/interrupt")
    until(lambda: call("GET", f"/v1/sessions/{ref}/turns/{turn_id}")["state"] == "interrupted", "the interruption")

    weather = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    said = [{"role": "user", "content": "Without a name"}]
    call("POST", "/v1/chat/completions", {"model": "holdfast", "messages": said})
    said = [{"role": "user", "content": tool("weather", place="Kiel")}]
    asked = {"model": "holdfast", "messages": said, "tools": [weather], "user": "ada"}
    call("POST", "/v1/chat/completions", asked, X_Session_Key="weather", Idempotency_Key="weather-1")
    call("POST", "/v1/responses", {"model": "holdfast", "input": "Hello responses", "metadata": {"topic": "rivers"}})


def approvals() -> None:
    ref = session("Approvals")
    for name, answer in {
        "once": {"answer": "yes"},
        "session": {"allowed": True, "scope": "session"},
        "prefix": {"allowed": True, "scope": "always", "match": "prefix", "prefix": ["rm", "-r"]},
    }.items():
        say(ref, tool("terminal", command=f"mkdir -p {name}; rm -r {name}" if name != "prefix" else f"rm -r {name}"))
        call("POST", f"/v1/questions/{question(ref)}", answer)
        until(lambda: call("GET", f"/v1/sessions/{ref}")["state"] == "waiting", "the end of the turn")
    turn(ref, tool("terminal", command="rm -r something"))
    say(ref, tool("terminal", command="dd if=/dev/zero of=/dev/null count=1 && shutdown now"))
    call("POST", f"/v1/questions/{question(ref)}", {"allowed": False, "reason": "not this machine"})
    until(lambda: call("GET", f"/v1/sessions/{ref}")["state"] == "waiting", "the end of the turn")
    say(ref, tool("terminal", command="mkdir -p gone; rm -r gone; rm -rf /tmp/nothing"))
    question(ref)


def gateway() -> None:
    post_to_bridge("ada", "m1", "Hello from the bridge")
    post_to_bridge("ada", "m1", "Hello from the bridge")
    post_to_bridge("ada", "m2", "/busy steer")
    post_to_bridge("away", "m1", "Nobody takes the reply")
    post_to_bridge("refused", "m1", "The reply is refused")
    post_to_bridge("doubtful", "m1", "The reply may have arrived")
    post_to_bridge("stranger", "m1", "Let me in", person="grace")
    post_to_bridge("bad", "m1", "", raw=b'{"chat": "bad"}')
    post_to_bridge("reset", "m1", tool("terminal", command="while sleep 1; do date; done", background=True))
    post_to_bridge("choice", "m1", tool("terminal", command="sleep 100000", background=True))
    until(lambda: Platform.delivered.count("choice") >= 1 and Platform.delivered.count("reset") >= 1, "two replies")
    post_to_bridge("choice", "m2", "/new")
    until(lambda: Platform.delivered.count("choice") >= 2, "the question about the processes")
    until(lambda: json.loads(holdfast("--json", "gateway", "dead"))["in"], "the dead message")


def commands() -> None:
    holdfast("chat", "--title", "A chat", given="I am a chat\nI said too much\n/undo\n/retry\n")
    holdfast("run", "--key", "errand", "Buy bread")
    holdfast("batch", "prompts.jsonl")
    holdfast("cron", "add", "* * * * *", "What time is it?", "--deliver", "bridge:ada")
    holdfast("cron", "add", "* * * * *", "Stay", "--model", "scripted:~/stuck.json", "--timezone", "Europe/Berlin")
    added = json.loads(holdfast("--json", "cron", "add", "0 8 * * 1", "Never", "--missed", "skip"))
    holdfast("cron", "remove", added["id"])
    file = USER / "rivers.jsonl"
    holdfast("sessions", "export", "Notes about rivers", "--out", str(file))
    holdfast("sessions", "rename", "Notes about rivers", "Rivers")
    holdfast("sessions", "import", str(file), "--as-new")
    (USER / "broker-key").write_text(json.loads(holdfast("--json", "broker", "add", "ada"))["key"])


def left_in_mid_work() -> None:
    """The state at the time of the kill."""
    ref = session("Killed while a command ran")
    say(ref, tool("terminal", command="echo begun; sleep 100000", timeout_seconds=3600))
    say(ref, "Queued behind it")
    say(ref, "Queued as well", X_Busy="steer")
    ref = session("Background work")
    turn(ref, tool("terminal", command="echo serving; sleep 100000", background=True))
    turn(ref, tool("terminal", command="echo over; exit 3", background=True))


def wait_for_the_rest() -> None:
    """The first run of each schedule, and a reset that a process blocks."""
    listed: Callable[[], list[Any]] = lambda: json.loads(holdfast("--json", "cron", "list"))["schedules"]  # noqa: E731
    until(
        lambda: (
            sum(one["slots"].get("done", 0) for one in listed()) and any("running" in one["slots"] for one in listed())
        ),
        "slots",
    )
    until(
        lambda: "reset_skipped" in holdfast("--json", "sessions", "show", "--events", channel("bridge:reset")),
        "the reset",
    )
    ref = session("Killed while it spoke", "scripted:~/slow.json")
    checkpoint()  # so that the write-ahead log holds only what comes now
    say(ref, "Tell a story")
    until(lambda: b"lighthouse" in (HOME / "holdfast.db-wal").read_bytes(), "the draft")


def checkpoint() -> None:
    with contextlib.closing(sqlite3.connect(HOME / "holdfast.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def channel(name: str) -> str:
    found: str = call("GET", f"/v1/sessions?channel={name}")["sessions"][0]["id"]
    return found


def pack(target: Path) -> None:
    """The home as the crash left it, the write-ahead log included."""
    with gzip.GzipFile(target, "wb", mtime=0) as file, tarfile.open(fileobj=file, mode="w|") as archive:
        for path in sorted(USER.rglob("*")):
            if path.name.endswith("-shm") or "logs" in path.parts or path.name.startswith("search.db"):
                continue
            archive.add(path, str(path.relative_to(USER)), recursive=False)


def outside(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    root = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as folder:
        machine = Path(folder) / "machine-id"
        machine.write_text("0123456789abcdef0123456789abcdef\n")
        (Path(folder) / "ada").mkdir()
        sandbox = [
            "bwrap",
            "--unshare-pid",
            "--unshare-uts",
            "--unshare-net",
            "--die-with-parent",
            "--hostname",
            "sample",
        ]
        sandbox += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/home"]
        sandbox += ["--ro-bind", str(machine), "/etc/machine-id", "--bind", f"{folder}/ada", str(USER)]
        sandbox += [
            "--tmpfs",
            "/opt",
            "--ro-bind",
            str(source),
            "/opt/src",
            "--ro-bind",
            str(root / "tests"),
            "/opt/tests",
        ]
        sandbox += ["--bind", str(target), "/opt/out", "--chdir", "/opt", "--clearenv"]
        for name, value in {
            "HOME": str(USER),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": "/opt/src:/opt",
            "LANG": "C.UTF-8",
        }.items():
            sandbox += ["--setenv", name, value]
        subprocess.run([*sandbox, sys.executable, "-m", "tests.migrations.make_sample", "inside"], check=True)


def describe(source: Path, target: Path) -> None:
    """The backup, the exports and the expectations, by the version that made the home."""
    with tempfile.TemporaryDirectory() as folder:
        user = sample.unpack(target, Path(folder))
        program = sample.Program(user, str(source))
        seen = json.dumps(sample.observe(program), indent=1, sort_keys=True) + "\n"
        (target / "expected.json.gz").write_bytes(gzip.compress(seen.encode(), mtime=0))
        program("backup", f"{folder}/backup.db")
        program("sessions", "export", "--all", "--out", f"{folder}/exports")
        sample.compress(Path(folder) / "backup.db", target / "backup.db.gz")
        with (
            gzip.GzipFile(target / "exports.tar.gz", "wb", mtime=0) as file,
            tarfile.open(fileobj=file, mode="w|") as archive,
        ):
            archive.add(f"{folder}/exports", "exports")
        settings = sample.read_settings(program, target)
        (target / "settings.json").write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")
        keeper = next(source.rglob("keeper.py"))
        sample.compress(keeper, target / "keeper.py.gz")
        shutil.copy(user / "prompts.results.jsonl", target / "batch.results.jsonl")


def main() -> None:
    if sys.argv[1] == "inside":
        fill()
        pack(Path("/opt/out/home.tar.gz"))
        return
    source, target = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    if not (target / "home.tar.gz").exists():
        outside(source, target)
    describe(source, target)


if __name__ == "__main__":
    main()
