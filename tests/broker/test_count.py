"""Whose files are counted when, and that nobody can keep the broker from it."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.broker import counting as rounds
from holdfast.broker import disk, uids
from holdfast.broker.broker import Broker
from holdfast.broker.counting import Counting
from holdfast.broker.places import Places
from holdfast.broker.users import Users
from holdfast.clock import SystemClock
from holdfast.engine.together import stop
from holdfast.settings import Broker as Wanted

UID = 54322
MOST = 2**20


@pytest.fixture
def places(tmp_path: Path) -> Places:
    found = Places(tmp_path / "broker", tmp_path / "users")
    found.prepare()
    return found


def house_of(places: Places, *names: str, uid: int | None = None) -> Broker:
    users = Users(places.users)
    for name in names:
        users.add(name, first_uid=uid, at=0, make_home=lambda user: None)
    return Broker(places, users, Wanted(), {}, SystemClock())


@asynccontextmanager
async def counting(house: Broker, places: Places) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(Counting(house, places, MOST, SystemClock().monotonic).work())
    try:
        yield task
    finally:
        await stop(task)


async def wait_until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.01)


def counts_by(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A shell program in the place of `du`: what it reads has been put in the variable `names`."""
    command = ("sh", "-c", f"names=$(tr '\\0' ' '); {script}")
    monkeypatch.setattr(disk, "COMMAND", command)


async def test_who_was_removed_while_others_were_counted_is_not_there_again(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = house_of(places, "ada", "bo", "cy")
    before = places.users.read_bytes()
    Users(places.users).remove("bo")
    without = places.broker / "without"
    places.users.rename(without)
    places.users.write_bytes(before)
    move = shlex.join(("mv", "-f", str(without), str(places.users)))
    counts_by(monkeypatch, f"{move} 2> /dev/null; printf '1\\ttotal\\n'")
    async with counting(house, places):
        await wait_until(lambda: "cy" in house.tenants and house.tenants["cy"].disk is not None)

    assert sorted(house.tenants) == ["ada", "cy"]


async def test_who_takes_long_to_count_puts_off_nobody_else(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    house = house_of(places, "ada", "bo")
    log = places.broker / "log"
    log.touch()
    slow = f"case $names in */users/ada*) sleep 2;; esac; echo $names >> {shlex.quote(str(log))}"
    counts_by(monkeypatch, f"{slow}; printf '1\\ttotal\\n'")
    monkeypatch.setattr(rounds, "ROUND_SECONDS", 0.01)
    monkeypatch.setattr(rounds, "LONG", 0.01)
    async with counting(house, places):
        await wait_until(lambda: log.read_text().count("/users/bo") > 2)

    assert log.read_text().count("/users/ada") == 1


async def test_who_cannot_be_ended_keeps_nobody_from_being_counted(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = house_of(places, "ada", "bo", uid=UID)
    counts_by(monkeypatch, "printf '2048\\ttotal\\n'")
    monkeypatch.setattr(uids, "END", "raise SystemExit(1)")
    async with counting(house, places):
        await wait_until(lambda: "bo" in house.tenants and house.tenants["bo"].full != "")

    assert house.tenants["ada"].full


async def test_users_that_cannot_be_read_for_a_moment_are_counted_later(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = house_of(places, "ada")
    monkeypatch.setattr(rounds, "ROUND_SECONDS", 0.01)
    kept = places.users.rename(places.broker / "kept")
    places.users.mkdir()
    async with counting(house, places) as task:
        await asyncio.sleep(0.1)
        assert not task.done()
        places.users.rmdir()
        kept.rename(places.users)
        await wait_until(lambda: "ada" in house.tenants and house.tenants["ada"].disk is not None)
