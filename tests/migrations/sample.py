"""A home that an earlier version left behind, and what a user sees in it, through the commands of any version."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).parent / "samples"


def unpack(folder: Path, into: Path) -> Path:
    """The user's folder; the home is `.holdfast` in it."""
    user = into / "ada"
    with tarfile.open(folder / "home.tar.gz") as archive:
        archive.extractall(user, filter="fully_trusted")
    return user


def compress(source: Path, target: Path) -> None:
    target.write_bytes(gzip.compress(source.read_bytes(), mtime=0))


class Program:
    """The command, as a user with this folder starts it. `source` is the `src` folder of another version."""

    def __init__(self, user: Path, source: str = "") -> None:
        self.home = user / ".holdfast"
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(user), "LANG": "C.UTF-8"}
        self.environment["PYTHONPATH"] = source or os.environ.get("PYTHONPATH", "")
        self._user = user

    def __call__(self, *args: str, code: int | None = 0) -> str:
        command = [sys.executable, "-m", "holdfast", *args]
        done = subprocess.run(
            command, env=self.environment, cwd=self._user, capture_output=True, text=True, check=False
        )
        assert code in (None, done.returncode), f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *args: str, code: int | None = 0) -> Any:
        return json.loads(self("--json", *args, code=code))


def observe(program: Program) -> dict[str, Any]:
    """Everything in the store that a user can see, by the commands that show it; not the explanations beside it."""
    listed = program.json("sessions", "list", "--all")["sessions"]
    ids = sorted(one["id"] for one in listed)
    schedules = program.json("cron", "list")["schedules"]
    why = {ref: program.json("why", ref) for ref in ids}
    hits = program.json("sessions", "search", "lighthouse", "--order", "recent")["hits"]
    return {
        "sessions": {one["id"]: one for one in listed},
        "messages": {ref: program.json("sessions", "show", ref)["messages"] for ref in ids},
        "decisions": {ref: [[one["seq"], one["at"], one["kind"]] for one in why[ref]["decisions"]] for ref in ids},
        "owners": {ref: why[ref]["owner"] and why[ref]["owner"]["id"] for ref in ids},
        "stats": program.json("sessions", "stats"),
        "verify": program.json("sessions", "verify"),
        "found": [[hit["session_id"], hit["seq"], hit["kind"]] for hit in hits],
        "questions": program.json("questions", "list")["questions"],
        "rules": _without(program.json("questions", "rules", "--all")["rules"], "text"),
        "processes": _without(
            program.json("ps", "--all")["processes"],
            "state",
            "evidence",
            "blocks_reset",
            "last_work",
            "members",
            "listens",
        ),
        "workers": _without(program.json("workers", "--all")["workers"], "state", "evidence"),
        "platforms": program.json("gateway", "status")["platforms"],
        "dead": program.json("gateway", "dead"),
        "people": program.json("gateway", "people")["people"],
        "schedules": [program.json("cron", "show", one["id"]) for one in schedules],
        "users": _without(program.json("broker", "status")["users"], "home"),
    }


def _without(rows: list[dict[str, Any]], *fields: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in fields} for row in rows]


def read_settings(program: Program, folder: Path) -> dict[str, Any]:
    """Every setting of the sample's `config.toml`, as `doctor` shows them. The file gets a home for that."""
    home = program.home.parent / "settings"
    home.mkdir()
    shutil.copy(folder / "config.toml", home)
    found: dict[str, Any] = program.json("--home", str(home), "doctor", code=None)["settings"]
    return {name: value for name, value in found.items() if name != "home"}
