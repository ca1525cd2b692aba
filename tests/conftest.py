"""What every test may use: a clock that stands still, ids, a store of its own, workers. Nobody talks to the network."""

import faulthandler
import ipaddress
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import holdfast
from holdfast.model.ids import WORKER, Ids
from holdfast.store import workers
from holdfast.store.database import Database
from holdfast.store.sqlite import open_sqlite
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from tests.gateway.mailserver import MailServer

NewWorker = Callable[..., Awaitable[str]]

GRACE_SECONDS = 60.0
TERMINAL = pytest.StashKey[int]()

# How fast an example runs says something about the machine, not about the code.
settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("holdfast")

# What tests start hears a hang-up and an interrupt, also if the tests themselves were started to outlive their terminal,
# or in the background.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_loopback(host: object) -> bool:
    try:
        address = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return host in ("localhost", "", None)
    return address.is_loopback or address.is_unspecified


def refuse_strangers(event: str, args: tuple[object, ...]) -> None:
    """Let a test talk to this machine only. An audit hook sees every connection that Python code makes, whoever makes it."""
    if event in ("socket.connect", "socket.sendto"):
        address = args[1]
        host = address[0] if isinstance(address, tuple) else None  # any other kind of address is of this machine
    elif event == "socket.getaddrinfo":
        host = args[0].decode() if isinstance(args[0], bytes) else args[0]
    else:
        return
    if not _is_loopback(host):
        raise PermissionError(f"tests do not use the network; {event} asked for {host}")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TERMINAL] = os.dup(2)  # what is written to the old one during a test is captured
    if config.getoption("markexpr").strip() != "live":
        sys.addaudithook(refuse_strangers)


def watch(item: pytest.Item) -> None:
    """End this process, and say where it stood, if the test goes on long after its time.

    The time limit itself is a signal, which is not heard as long as a library keeps Python to itself, and is spent after
    a failure.
    """
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker else item.config.getini("timeout"))
    faulthandler.dump_traceback_later(limit + GRACE_SECONDS, exit=True, file=item.config.stash[TERMINAL])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    watch(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    watch(item)  # again: pytest calls it off when a test fails


def pytest_sessionfinish() -> None:
    if (module := sys.modules.get("tests.postgres.cluster")) is not None:
        module.remove_all()


@pytest.fixture(scope="session")
def homeserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Matrix server, for all who need one: it takes seconds to start."""
    from tests.gateway import synapse

    with synapse.running(tmp_path_factory.mktemp("synapse")) as url:
        yield url


@pytest.fixture(scope="session")
def mailserver() -> Iterator["MailServer"]:
    """A mail server, for all who need one."""
    from tests.gateway import mailserver

    with mailserver.running() as running:
        yield running


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ids(clock: FakeClock) -> Ids:
    return Ids(clock.now)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """A real store, empty, in a folder of its own."""
    opened = await open_sqlite(tmp_path / "home" / "holdfast.db")
    yield opened
    await opened.close()


@pytest.fixture
def new_worker(database: Database, ids: Ids, clock: FakeClock) -> NewWorker:
    """Registers one more worker and returns its id."""

    async def register(kind: str = "test") -> str:
        worker_id = ids.make(WORKER)
        identity = workers.Identity(host="here", boot="boot-1", pid=4711, process_started="1000")
        await database.write(workers.register, worker_id, kind, identity, version=holdfast.__version__, at=clock.now())
        return worker_id

    return register


@pytest.fixture
async def worker(new_worker: NewWorker) -> str:
    """The id of a registered worker."""
    return await new_worker()
