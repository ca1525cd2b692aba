"""What is done about users by hand, whether a broker runs or not."""

import asyncio
import os
from pathlib import Path

import msgspec

from holdfast.broker import uids, worker
from holdfast.broker.broker import Now
from holdfast.broker.places import Places, make_home, put_away
from holdfast.broker.users import User, Users, check_name
from holdfast.identity import fate, identity
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.times import iso
from holdfast.settings import Settings
from holdfast.store.private import translate

TEMPLATE = "user.toml"
"""In the broker's home: the settings that new homes begin with."""
SHARED = "users without a uid of their own share the broker's, and their tools can reach each other's files"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A user, and how things stand with them."""

    name: str
    state: str
    pid: int | None
    since: int | None
    open: int
    starts: int
    memory: int | None
    """In bytes, of the worker alone."""
    disk: int | None
    """In bytes, of all files, when the broker last counted them."""
    uid: int | None
    home: str
    wake_at: int | None
    complaint: str


def refuse_unfit(settings: Settings) -> list[str]:
    """What is unwise about these settings. Raises Invalid for what cannot be."""
    wanted = settings.broker
    if wanted.first_uid and os.geteuid() != 0:
        raise Invalid(
            "broker.first_uid gives each user a uid, which only root can do; start the broker as root, or leave it out"
        )
    without = [user.name for user in Users(Places.of(settings).users).all().values() if user.uid is None]
    if wanted.first_uid and without:
        raise Invalid(f"broker.first_uid is set, but some users were added without a uid: {', '.join(without)}")
    return [f"{SHARED}: {', '.join(without)}; {_remedy(settings)}"] if without else []


def _remedy(settings: Settings) -> str:
    """How users are kept apart who were not."""
    if os.geteuid() != 0:
        return "a broker that is root gives each user a uid"
    if settings.broker.first_uid == 0:
        return "without broker.first_uid = 0 new users get uids"
    return "who is added by root, with nothing in the way, gets a uid"


def has_users(settings: Settings) -> bool:
    return bool(Users(Places.of(settings).users).all())


def add(settings: Settings, name: str, config: Path | None, at: int) -> tuple[User, str, list[str]]:
    """A new user with a home, their key, which is shown this once, and what is unwise. Raises Invalid or Conflict."""
    check_name(name)
    refuse_unfit(settings)
    places = Places.of(settings)
    places.prepare()
    text = _template(settings, config)
    users = Users(places.users)
    uid = uids.first(settings.broker, users.book().next_uid)
    obstacle = "" if uid is None else uids.obstacle(uid, places.homes)
    if obstacle and settings.broker.first_uid:
        raise Invalid(obstacle)
    user, key = users.add(
        name,
        first_uid=None if obstacle else uid,
        at=at,
        make_home=lambda user: make_home(places, name, user.uid, text),
    )
    return user, key, [] if user.uid is not None else [f"{SHARED}, {name} too: {obstacle or _remedy(settings)}"]


def _template(settings: Settings, config: Path | None) -> bytes | None:
    path = config or settings.home / TEMPLATE
    try:
        return path.read_bytes()
    except FileNotFoundError:
        if config is None:
            return None
        raise NotFound(f"there is no file {config}") from None
    except OSError as e:
        raise Invalid(f"cannot read {path}: {e.strerror}") from e


async def remove(settings: Settings, name: str, at: int) -> Path | None:
    """End somebody's time as a user: key, worker, and the name. The home is put aside; where, if there was one, is returned."""
    places = Places.of(settings)
    users = Users(places.users)
    user = users.get(name)
    users.remove(name)
    _, found = worker.find(places.run(name), identity())
    if found is not None:
        await found.stop(settings.broker.stop_seconds)
    if user.uid is not None:
        uids.end_programs(user.uid)
    return put_away(places, name, iso(at).replace(":", "").replace(".", ""))


def new_key(settings: Settings, name: str) -> str:
    return Users(Places.of(settings).users).new_key(name)


def look(settings: Settings) -> tuple[Now | None, list[Seen]]:
    """The broker if one runs, and all users."""
    places = Places.of(settings)
    now = _now(places)
    return now, [asyncio.run(_seen(places, user, now)) for user in Users(places.users).all().values()]


def _now(places: Places) -> Now | None:
    try:
        now = msgspec.json.decode(places.now.read_bytes(), type=Now)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    except OSError as e:
        raise translate(e, places.now) from e
    return now if fate(now.identity, identity()) == "alive" else None


async def _seen(places: Places, user: User, now: Now | None) -> Seen:
    state, found = worker.find(places.run(user.name), identity())
    if found is not None:
        found.close()
    line = None if now is None else now.users.get(user.name)
    kind = "running" if found is not None else "asleep"
    if line is not None and line.state in ("changing", "failing", "full"):
        kind = line.state
    return Seen(
        name=user.name,
        state=kind,
        pid=state.pid if state is not None and found is not None else None,
        since=state.at if state is not None and found is not None else None,
        open=0 if line is None else line.open,
        starts=0 if line is None else line.starts,
        memory=_memory(state.pid) if state is not None and found is not None else None,
        disk=None if line is None else line.disk,
        uid=user.uid,
        home=str(places.user(user.name)),
        wake_at=None if line is None or found is not None else line.wake_at,
        complaint="" if line is None else line.complaint,
    )


def _memory(pid: int) -> int | None:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
