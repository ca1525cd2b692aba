"""A real broker on a home of its own, with users, and ways to talk to it and to harm it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec

from holdfast.broker import admin, worker
from holdfast.broker.groups import Groups, trees
from holdfast.broker.places import Places
from holdfast.broker.users import Users
from holdfast.config import read
from holdfast.dashboard.door import Seal
from holdfast.identity import started
from tests.api.serving import SCRIPTS
from tests.crash.programs import Hung, Process, wait_until


class Brokers:
    """`holdfast broker` as a process. It can be killed and started again on the same home and port."""

    def __init__(self, home: Path, *users: str, python: tuple[str, ...] = (sys.executable,), **broker: object) -> None:
        self.home = home
        self.port = 0
        self.keys: dict[str, str] = {}
        self._python = python
        home.mkdir(parents=True, exist_ok=True)
        lines = ["[broker]", *(f"{name} = {json.dumps(value)}" for name, value in broker.items()), ""]
        (home / "config.toml").write_text("\n".join(lines))
        (home / "user.toml").write_text(self._user_config())
        self.settings = read({}, home)
        self.places = Places.of(self.settings)
        for number, name in enumerate(users):
            self.add(name, at=number)
        self.start()

    def _user_config(self) -> str:
        """Models that answer at once, and some that take their time."""
        for name, script in SCRIPTS.items():
            (self.home / f"{name}.json").write_text(json.dumps(script))
        models = ["scripted:tools", *(self.model(name) for name in SCRIPTS)]
        return f'model = "scripted:echo"\nfallback_models = {json.dumps(models)}\n'

    def model(self, name: str) -> str:
        return f"scripted:{self.home}/{name}.json"

    def add(self, name: str, at: int = 1) -> None:
        if self._python == (sys.executable,):
            _, self.keys[name], _ = admin.add(self.settings, name, None, at)
        else:
            self.keys[name] = self.command("add", name, "--json")["key"]

    def command(self, *words: str) -> Any:
        """What `holdfast broker …` prints as JSON."""
        return json.loads(self.run(*words))

    def run(self, *words: str) -> bytes:
        command = (*self._python, "-m", "holdfast", "--home", str(self.home), "broker", *words)
        return subprocess.run(command, check=True, capture_output=True).stdout

    def users_cookie(self, name: str) -> str:
        """The name of the cookie of a user's dashboard."""
        return Seal(Users(self.places.users).get(name).worker_key).cookie

    def start(self) -> None:
        self.process = Process(
            *self._python, "-m", "holdfast", "--home", str(self.home), "broker", "--port", str(self.port)
        )
        self.process.__enter__()
        if not self.process.wait_for_words("Holdfast brokers at"):
            raise Hung(f"the broker did not start: {self.process.complaints}")
        found = re.search(r"http://\S+:(\d+);", self.process.words)
        assert found is not None, self.process.words
        self.port = int(found[1])

    def kill(self) -> None:
        """Without a word; its workers live on."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.process.__exit__(None, None, None)
        self.start()

    def stop(self) -> int:
        os.kill(self.process.pid, signal.SIGTERM)
        return self.process.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def http(self, name: str | None = None, **options: Any) -> httpx.Client:
        """A client with the key of a user, or without any."""
        headers = {} if name is None else {"authorization": f"Bearer {self.keys[name]}"}
        return httpx.Client(base_url=self.url, headers=headers | options.pop("headers", {}), timeout=60, **options)

    def state(self, name: str) -> worker.State | None:
        """What the worker of a user has written down, if it runs."""
        path = self.places.run(name) / "state.json"
        try:
            found = msgspec.json.decode(path.read_bytes(), type=worker.State)
        except FileNotFoundError:
            return None
        return found if started(found.pid) == found.started else None

    def pid(self, name: str) -> int:
        found = self.state(name)
        assert found is not None, f"the worker of {name} does not run"
        return found.pid

    def strike(self, name: str, number: int = signal.SIGKILL) -> bool:
        """Signal the worker of a user; whether there was one."""
        found = self.state(name)
        if found is None:
            return False
        try:
            os.kill(found.pid, number)
        except ProcessLookupError:
            return False
        return True

    def wait_asleep(self, name: str) -> None:
        wait_until(lambda: self.state(name) is None, f"the worker of {name} ends")

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.command("status", "--json")
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Leaves nothing behind: the broker first, so that it starts nobody again."""
        self.process.__exit__(None, None, None)
        for name in self.keys:
            self.strike(name)
        for name in self.keys:
            self.wait_asleep(name)
        wait_until(Groups.of(self.places.broker).drop, "nobody is left in a control group")


def groups(pid: int) -> set[Path]:
    """The folders of a program's control groups, those of our controllers."""
    proc = Path("/proc") / str(pid)
    return {tree.folder for tree in trees((proc / "cgroup").read_text(), (proc / "mountinfo").read_text()).values()}
