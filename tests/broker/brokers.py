"""A real broker with its own home and users, and ways to send it requests and to kill it."""

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
from holdfast.broker.cgroups import UserCgroups, find_trees
from holdfast.broker.paths import BrokerPaths
from holdfast.broker.users import Users
from holdfast.config import read
from holdfast.dashboard.auth import CookieSigner
from holdfast.process_lookup import get_start_time
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
        self.places = BrokerPaths.from_settings(self.settings)
        for number, name in enumerate(users):
            self.add(name, at=number)
        self.start()

    def _user_config(self) -> str:
        """Fast and slow models."""
        for name, script in SCRIPTS.items():
            (self.home / f"{name}.json").write_text(json.dumps(script))
        models = ["scripted:tools", *(self.model(name) for name in SCRIPTS)]
        return f'model = "scripted:echo"\nfallback_models = {json.dumps(models)}\n'

    def model(self, name: str) -> str:
        return f"scripted:{self.home}/{name}.json"

    def add(self, name: str, at: int = 1) -> None:
        if self._python == (sys.executable,):
            _, self.keys[name], _ = admin.add_user(self.settings, name, None, at)
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
        return CookieSigner(Users(self.places.users).get(name).worker_key).cookie

    def start(self) -> None:
        self.process = Process(
            *self._python, "-m", "holdfast", "--home", str(self.home), "broker", "--port", str(self.port)
        )
        self.process.__enter__()
        if not self.process.wait_for_output("Holdfast broker is listening on"):
            raise Hung(f"the broker did not start: {self.process.stderr}")
        found = re.search(r"http://\S+:(\d+);", self.process.stdout)
        assert found is not None, self.process.stdout
        self.port = int(found[1])

    def kill(self) -> None:
        """SIGKILL; its workers keep running."""
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

    def state(self, name: str) -> worker.WorkerState | None:
        """The state file of a user's worker, if it runs."""
        path = self.places.run(name) / "state.json"
        try:
            found = msgspec.json.decode(path.read_bytes(), type=worker.WorkerState)
        except FileNotFoundError:
            return None
        return found if get_start_time(found.pid) == found.started else None

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
        """End everything: the broker first, so that it restarts no worker."""
        self.process.__exit__(None, None, None)
        for name in self.keys:
            self.strike(name)
        for name in self.keys:
            self.wait_asleep(name)
        wait_until(UserCgroups.detect(self.places.broker).remove, "nobody is left in a control group")


def groups(pid: int) -> set[Path]:
    """The folders of a program's control groups, those of our controllers."""
    proc = Path("/proc") / str(pid)
    return {
        tree.folder for tree in find_trees((proc / "cgroup").read_text(), (proc / "mountinfo").read_text()).values()
    }
