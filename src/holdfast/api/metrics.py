"""`/metrics`: counters and gauges in the Prometheus text format.

If several processes serve the address, each publishes its own metrics every few seconds, and the one that gets the request
reports those of all, with the number of the process as a label.
"""

import asyncio
from collections.abc import Iterable, Mapping

import msgspec
from starlette.responses import Response

import holdfast
from holdfast.api.context import ApiContext
from holdfast.api.native.endpoint import EndpointCall
from holdfast.clock import get_watch
from holdfast.engine.liveness.janitor import assess_worker
from holdfast.engine.stats import SessionStats, compute_stats
from holdfast.model.errors import HoldfastError
from holdfast.model.times import SECOND
from holdfast.process_lookup import current_identity
from holdfast.store.database import Transaction
from holdfast.store.repos import inbox, outbox, session_list, workers
from holdfast.supervisor import BackgroundTask, Completed

TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, object]
Rows = Iterable[tuple[Labels, int]]
Depths = list[tuple[str, str, int]]
STORE_TIMEOUT = 2.0
STORE_UP = ("holdfast_store_up", "gauge", "1 if the store responds; if 0, metrics read from the store are missing")
UP = "1 if the background task works, 0 if it is down"
SESSION_STATES = ("owned", "waiting", "quarantined", "leaked", "ended")
PUBLISH_SECONDS = 5.0


class Family(msgspec.Struct, frozen=True):
    """The values of one metric, each with its labels."""

    name: str
    kind: str
    help: str
    rows: list[tuple[dict[str, str], int]]


async def metrics(call: EndpointCall) -> Response:
    """Report requests, sessions, turns, workers and platform messages for Prometheus."""
    families = _process_families(call.context)
    try:
        async with asyncio.timeout(STORE_TIMEOUT):
            families += _store_families(*await call.context.database.read(_counts))
    except (HoldfastError, TimeoutError):  # report what is known without the store
        families.append(_family(*STORE_UP, [({}, 0)]))
    else:
        families.append(_family(*STORE_UP, [({}, 1)]))
    return Response("".join(map(_render, families)), media_type=TYPE)


def tasks(context: ApiContext) -> Mapping[str, BackgroundTask]:
    """The task that publishes the metrics of this process, if there are others."""
    slot = context.slot
    if slot is None:
        return {}

    async def publish(completed: Completed) -> None:
        while True:
            slot.publish(msgspec.json.encode(_own_families(context)))
            completed()
            await asyncio.sleep(PUBLISH_SECONDS)

    return {"metrics": BackgroundTask(publish, PUBLISH_SECONDS)}


def _process_families(context: ApiContext) -> list[Family]:
    """The metrics of this process, or of all that serve the address."""
    own, slot = _own_families(context), context.slot
    if slot is None:
        return own
    slot.publish(msgspec.json.encode(own))  # no later answer of another process shows older values
    by_process = {slot.number: own}
    by_process |= {number: msgspec.json.decode(text, type=list[Family]) for number, text in slot.read_others().items()}
    replaced: Rows = [({"process": number}, count) for number, count in slot.replacements().items()]
    what = "How often a process that had ended was replaced"
    return [*_merge(by_process), _family("holdfast_process_replacements_total", "counter", what, replaced)]


def _merge(by_process: dict[int, list[Family]]) -> list[Family]:
    """One family of each name, with the number of the process as a label."""
    merged: dict[str, Family] = {}
    for number, families in sorted(by_process.items()):
        for one in families:
            into = merged.setdefault(one.name, msgspec.structs.replace(one, rows=[]))
            into.rows.extend(({"process": str(number), **labels}, value) for labels, value in one.rows)
    return list(merged.values())


def _own_families(context: ApiContext) -> list[Family]:
    return [*_worker_families(context), *_task_families(context)]


