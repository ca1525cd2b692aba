"""When each user's files are counted, and that no user can prevent it."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from holdfast.broker import disk_quota as rounds
from holdfast.broker import disk_usage, uids
from holdfast.broker.broker import Broker
from holdfast.broker.disk_quota import DiskQuota
from holdfast.broker.paths import BrokerPaths
from holdfast.broker.users import Users
from holdfast.clock import SystemClock
from holdfast.settings import BrokerSettings as Wanted
from holdfast.supervisor import Supervisor
from tests.fakes.clock import FakeClock

UID = 54322
MOST = 2**20


@pytest.fixture
def places(tmp_path: Path) -> BrokerPaths:
    found = BrokerPaths(tmp_path / "broker", tmp_path / "users")
    found.prepare()
    return found


def make_broker(places: BrokerPaths, *names: str, uid: int | None = None) -> Broker:
    users = Users(places.users)
    for name in names:
        users.add(name, first_uid=uid, at=0, make_home=lambda user: None)
    return Broker(places, users, Wanted(), {}, SystemClock())


@asynccontextmanager
async def counting(fake_broker: Broker, places: BrokerPaths) -> AsyncIterator[Supervisor]:
    work = DiskQuota(fake_broker, places, MOST, SystemClock().monotonic).as_task()
    async with Supervisor(SystemClock()) as supervisor, supervisor.running({"disk usage": work}):
        yield supervisor


async def wait_until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.01)


def counts_by(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A shell program instead of `du`: its input is in the variable `names`."""
    command = ("sh", "-c", f"names=$(tr '\\0' ' '); {script}")
    monkeypatch.setattr(disk_usage, "COMMAND", command)


async def test_a_user_removed_during_a_count_does_not_reappear(
    places: BrokerPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_broker = make_broker(places, "ada", "bo", "cy")
    before = places.users.read_bytes()
    Users(places.users).remove("bo")
    without = places.broker / "without"
    places.users.rename(without)
    places.users.write_bytes(before)
    move = shlex.join(("mv", "-f", str(without), str(places.users)))
    counts_by(monkeypatch, f"{move} 2> /dev/null; printf '1\\ttotal\\n'")
    async with counting(fake_broker, places):
        await wait_until(lambda: "cy" in fake_broker.tenants and fake_broker.tenants["cy"].disk is not None)

    assert sorted(fake_broker.tenants) == ["ada", "cy"]


async def test_a_hanging_count_is_shown_in_the_status(places: BrokerPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_broker, clock, asked = make_broker(places, "ada"), FakeClock(), asyncio.Event()

    async def hang(_: object) -> int:
        asked.set()
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(disk_usage, "measure_usage", hang)
    tasks = {"disk usage": DiskQuota(fake_broker, places, MOST, clock.monotonic).as_task()}
    async with Supervisor(clock) as fake_broker.supervisor, fake_broker.supervisor.running(tasks):
        await asked.wait()
        fake_broker.maintain()
        before = msgspec.json.decode(places.status_file.read_bytes())["complaints"]
        clock.pass_seconds(rounds.COUNT_SECONDS + 31)
        fake_broker.maintain()
        after = msgspec.json.decode(places.status_file.read_bytes())["complaints"]

    assert before == []
    assert after == ["disk usage is down: its cycle is overdue"]


async def test_a_slow_count_delays_no_other_user(places: BrokerPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_broker = make_broker(places, "ada", "bo")
    log = places.broker / "log"
    log.touch()
    slow = f"case $names in */users/ada*) sleep 2;; esac; echo $names >> {shlex.quote(str(log))}"
    counts_by(monkeypatch, f"{slow}; printf '1\\ttotal\\n'")
    monkeypatch.setattr(rounds, "ROUND_SECONDS", 0.01)
    monkeypatch.setattr(rounds, "SHARED_SECONDS", 0.01)
    async with counting(fake_broker, places):
        await wait_until(lambda: log.read_text().count("/users/bo") > 2)

    assert log.read_text().count("/users/ada") == 1


async def test_a_user_whose_processes_cannot_be_ended_does_not_stop_the_counts(
    places: BrokerPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_broker = make_broker(places, "ada", "bo", uid=UID)
    counts_by(monkeypatch, "printf '2048\\ttotal\\n'")
    monkeypatch.setattr(uids, "KILL_SCRIPT", "raise SystemExit(1)")
    async with counting(fake_broker, places):
        await wait_until(lambda: "bo" in fake_broker.tenants and fake_broker.tenants["bo"].full != "")

    assert fake_broker.tenants["ada"].full


async def test_a_user_file_that_is_unreadable_for_a_moment_is_read_later(
    places: BrokerPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_broker = make_broker(places, "ada")
    monkeypatch.setattr(rounds, "ROUND_SECONDS", 0.01)
    kept = places.users.rename(places.broker / "kept")
    places.users.mkdir()
    async with counting(fake_broker, places) as supervisor:
        await wait_until(lambda: supervisor.statuses()[0].failures > 0)
        places.users.rmdir()
        kept.rename(places.users)
        await wait_until(lambda: "ada" in fake_broker.tenants and fake_broker.tenants["ada"].disk is not None)
