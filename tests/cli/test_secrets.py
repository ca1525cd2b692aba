"""A tool of a real `holdfast` process cannot access any of its keys."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.test_uids import interpreter

pytestmark = pytest.mark.process

OWN = os.geteuid()
OTHER = 54319 if OWN == 0 else OWN
"""A user without special rights."""
PROVIDER_KEY = "sk-provider-0123456789abcdef"
API_KEY = "hfk-server-0123456789abcdef"
NAMED_KEY = "sk-named-0123456789abcdef"
BOT_TOKEN = "bot-0123456789abcdef"
SECRETS = (PROVIDER_KEY, API_KEY, NAMED_KEY, BOT_TOKEN)

THIEF = """
import hashlib, os, re
home, backwards = HOME, BACKWARDS
keys = [key[::-1].encode() for key in backwards]
seen, found = 0, set()

def search(name, data):
    for number, key in enumerate(keys):
        if key in data:
            found.add((name, number))

def memory(pid):
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            start, end = (int(text, 16) for text in line.split()[0].split("-"))
            if "rw" in line.split()[1] and end - start < 1 << 28:
                try:
                    mem.seek(start)
                    search(f"mem of {pid}", mem.read(end - start))
                except (OSError, ValueError, OverflowError):
                    pass

for pid in sorted(filter(str.isdecimal, os.listdir("/proc")), key=int):
    seen += 1
    for name in ("environ", "cmdline"):
        try:
            search(f"{name} of {pid}", open(f"/proc/{pid}/{name}", "rb").read())
        except OSError:
            pass
    try:
        if int(pid) != os.getpid():
            memory(pid)
    except OSError:
        pass
    for name in ("config.toml", "api-key", "holdfast.db") if LOOKS_AT_FILES else ():
        try:
            search(f"root of {pid}", open(f"/proc/{pid}/root{home}/{name}", "rb").read())
        except OSError:
            pass
if LOOKS_AT_FILES:
    for at, _, names in os.walk(home):
        for name in names:
            try:
                search(name, open(os.path.join(at, name), "rb").read())
            except OSError:
                pass
search("own environment", repr(os.environ).encode())
print("looked at", seen, "processes; stole", sorted(found))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that any user can reach."""
    path = Path(tempfile.mkdtemp(prefix="holdfast-secrets-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


class Trial:
    """A home with secrets, and a program that looks for them everywhere."""

    def __init__(self, place: Path, *, sandbox: str, uid: int) -> None:
        self.home, self.work = place / "home", place / "workplace"
        self.home.mkdir(mode=0o700)
        self.work.mkdir(mode=0o700)
        (self.home / "config.toml").write_text(
            'model = "scripted:tools"\n[agent]\napprovals = "allow"\n'
            f'[terminal]\nsandbox = "{sandbox}"\nworkdir = "{self.work}"\n'
            '[models.anthropic]\napi_key_env = "MY_OWN_VARIABLE"\n'
            f'[mcp.unused]\nurl = "http://127.0.0.1:9/"\nheaders = {{ x = "{BOT_TOKEN}" }}\n'
        )
        (self.home / "config.toml").chmod(0o600)
        thief = THIEF.replace("HOME", repr(str(self.home)), 1)
        thief = thief.replace("BACKWARDS", repr([key[::-1] for key in SECRETS]), 1)
        (self.work / "thief.py").write_text(thief.replace("LOOKS_AT_FILES", str(sandbox != "off")))
        for path in (self.home, self.work, *self.home.iterdir(), *self.work.iterdir()):
            os.chown(path, uid, -1)
        self.uid = uid

    def command(self, *args: str) -> list[str]:
        drop = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--"]
        python = [*drop, *interpreter()] if self.uid != OWN else [sys.executable]
        return [*python, "-m", "holdfast", "--home", str(self.home), *args]

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.defpath,
            "HOME": str(self.work),
            "OPENAI_API_KEY": PROVIDER_KEY,
            "HOLDFAST_API_KEY": API_KEY,
            "MY_OWN_VARIABLE": NAMED_KEY,
        }

    @property
    def prompt(self) -> str:
        return 'Look.\nuse tool terminal {"command": "python3 thief.py"}'


HOW = [*dict.fromkeys([("required", OWN), ("required", OTHER), ("off", OTHER)])]


@pytest.mark.parametrize(("sandbox", "uid"), HOW)
def test_a_tool_of_a_run_finds_no_key_in_any_process_or_file(place, sandbox, uid):
    trial = Trial(place, sandbox=sandbox, uid=uid)

    done = subprocess.run(
        trial.command("run", trial.prompt), env=trial.environment, cwd=trial.work, capture_output=True, check=False
    )
    said = done.stdout.decode() + done.stderr.decode()

    assert "looked at" in said, said
    assert "stole []" in said


@pytest.mark.parametrize(("sandbox", "uid"), HOW)
def test_a_tool_of_a_server_finds_no_key_in_any_process_or_file(place, sandbox, uid):
    trial = Trial(place, sandbox=sandbox, uid=uid)
    with subprocess.Popen(
        trial.command("serve", "--port", "0"), env=trial.environment, cwd=trial.work, stdout=subprocess.PIPE
    ) as server:
        try:
            assert server.stdout is not None
            address = next(word for word in server.stdout.readline().decode().split() if word.startswith("http"))
            said = ask(address.rstrip(",.;"), trial.prompt)
        finally:
            server.terminate()

    assert "looked at" in said, said
    assert "stole []" in said


def ask(address: str, words: str) -> str:
    body = json.dumps({"model": "scripted:tools", "messages": [{"role": "user", "content": words}]}).encode()
    headers = {"authorization": f"Bearer {API_KEY}", "content-type": "application/json"}
    request = urllib.request.Request(f"{address}/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=50) as answer:
        return str(json.load(answer))