def _task_families(context: ApiContext) -> list[Family]:
    """Report the background tasks of this worker."""
    now = context.engine.services.clock.now()
    tasks = context.engine.supervisor.statuses()
    ages = [({"task": task.name}, max(0, now - task.cycle_at) // SECOND) for task in tasks if task.cycle_at is not None]
    return [
        _family("holdfast_task_up", "gauge", UP, [({"task": one.name}, int(one.state != "down")) for one in tasks]),
        _family("holdfast_task_cycle_age_seconds", "gauge", "Seconds since a task last completed a cycle", ages),
        _family(
            "holdfast_task_failures_total",
            "counter",
            "Failures of a background task",
            [({"task": one.name}, one.failures) for one in tasks],
        ),
    ]


def _worker_families(context: ApiContext) -> list[Family]:
    import psutil

    requests = sorted(context.counter.requests.items())
    answered = [({"method": method, "status": status}, count) for (method, status), count in requests]
    memory = psutil.Process().memory_info().rss
    watch = get_watch(context.engine.services.clock)
    return [
        _family("holdfast_info", "gauge", "Release", [({"version": holdfast.__version__}, 1)]),
        _family(
            "holdfast_http_requests_total",
            "counter",
            "Requests; status 0: the client disconnected before the response",
            answered,
        ),
        _family("holdfast_event_streams", "gauge", "Open event streams", [({}, context.counter.streams)]),
        _family(
            "holdfast_turns_in_hand",
            "gauge",
            "Sessions whose turn this worker is running",
            [({}, context.engine.running_sessions)],
        ),
        _family(
            "holdfast_clock_jumps_total", "counter", "Jumps of the system clock", [({}, watch.jumps if watch else 0)]
        ),
        _family(
            "holdfast_clock_untrusted_seconds",
            "gauge",
            "Offset of the system clock from the trusted time",
            [({}, round(watch.untrusted_seconds) if watch else 0)],
        ),
        _family("process_resident_memory_bytes", "gauge", "Memory of this worker", [({}, memory)]),
    ]


def _store_families(
    stats: SessionStats, workers_by_state: dict[str, int], waiting: Depths, sending: Depths
) -> list[Family]:
    sessions = [({"place": state}, getattr(stats, state)) for state in SESSION_STATES]
    reasons = [({"reason": reason}, count) for reason, count in sorted(stats.by_reason.items())]
    states = [({"state": state}, count) for state, count in sorted(workers_by_state.items())]
    return [
        _family("holdfast_sessions", "gauge", "Sessions outside the trash; leaked must be 0", sessions),
        _family("holdfast_sessions_ended", "gauge", "Ended sessions by reason", reasons),
        _family("holdfast_workers", "gauge", "Workers by state", states),
        _depths("holdfast_inbox", "Platform messages not yet handled", waiting),
        _depths("holdfast_outbox", "Platform deliveries not yet made", sending),
    ]


def _counts(tx: Transaction) -> tuple[SessionStats, dict[str, int], Depths, Depths]:
    ours = current_identity()
    states: dict[str, str] = {worker.id: assess_worker(worker, ours).state for worker in workers.list_alive(tx)}
    workers_by_state = {state: list(states.values()).count(state) for state in set(states.values())}
    stats = compute_stats(session_list.count_by_kind(tx), {one for one, state in states.items() if state != "dead"})
    return stats, workers_by_state, inbox.count_by_state(tx), outbox.count_by_state(tx)


def _depths(name: str, help_: str, found: Depths) -> Family:
    return _family(name, "gauge", help_, [({"platform": p, "state": s}, count) for p, s, count in found])


def _family(name: str, kind: str, help_: str, rows: Rows) -> Family:
    return Family(name, kind, help_, [({key: str(value) for key, value in on.items()}, count) for on, count in rows])


def _render(family: Family) -> str:
    name = family.name
    lines = [
        f"# HELP {name} {family.help}",
        f"# TYPE {name} {family.kind}",
        *(f"{name}{_labels(labels)} {value}" for labels, value in family.rows),
    ]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
