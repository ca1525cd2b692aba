"""When a worker is started, left alone, stopped and started again: a table of decisions, with real processes behind it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.broker import tenant as tenants
from holdfast.broker.pace import Pace
from holdfast.broker.tenant import Rules, Tenant, read_wake
from holdfast.broker.users import User
from holdfast.broker.worker import State, Worker
from holdfast.identity import identity, started
from holdfast.model.errors import RateLimited, Unavailable
from tests.fakes.clock import FakeClock

IDLE = 600.0
PROGRAM = """
import http.server, json, os, socket, socketserver, sys
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = open(sys.argv[2] + self.path.replace("/", "_")).read().encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *of):
        pass
    def address_string(self):
        return "here"
class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
os.chdir(sys.argv[1])
server = Server("sock", Answers)
print("ready", flush=True)
server.serve_forever()
"""


class House:
    """Starts small programs that stand for workers, and ends those that are left."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self.folder = folder
        self.clock = clock
        self.started: list[subprocess.Popen[bytes]] = []
        self.fails = False
        self.says(idle='{"idle": true, "why": [], "wake_at": null}')

    def says(self, idle: str, ready: str = '{"checks": {"accepting": "ok"}}') -> None:
        (self.folder / "says_v1_idle").write_text(idle)
        (self.folder / "says_ready").write_text(ready)
        (self.folder / "says_health").write_text("{}")

    async def start(self, user: User) -> Worker:
        if self.fails:
            raise Unavailable("it could not be started")
        (self.folder / "sock").unlink(missing_ok=True)
        command = (sys.executable, "-S", "-c", PROGRAM, str(self.folder), str(self.folder / "says"))
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        self.started.append(child)
        ours = identity()
        state = State(
            host=ours.host,
            boot=ours.boot,
            pid=child.pid,
            started=started(child.pid) or "",
            key=user.worker_key,
            at=self.clock.now(),
        )
        worker = Worker(self.folder, state, os.pidfd_open(child.pid))
        worker.child = child
        return worker

    def close(self) -> None:
        for child in self.started:
            if child.poll() is None:
                child.kill()
            child.wait()


@pytest.fixture
async def house(tmp_path: Path, clock: FakeClock) -> AsyncIterator[House]:
    found = House(tmp_path, clock)
    yield found
    found.close()
    await asyncio.sleep(0)


USER = User(name="ada", digest="", worker_key="k1", added_at=0)


def new_tenant(house: House, rules: Rules) -> Tenant:
    return Tenant(USER, rules, house.start, Pace(None, house.clock.monotonic), house.clock.monotonic)


@pytest.fixture
async def tenant(house: House, clock: FakeClock) -> AsyncIterator[Tenant]:
    rules = Rules(idle_seconds=IDLE, stop_seconds=20, requests=2, longest_wait=0.001)
    found = new_tenant(house, rules)
    yield found
    if found.worker is not None:
        found.worker.close()


async def settled(tenant: Tenant) -> None:
    while tenant.state == "changing":
        await asyncio.sleep(0.01)


@pytest.mark.timeout(30)
async def test_a_request_that_comes_in_the_very_moment_when_the_worker_is_there_does_not_freeze_the_broker(
    tenant: Tenant,
) -> None:
    first = asyncio.ensure_future(tenant.awake())
    await asyncio.sleep(0)  # the start is about to begin; it is over in one step, and right behind it comes
    second = asyncio.ensure_future(tenant.awake())

    assert await first is await second


async def test_many_requests_start_one_worker(tenant: Tenant, house: House) -> None:
    workers = await asyncio.gather(*(tenant.awake() for _ in range(20)))

    assert len(house.started) == 1
    assert len(set(workers)) == 1


async def test_a_request_that_is_given_up_does_not_stop_the_start(tenant: Tenant, house: House) -> None:
    asking = asyncio.ensure_future(tenant.awake())
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    await settled(tenant)
    assert tenant.worker is not None


async def test_one_who_has_died_is_started_again_unasked(tenant: Tenant, house: House, clock: FakeClock) -> None:
    worker = await tenant.awake()
    house.started[0].kill()
    await worker.gone.wait()

    tenant.tend(clock.now())
    await settled(tenant)

    assert len(house.started) == 2
    assert tenant.worker is not None
    assert not tenant.worker.gone.is_set()


async def test_one_who_was_idle_is_stopped_and_stays_so(tenant: Tenant, house: House, clock: FakeClock) -> None:
    worker = await tenant.awake()
    clock.pass_seconds(IDLE)
    tenant.tend(clock.now())
    await settled(tenant)
    assert worker.gone.is_set()
    assert house.started[0].returncode == -signal.SIGTERM

    tenant.tend(clock.now())
    await settled(tenant)

    assert len(house.started) == 1
    assert tenant.state == "asleep"


async def test_one_who_is_used_is_left_alone(tenant: Tenant, clock: FakeClock) -> None:
    await tenant.awake()
    with tenant.visit():
        clock.pass_seconds(10 * IDLE)
        tenant.tend(clock.now())
        assert tenant.state == "running"
    tenant.tend(clock.now())

    assert tenant.state == "running", "the time begins when the request ends"


