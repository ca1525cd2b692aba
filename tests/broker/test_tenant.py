"""When a worker is started, kept, stopped and restarted: a table of decisions, tested with real processes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.broker import tenant as tenants
from holdfast.broker.rate_limit import RateLimit
from holdfast.broker.tenant import Tenant, TenantLimits, read_wake
from holdfast.broker.users import User
from holdfast.broker.worker import WorkerProcess, WorkerState
from holdfast.model.errors import RateLimited, Unavailable
from holdfast.process_lookup import current_identity, get_start_time
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


class FakeBroker:
    """Starts small programs in place of workers, and ends the remaining ones."""

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

    async def start(self, user: User) -> WorkerProcess:
        if self.fails:
            raise Unavailable("it could not be started")
        (self.folder / "sock").unlink(missing_ok=True)
        command = (sys.executable, "-S", "-c", PROGRAM, str(self.folder), str(self.folder / "says"))
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        self.started.append(child)
        ours = current_identity()
        state = WorkerState(
            host=ours.host,
            boot=ours.boot,
            pid=child.pid,
            started=get_start_time(child.pid) or "",
            key=user.worker_key,
            at=self.clock.now(),
        )
        worker = WorkerProcess(self.folder, state, os.pidfd_open(child.pid))
        worker.child = child
        return worker

    def close(self) -> None:
        for child in self.started:
            if child.poll() is None:
                child.kill()
            child.wait()


@pytest.fixture
async def fake_broker(tmp_path: Path, clock: FakeClock) -> AsyncIterator[FakeBroker]:
    found = FakeBroker(tmp_path, clock)
    yield found
    found.close()
    await asyncio.sleep(0)


USER = User(name="ada", digest="", worker_key="k1", added_at=0)


def new_tenant(fake_broker: FakeBroker, rules: TenantLimits) -> Tenant:
    return Tenant(
        USER, rules, fake_broker.start, RateLimit(None, fake_broker.clock.monotonic), fake_broker.clock.monotonic
    )


@pytest.fixture
async def tenant(fake_broker: FakeBroker, clock: FakeClock) -> AsyncIterator[Tenant]:
    rules = TenantLimits(idle_seconds=IDLE, stop_seconds=20, requests=2, longest_wait=0.001)
    found = new_tenant(fake_broker, rules)
    yield found
    if found.worker is not None:
        found.worker.close()


async def settled(tenant: Tenant) -> None:
    while tenant.state == "changing":
        await asyncio.sleep(0.01)


@pytest.mark.timeout(30)
async def test_a_request_at_the_moment_when_the_worker_is_ready_does_not_freeze_the_broker(
    tenant: Tenant,
) -> None:
    first = asyncio.ensure_future(tenant.get_worker())
    await asyncio.sleep(0)  # the start is about to begin; it is over in one step, and right behind it comes
    second = asyncio.ensure_future(tenant.get_worker())

    assert await first is await second


async def test_many_requests_start_one_worker(tenant: Tenant, fake_broker: FakeBroker) -> None:
    workers = await asyncio.gather(*(tenant.get_worker() for _ in range(20)))

    assert len(fake_broker.started) == 1
    assert len(set(workers)) == 1


async def test_a_cancelled_request_does_not_stop_the_start(tenant: Tenant, fake_broker: FakeBroker) -> None:
    asking = asyncio.ensure_future(tenant.get_worker())
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    await settled(tenant)
    assert tenant.worker is not None


async def test_a_dead_worker_is_restarted_automatically(
    tenant: Tenant, fake_broker: FakeBroker, clock: FakeClock
) -> None:
    worker = await tenant.get_worker()
    fake_broker.started[0].kill()
    await worker.gone.wait()

    tenant.maintain(clock.now())
    await settled(tenant)

    assert len(fake_broker.started) == 2
    assert tenant.worker is not None
    assert not tenant.worker.gone.is_set()


async def test_an_idle_worker_is_stopped_and_stays_stopped(
    tenant: Tenant, fake_broker: FakeBroker, clock: FakeClock
) -> None:
    worker = await tenant.get_worker()
    clock.pass_seconds(IDLE)
    tenant.maintain(clock.now())
    await settled(tenant)
    assert worker.gone.is_set()
    assert fake_broker.started[0].returncode == -signal.SIGTERM

    tenant.maintain(clock.now())
    await settled(tenant)

    assert len(fake_broker.started) == 1
    assert tenant.state == "asleep"


async def test_a_worker_in_use_is_not_stopped(tenant: Tenant, clock: FakeClock) -> None:
    await tenant.get_worker()
    with tenant.track_request():
        clock.pass_seconds(10 * IDLE)
        tenant.maintain(clock.now())
        assert tenant.state == "running"
    tenant.maintain(clock.now())

    assert tenant.state == "running", "the time begins when the request ends"


async def test_a_worker_that_reports_work_is_not_stopped(
    tenant: Tenant, fake_broker: FakeBroker, clock: FakeClock
) -> None:
    fake_broker.says(idle='{"idle": false, "why": ["1 turns are running"], "wake_at": null}')
    worker = await tenant.get_worker()
    clock.pass_seconds(IDLE)
    tenant.maintain(clock.now())
    await settled(tenant)

    assert not worker.gone.is_set()


async def test_a_worker_with_a_schedule_is_running_when_it_is_due(
    tenant: Tenant, fake_broker: FakeBroker, clock: FakeClock
) -> None:
    fake_broker.says(idle='{"idle": true, "why": [], "wake_at": "2100-01-01T00:00:00.000000Z"}')
    await tenant.get_worker()
    clock.pass_seconds(IDLE)
    tenant.maintain(clock.now())
    await settled(tenant)
    assert tenant.worker is None
    due = tenant.wake_at
    assert due is not None
    assert read_wake(fake_broker.folder) == due

    tenant.maintain(due - 1)
    assert tenant.state == "asleep"
    tenant.maintain(due)
    await settled(tenant)

    assert tenant.worker is not None
    assert tenant.wake_at is None


async def test_a_request_during_a_stop_gets_the_next_worker(
    tenant: Tenant, fake_broker: FakeBroker, clock: FakeClock
) -> None:
    first = await tenant.get_worker()
    clock.pass_seconds(IDLE)
    tenant.maintain(clock.now())
    second = await tenant.get_worker()

    assert first.gone.is_set()
    assert second is not first
    assert not second.gone.is_set()


async def test_a_worker_that_failed_one_request_but_responds_is_kept(tenant: Tenant, fake_broker: FakeBroker) -> None:
    worker = await tenant.get_worker()

    assert await tenant.get_worker(failed=worker) is worker


async def test_a_worker_that_shuts_down_is_awaited(tenant: Tenant, fake_broker: FakeBroker) -> None:
    worker = await tenant.get_worker()
    fake_broker.says(idle="", ready='{"checks": {"accepting": "leaving"}}')
    asking = asyncio.ensure_future(tenant.get_worker(failed=worker))
    await asyncio.sleep(0)
    fake_broker.started[0].terminate()

    assert await asking is not worker


async def test_a_worker_that_hangs_while_a_request_is_open_is_killed(fake_broker: FakeBroker, clock: FakeClock) -> None:
    tenant = new_tenant(fake_broker, TenantLimits(idle_seconds=IDLE, stop_seconds=20, requests=2, answer_seconds=0.2))
    worker = await tenant.get_worker()
    fake_broker.started[0].send_signal(signal.SIGSTOP)
    clock.pass_seconds(10 * IDLE)
    with tenant.track_request():
        while not worker.gone.is_set():
            tenant.maintain(clock.now())
            await asyncio.sleep(0.01)
            clock.pass_seconds(60)

        assert await tenant.get_worker(failed=worker) is not worker
    assert fake_broker.started[0].returncode == -signal.SIGKILL
    await tenant.leave("the broker leaves")


async def test_a_busy_worker_is_not_killed(tenant: Tenant, fake_broker: FakeBroker, clock: FakeClock) -> None:
    worker = await tenant.get_worker()
    with tenant.track_request():
        for _ in range(20):
            clock.pass_seconds(60)
            tenant.maintain(clock.now())
            await asyncio.sleep(0.01)

    assert not worker.gone.is_set()
    await tenant.leave("the broker leaves")


async def test_a_new_key_starts_another_worker(tenant: Tenant, fake_broker: FakeBroker, clock: FakeClock) -> None:
    worker = await tenant.get_worker()
    tenant.user = User(name="ada", digest="", worker_key="k2", added_at=0)
    tenant.maintain(clock.now())
    await settled(tenant)

    assert worker.gone.is_set()
    assert (await tenant.get_worker()).state.key == "k2"


async def test_open_requests_are_limited(tenant: Tenant) -> None:
    with tenant.track_request(), tenant.track_request(), pytest.raises(RateLimited), tenant.track_request():
        pass

    assert tenant.open == 0
    with tenant.track_request():
        pass


async def test_a_worker_that_cannot_start_is_reported_and_no_longer_retried_in_the_end(
    tenant: Tenant, fake_broker: FakeBroker, clock: FakeClock
) -> None:
    fake_broker.fails = True
    for _ in range(tenants.MAX_RESTARTS):
        with pytest.raises(Unavailable):
            await tenant.get_worker()
    tenant.mark_lost()
    tenant.maintain(clock.now())
    assert tenant.state == "failing"
    assert tenant.complaint == "it could not be started"

    fake_broker.fails = False
    await tenant.get_worker()

    assert tenant.state == "running"
    assert tenant.complaint == ""


async def test_a_broker_that_shuts_down_records_workers_with_unfinished_work(
    tenant: Tenant, fake_broker: FakeBroker
) -> None:
    fake_broker.says(idle='{"idle": false, "why": ["1 turns are running"], "wake_at": null}')
    worker = await tenant.get_worker()

    await tenant.leave("the broker leaves")

    assert worker.gone.is_set()
    assert read_wake(fake_broker.folder) == 0


def test_a_rate_limit_allows_a_burst_and_then_no_more_than_its_rate(clock: FakeClock) -> None:
    pace = RateLimit(100, clock.monotonic)
    clock.pass_seconds(10)

    assert pace.delay(100 * 1024) == 0
    assert pace.delay(50 * 1024) == pytest.approx(0.5)
    clock.pass_seconds(0.5)
    assert pace.delay(100 * 1024) == pytest.approx(1.0)


def test_without_a_rate_limit_there_is_no_delay(clock: FakeClock) -> None:
    assert RateLimit(None, clock.monotonic).delay(2**40) == 0
