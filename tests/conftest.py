"""What every test may use: a fake clock, ids, its own store, workers. No test uses the network."""

import faulthandler
import ipaddress
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import holdfast
from holdfast.model.ids import WORKER, Ids
from holdfast.store.database import Database
from holdfast.store.repos import workers
from tests.fakes.clock import FakeClock
from tests.fakes.migrated import open_migrated
from tests.sampling import TIER, TIERS

if TYPE_CHECKING:
    from tests.gateway.mailserver import MailServer

NewWorker = Callable[..., Awaitable[str]]

GRACE_SECONDS = 60.0
TERMINAL = pytest.StashKey[int]()
SHARED = pytest.StashKey[Path]()
"""The directory that all workers share, in the process that started the run."""
SHARED_FOLDER = "PYTEST_SHARED_FOLDER"
TESTS = Path(__file__).parent
PROCESS_FOLDERS = [
    TESTS / name
    for name in ("adapters", "api", "broker", "cli/chat", "crash", "dashboard", "fleet", "live", "postgres", "torture")
]
"""Every test in these needs processes, so that the fast tier need not even import them."""
NOT_FAST = ("process", "crash", "clients", "slow")
NOT_IN_TIER = {"fast": (*NOT_FAST, "soak"), "test": ("soak",), "soak": ()}
"""The marks of tests that a tier leaves out."""
PROCESS_STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system", "pty.spawn")

# The duration of an example depends on the machine, not on the code.
# The fast tier tries a tenth of the usual hundred.
settings.register_profile(
    "holdfast",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    max_examples=10 if TIER == "fast" else 100,
)
settings.load_profile("holdfast")

# Programs that tests start receive SIGHUP and SIGINT, even if the tests themselves were started with nohup
# or in the background.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_loopback(host: object) -> bool:
    try:
        address = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return host in ("localhost", "", None)
    return address.is_loopback or address.is_unspecified


def refuse_other_machines(event: str, args: tuple[object, ...]) -> None:
    """Let a test connect to this machine only. An audit hook sees every connection that Python code makes."""
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
    if SHARED_FOLDER not in os.environ:
        config.stash[SHARED] = Path(tempfile.gettempdir()) / f"holdfast-tests-{os.getpid()}"
        os.environ[SHARED_FOLDER] = str(config.stash[SHARED])
    if config.getoption("markexpr").strip() != "live":
        sys.addaudithook(refuse_other_machines)
    if TIER == "fast":
        sys.addaudithook(refuse_processes)


def refuse_processes(event: str, args: tuple[object, ...]) -> None:
    """Let no test of the fast tier start a process. pytest-xdist started its own before this was installed."""
    if event in PROCESS_STARTS and "PYTEST_CURRENT_TEST" in os.environ:
        raise PermissionError(f"{event}: the fast tier starts no processes; mark this test with pytest.mark.process")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Do not import modules that have no test in this tier."""
    is_left_out = (TIER == "fast" and collection_path in PROCESS_FOLDERS) or (
        collection_path.suffix == ".py" and is_whole_module_left_out(collection_path)
    )
    return True if is_left_out else None


def is_whole_module_left_out(path: Path) -> bool:
    """Whether the tier leaves out all tests of the module, by a mark in its `pytestmark`."""
    marks = NOT_IN_TIER[TIER]
    return bool(marks) and bool(re.search(rf"^pytestmark = .*\bmark\.(?:{'|'.join(marks)})\b", path.read_text(), re.M))


def first_tier(item: pytest.Item) -> str:
    """The smallest tier that runs a test; the larger ones run it too."""
    if item.get_closest_marker("soak"):
        return "soak"
    return "test" if needs_process(item.path) or any(item.get_closest_marker(name) for name in NOT_FAST) else "fast"


@cache
def needs_process(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in PROCESS_FOLDERS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (kept if TIERS.index(first_tier(item)) <= TIERS.index(TIER) else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = longest_first(kept, getattr(config, "workerinput", {}).get("workercount", 1))


def longest_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Begin each worker's share with modules that have a longer time limit, so that no long test is left for the end.

    pytest-xdist gives each worker one part of the list, all of equal length. A module stays together: its tests share
    servers.
    """
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    limits = {path: max(map(time_limit, inside)) for path, inside in modules.items()}
    usual = min(limits.values(), default=0.0)
    long = sorted((path for path in modules if limits[path] > usual), key=lambda path: -limits[path])
    rest = [item for path in modules if limits[path] == usual for item in modules[path]]
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        share = len(items) * (worker + 1) // workers
        for path in long[worker::workers]:
            ordered += modules[path]
        missing = max(0, share - len(ordered))
        ordered += rest[:missing]
        rest = rest[missing:]
    return ordered + rest


def time_limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0] if marker else item.config.getini("timeout"))


def watch(item: pytest.Item) -> None:
    """End this process and print its stack if the test continues long after its time limit.

    The time limit itself is a signal, which is not handled while a library blocks the interpreter, and is used up after
    a failure.
    """
    faulthandler.dump_traceback_later(time_limit(item) + GRACE_SECONDS, exit=True, file=item.config.stash[TERMINAL])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    watch(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    watch(item)  # again: pytest cancels it when a test fails


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The process that started the run ends what its workers shared, after they have ended."""
    if (module := sys.modules.get("tests.postgres.cluster")) is not None:
        module.remove_all()
    shared = session.config.stash.get(SHARED, None)
    if shared is not None and shared.exists():
        from tests.gateway import synapse

        synapse.stop_shared(shared)
        shutil.rmtree(shared)


@pytest.fixture(scope="session")
def homeserver() -> str:
    """A Matrix server, one for all workers: it takes seconds to start."""
    from tests.gateway import synapse

    return synapse.shared(Path(os.environ[SHARED_FOLDER]))


@pytest.fixture(scope="session")
def mailserver() -> Iterator["MailServer"]:
    """A mail server, shared by the tests."""
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
    """A real, empty store in its own directory."""
    opened = await open_migrated(tmp_path / "home" / "holdfast.db")
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
