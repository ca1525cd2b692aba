"""Folders of the broker and of its users. The broker trusts no path that a user can write to."""

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.errors import Conflict
from holdfast.settings import Settings
from holdfast.store.atomic_file import translate

PRIVATE = 0o700
TRAVERSABLE = 0o711
"""Mode of the folder that contains the homes: users can traverse it, but not list it."""


@dataclass(frozen=True, slots=True)
class BrokerPaths:
    """The folders of a broker.

    `<home>/broker` belongs to the broker: `users.json`, and for each worker a folder with its lock, socket, identity
    and log. `<homes>/NAME` belongs to the user: `home` for Holdfast, `work` for the tools.
    """

    broker: Path
    homes: Path

    @classmethod
    def from_settings(cls, settings: Settings) -> "BrokerPaths":
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
    def status_file(self) -> Path:
        """The broker's status file."""
        return self.broker / "now.json"

    def user(self, name: str) -> Path:
        return self.homes / name

    def prepare(self) -> None:
        """Create the folders. Raises the translated OSError."""
        try:
            _make_traversable(self.broker.parent)
            self.broker.mkdir(mode=PRIVATE, exist_ok=True)
            (self.broker / "run").mkdir(mode=PRIVATE, exist_ok=True)
            _make_traversable(self.homes)
            for folder in (self.broker, self.broker / "run"):
                if folder.stat().st_mode & 0o077:
                    folder.chmod(PRIVATE)
        except OSError as e:
            raise translate(e, e.filename or self.broker) from e


def _make_traversable(folder: Path) -> None:
    """Create a folder that users can traverse, with missing parents, whatever root's umask is."""
    if not folder.is_dir():
        _make_traversable(folder.parent)
        folder.mkdir(mode=TRAVERSABLE, exist_ok=True)
        if os.geteuid() == 0:
            folder.chmod(TRAVERSABLE)


def make_home(paths: BrokerPaths, name: str, uid: int | None, config: bytes | None) -> None:
    """Create a home that only its user can read. It gets its final name when it is complete.

    Raises Conflict if a home of that name exists: its content belongs to someone.
    """
    target, draft = paths.user(name), paths.homes / f".{name}.{os.getpid()}"
    if target.exists():
        raise Conflict(f"a home already exists at {target}; move it away, or choose another name")
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


def archive_home(paths: BrokerPaths, name: str, stamp: str) -> Path | None:
    """Move the home of a removed user to `.removed`; return its new path, if there was one."""
    target = paths.homes / ".removed" / f"{name}-{stamp}"
    try:
        target.parent.mkdir(mode=PRIVATE, exist_ok=True)
        paths.user(name).rename(target)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise translate(e, target) from e
    return target