async def test_one_who_says_that_it_works_is_left_alone(tenant: Tenant, house: House, clock: FakeClock) -> None:
    house.says(idle='{"idle": false, "why": ["1 turns are played"], "wake_at": null}')
    worker = await tenant.awake()
    clock.pass_seconds(IDLE)
    tenant.tend(clock.now())
    await settled(tenant)

    assert not worker.gone.is_set()


async def test_one_with_a_schedule_is_there_when_it_is_due(tenant: Tenant, house: House, clock: FakeClock) -> None:
    house.says(idle='{"idle": true, "why": [], "wake_at": "2100-01-01T00:00:00.000000Z"}')
    await tenant.awake()
    clock.pass_seconds(IDLE)
    tenant.tend(clock.now())
    await settled(tenant)
    assert tenant.worker is None
    due = tenant.wake_at
    assert due is not None
    assert read_wake(house.folder) == due

    tenant.tend(due - 1)
    assert tenant.state == "asleep"
    tenant.tend(due)
    await settled(tenant)

    assert tenant.worker is not None
    assert tenant.wake_at is None


async def test_a_request_that_meets_a_reclaim_gets_the_next_worker(
    tenant: Tenant, house: House, clock: FakeClock
) -> None:
    first = await tenant.awake()
    clock.pass_seconds(IDLE)
    tenant.tend(clock.now())
    second = await tenant.awake()

    assert first.gone.is_set()
    assert second is not first
    assert not second.gone.is_set()


async def test_one_who_lets_a_request_down_but_answers_is_kept(tenant: Tenant, house: House) -> None:
    worker = await tenant.awake()

    assert await tenant.awake(failed=worker) is worker


async def test_one_who_leaves_is_waited_for(tenant: Tenant, house: House) -> None:
    worker = await tenant.awake()
    house.says(idle="", ready='{"checks": {"accepting": "leaving"}}')
    asking = asyncio.ensure_future(tenant.awake(failed=worker))
    await asyncio.sleep(0)
    house.started[0].terminate()

    assert await asking is not worker


async def test_one_who_hangs_while_somebody_waits_is_killed(house: House, clock: FakeClock) -> None:
    tenant = new_tenant(house, Rules(idle_seconds=IDLE, stop_seconds=20, requests=2, answer_seconds=0.2))
    worker = await tenant.awake()
    house.started[0].send_signal(signal.SIGSTOP)
    clock.pass_seconds(10 * IDLE)
    with tenant.visit():
        while not worker.gone.is_set():
            tenant.tend(clock.now())
            await asyncio.sleep(0.01)
            clock.pass_seconds(60)

        assert await tenant.awake(failed=worker) is not worker
    assert house.started[0].returncode == -signal.SIGKILL
    await tenant.leave("the broker leaves")


async def test_one_who_only_works_hard_is_left_alone(tenant: Tenant, house: House, clock: FakeClock) -> None:
    worker = await tenant.awake()
    with tenant.visit():
        for _ in range(20):
            clock.pass_seconds(60)
            tenant.tend(clock.now())
            await asyncio.sleep(0.01)

    assert not worker.gone.is_set()
    await tenant.leave("the broker leaves")


async def test_another_key_is_another_worker(tenant: Tenant, house: House, clock: FakeClock) -> None:
    worker = await tenant.awake()
    tenant.user = User(name="ada", digest="", worker_key="k2", added_at=0)
    tenant.tend(clock.now())
    await settled(tenant)

    assert worker.gone.is_set()
    assert (await tenant.awake()).state.key == "k2"


async def test_there_is_a_limit_to_open_requests(tenant: Tenant) -> None:
    with tenant.visit(), tenant.visit(), pytest.raises(RateLimited), tenant.visit():
        pass

    assert tenant.open == 0
    with tenant.visit():
        pass


async def test_one_that_cannot_be_started_is_said_so_and_given_up_in_the_end(
    tenant: Tenant, house: House, clock: FakeClock
) -> None:
    house.fails = True
    for _ in range(tenants.GIVE_UP):
        with pytest.raises(Unavailable):
            await tenant.awake()
    tenant.miss()
    tenant.tend(clock.now())
    assert tenant.state == "failing"
    assert tenant.complaint == "it could not be started"

    house.fails = False
    await tenant.awake()

    assert tenant.state == "running"
    assert tenant.complaint == ""


async def test_a_broker_that_leaves_notes_who_was_in_the_midst_of_something(tenant: Tenant, house: House) -> None:
    house.says(idle='{"idle": false, "why": ["1 turns are played"], "wake_at": null}')
    worker = await tenant.awake()

    await tenant.leave("the broker leaves")

    assert worker.gone.is_set()
    assert read_wake(house.folder) == 0


def test_a_pace_lets_a_burst_through_and_then_no_more_than_its_rate(clock: FakeClock) -> None:
    pace = Pace(100, clock.monotonic)
    clock.pass_seconds(10)

    assert pace.delay(100 * 1024) == 0
    assert pace.delay(50 * 1024) == pytest.approx(0.5)
    clock.pass_seconds(0.5)
    assert pace.delay(100 * 1024) == pytest.approx(1.0)


def test_no_pace_is_no_delay(clock: FakeClock) -> None:
    assert Pace(None, clock.monotonic).delay(2**40) == 0
