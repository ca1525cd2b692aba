"""Where a broker keeps what it knows, and where its users live. Nothing a user can write to is trusted with a path."""

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.errors import Conflict
from holdfast.settings import Settings
from holdfast.store.private import translate

PRIVATE = 0o700
PASSAGE = 0o711
"""Of the folder that holds the homes: one may go through it to one's own, and see nothing on the way."""


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of a broker.

    `<home>/broker` is the broker's own: `users.json`, and for each worker a folder with its lock, its socket, who it is
    and what it said. `<homes>/NAME` is the user's: `home` for Holdfast, `work` for the tools.
    """

    broker: Path
    homes: Path

    @classmethod
    def of(cls, settings: Settings) -> "Places":
        homes = settings.broker.homes
        return cls(settings.home / "broker", settings.home / Path(homes or "users").expanduser())

    @property
    def users(self) -> Path:
        return self.broker / "users.json"

    def run(self, name: str) -> Path:
        return self.broker / "run" / name

    @property
    def lock(self) -> Path:
        return self.broker / "lock"

    @property
    def now(self) -> Path:
        """What the broker last wrote down about itself."""
        return self.broker / "now.json"

    def user(self, name: str) -> Path:
        return self.homes / name

    def prepare(self) -> None:
        """Make the folders. Raises what a disk or its rights have against it."""
        try:
            _make_passage(self.broker.parent)
            self.broker.mkdir(mode=PRIVATE, exist_ok=True)
            (self.broker / "run").mkdir(mode=PRIVATE, exist_ok=True)
            _make_passage(self.homes)
            for folder in (self.broker, self.broker / "run"):
                if folder.stat().st_mode & 0o077:
                    folder.chmod(PRIVATE)
        except OSError as e:
            raise translate(e, e.filename or self.broker) from e


def _make_passage(folder: Path) -> None:
    """A folder that users with uids can go through, and those above it that are missing, whatever root's umask is."""
    if not folder.is_dir():
        _make_passage(folder.parent)
        folder.mkdir(mode=PASSAGE, exist_ok=True)
        if os.geteuid() == 0:
            folder.chmod(PASSAGE)


def make_home(places: Places, name: str, uid: int | None, config: bytes | None) -> None:
    """A new home that nobody but its user can look into. It gets its name when it is complete.

    Raises Conflict if there is one of that name: what is in it belongs to somebody.
    """
    target, draft = places.user(name), places.homes / f".{name}.{os.getpid()}"
    if target.exists():
        raise Conflict(f"there is a home already at {target}; move it away, or choose another name")
    try:
        for folder in (draft, draft / "home", draft / "work"):
            folder.mkdir(mode=PRIVATE)
        if config is not None:
            with os.fdopen(os.open(draft / "home" / "config.toml", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(config)
        if uid is not None:
            for path in (*sorted(draft.rglob("*"), reverse=True), draft):
                os.chown(path, uid, uid)
        draft.rename(target)
    except OSError as e:
        raise translate(e, target) from e


def put_away(places: Places, name: str, stamp: str) -> Path | None:
    """Move the home of somebody who is no longer a user to where it can be got back from; where that is, if there was one."""
    target = places.homes / ".removed" / f"{name}-{stamp}"
    try:
        target.parent.mkdir(mode=PRIVATE, exist_ok=True)
        places.user(name).rename(target)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise translate(e, target) from e
    return target
