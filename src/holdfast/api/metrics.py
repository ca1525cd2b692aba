"""`/metrics`: counts for Prometheus, in its text format."""

from collections.abc import Iterable, Mapping

import psutil
from starlette.responses import Response

import holdfast
from holdfast.api.doors import Call
from holdfast.api.house import House
from holdfast.engine.census import Census, take_census
from holdfast.engine.janitor import first_look
from holdfast.identity import identity
from holdfast.store import inbox, outbox, sessions, workers
from holdfast.store.database import Transaction

TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, object]
Rows = Iterable[tuple[Labels, int]]
Depths = list[tuple[str, str, int]]
PLACES = ("owned", "waiting", "quarantined", "leaked", "ended")


async def metrics(call: Call) -> Response:
    """Counts of requests, sessions, turns, workers and messages of platforms."""
    counts = await call.house.database.read(_counts)
    return Response("".join([*_of_this_worker(call.house), *_of_the_store(*counts)]), media_type=TYPE)


def _of_this_worker(house: House) -> list[str]:
    requests = sorted(house.tally.requests.items())
    answered = [({"method": method, "status": status}, count) for (method, status), count in requests]
    memory = psutil.Process().memory_info().rss
    return [
        _family("holdfast_info", "gauge", "The release", [({"version": holdfast.__version__}, 1)]),
        _family(
            "holdfast_http_requests_total", "counter", "Requests; status 0 left before they were answered", answered
        ),
        _family("holdfast_event_streams", "gauge", "Open streams of events", [({}, house.tally.streams)]),
        _family("holdfast_turns_in_hand", "gauge", "Sessions that this worker plays", [({}, house.engine.in_hand)]),
        _family("process_resident_memory_bytes", "gauge", "Memory of this worker", [({}, memory)]),
    ]


def _of_the_store(census: Census, living: dict[str, int], waiting: Depths, sending: Depths) -> list[str]:
    places = [({"place": place}, getattr(census, place)) for place in PLACES]
    reasons = [({"reason": reason}, count) for reason, count in sorted(census.by_reason.items())]
    states = [({"state": state}, count) for state, count in sorted(living.items())]
    return [
        _family("holdfast_sessions", "gauge", "Sessions outside the trash; leaked ones there must be none", places),
        _family("holdfast_sessions_ended", "gauge", "Sessions that have ended, by reason", reasons),
        _family("holdfast_workers", "gauge", "Workers by state", states),
        _depths("holdfast_inbox", "Messages of platforms that are not dealt with", waiting),
        _depths("holdfast_outbox", "Deliveries to platforms that are not made", sending),
    ]


def _counts(tx: Transaction) -> tuple[Census, dict[str, int], Depths, Depths]:
    ours = identity()
    states: dict[str, str] = {worker.id: first_look(worker, ours).state for worker in workers.alive(tx)}
    living = {state: list(states.values()).count(state) for state in set(states.values())}
    census = take_census(sessions.stats(tx), {one for one, state in states.items() if state != "dead"})
    return census, living, inbox.depths(tx), outbox.depths(tx)


def _depths(name: str, help_: str, found: Depths) -> str:
    return _family(name, "gauge", help_, [({"platform": p, "state": s}, count) for p, s, count in found])


def _family(name: str, kind: str, help_: str, rows: Rows) -> str:
    lines = [
        f"# HELP {name} {help_}",
        f"# TYPE {name} {kind}",
        *(f"{name}{_labels(on)} {value}" for on, value in rows),
    ]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
