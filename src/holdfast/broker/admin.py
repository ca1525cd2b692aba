"""User administration from the command line, with or without a running broker."""

import asyncio
import os
from pathlib import Path

import msgspec

from holdfast.broker import uids, worker
from holdfast.broker.broker import BrokerState
from holdfast.broker.paths import BrokerPaths, archive_home, make_home
from holdfast.broker.users import User, Users, check_name
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.times import iso
from holdfast.process_lookup import check_process, current_identity
from holdfast.settings import Settings
from holdfast.store.atomic_file import translate

TEMPLATE = "user.toml"
"""In the broker's home: the initial settings of new users."""
SHARED_UID_WARNING = "users without their own uid share the broker's, and their tools can access each other's files"


class UserStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A user and the state of their worker."""

    name: str
    state: str
    pid: int | None
    since: int | None
    open: int
    starts: int
    memory: int | None
    """In bytes, of the worker alone."""
    disk: int | None
    """In bytes, of all files, at the broker's last count."""
    uid: int | None
    home: str
    wake_at: int | None
    complaint: str


def check_settings(settings: Settings) -> list[str]:
    """Return warnings about these settings. Raises Invalid for impossible ones."""
    wanted = settings.broker
    if wanted.first_uid and os.geteuid() != 0:
        raise Invalid(
            "broker.first_uid gives each user a uid, which needs root; start the broker as root, or remove the setting"
        )
    without = [
        user.name for user in Users(BrokerPaths.from_settings(settings).users).all().values() if user.uid is None
    ]
    if wanted.first_uid and without:
        raise Invalid(f"broker.first_uid is set, but some users were added without a uid: {', '.join(without)}")
    return [f"{SHARED_UID_WARNING}: {', '.join(without)}; {_remedy(settings)}"] if without else []


def _remedy(settings: Settings) -> str:
    """Say how to give users their own uids."""
    if os.geteuid() != 0:
        return "run the broker as root to give each user a uid"
    if settings.broker.first_uid == 0:
        return "remove broker.first_uid = 0 to give new users uids"
    return "add users as root to give them uids"


def has_users(settings: Settings) -> bool:
    return bool(Users(BrokerPaths.from_settings(settings).users).all())


def add_user(settings: Settings, name: str, config: Path | None, at: int) -> tuple[User, str, list[str]]:
    """Add a user with a home. Returns the user, the key, which is shown only once, and warnings. Raises Invalid or Conflict."""
    check_name(name)
    check_settings(settings)
    paths = BrokerPaths.from_settings(settings)
    paths.prepare()
    text = _template(settings, config)
    users = Users(paths.users)
    uid = uids.first_free_uid(settings.broker, users.load().next_uid)
    obstacle = "" if uid is None else uids.find_obstacle(uid, paths.homes)
    if obstacle and settings.broker.first_uid:
        raise Invalid(obstacle)
    user, key = users.add(
        name,
        first_uid=None if obstacle else uid,
        at=at,
        make_home=lambda user: make_home(paths, name, user.uid, text),
    )
    return (
        user,
        key,
        [] if user.uid is not None else [f"{SHARED_UID_WARNING}, {name} too: {obstacle or _remedy(settings)}"],
    )


def _template(settings: Settings, config: Path | None) -> bytes | None:
    path = config or settings.home / TEMPLATE
    try:
        return path.read_bytes()
    except FileNotFoundError:
        if config is None:
            return None
        raise NotFound(f"file {config} not found") from None
    except OSError as e:
        raise Invalid(f"cannot read {path}: {e.strerror}") from e


async def remove_user(settings: Settings, name: str, at: int) -> Path | None:
    """Remove a user: key, worker and name. Moves the home aside and returns its new path, if there was one."""
    paths = BrokerPaths.from_settings(settings)
    users = Users(paths.users)
    user = users.get(name)
    users.remove(name)
    _, found = worker.find_worker(paths.run(name), current_identity())
    if found is not None:
        await found.stop(settings.broker.stop_seconds)
    if user.uid is not None:
        uids.kill_processes(user.uid)
    return archive_home(paths, name, iso(at).replace(":", "").replace(".", ""))


def new_key(settings: Settings, name: str) -> str:
    return Users(BrokerPaths.from_settings(settings).users).new_key(name)


def load_status(settings: Settings) -> tuple[BrokerState | None, list[UserStatus]]:
    """Return the state of the running broker, if any, and of all users."""
    paths = BrokerPaths.from_settings(settings)
    now = _broker_state(paths)
    return now, [asyncio.run(_user_status(paths, user, now)) for user in Users(paths.users).all().values()]


def _broker_state(paths: BrokerPaths) -> BrokerState | None:
    try:
        now = msgspec.json.decode(paths.status_file.read_bytes(), type=BrokerState)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    except OSError as e:
        raise translate(e, paths.status_file) from e
    return now if check_process(now.identity, current_identity()) == "alive" else None


async def _user_status(paths: BrokerPaths, user: User, now: BrokerState | None) -> UserStatus:
    state, found = worker.find_worker(paths.run(user.name), current_identity())
    if found is not None:
        found.close()
    line = None if now is None else now.users.get(user.name)
    kind = "running" if found is not None else "asleep"
    if line is not None and line.state in ("changing", "failing", "full"):
        kind = line.state
    return UserStatus(
        name=user.name,
        state=kind,
        pid=state.pid if state is not None and found is not None else None,
        since=state.at if state is not None and found is not None else None,
        open=0 if line is None else line.open,
        starts=0 if line is None else line.starts,
        memory=_memory(state.pid) if state is not None and found is not None else None,
        disk=None if line is None else line.disk,
        uid=user.uid,
        home=str(paths.user(user.name)),
        wake_at=None if line is None or found is not None else line.wake_at,
        complaint="" if line is None else line.complaint,
    )


def _memory(pid: int) -> int | None:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
