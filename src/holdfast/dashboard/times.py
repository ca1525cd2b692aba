"""The page of schedules: prompts that are said at set times, and what became of them."""

from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import pages
from holdfast.dashboard.desk import of
from holdfast.dashboard.forms import done, fields, needed
from holdfast.model.errors import Invalid
from holdfast.store import schedules
from holdfast.store.database import Transaction
from holdfast.store.schedules import Schedule, Slot

SLOTS = 14


async def cron(request: Request) -> Response:
    desk = of(request)
    found = await desk.database.read(_every)
    return pages.page(request, "cron.html", schedules=found, now=desk.now)


def _every(tx: Transaction) -> list[tuple[Schedule, dict[str, int], list[Slot]]]:
    return [
        (one, schedules.counts(tx, one.id), schedules.slots(tx, one.id, SLOTS)[::-1]) for one in schedules.every(tx)
    ]


async def add(request: Request) -> Response:
    given = fields(request)
    missed = given.get("missed", "run")
    if missed not in ("run", "skip"):
        raise Invalid("what was missed is run or skipped")
    zone, deliver = given.get("timezone", "").strip() or "local", given.get("deliver", "").strip() or None
    added = await of(request).timetable.add(
        needed(request, "when").strip(), zone, needed(request, "prompt"), deliver, missed
    )
    return done(request, f"{added.id} is added", "/ui/cron")


async def run(request: Request) -> Response:
    desk = of(request)
    schedule = await desk.database.read(schedules.resolve, request.path_params["id"])
    session_id = await desk.timetable.run(schedule)
    return done(request, "It is said now", f"/ui/s/{session_id}", move=True)


async def remove(request: Request) -> Response:
    desk = of(request)

    def work(tx: Transaction) -> str:
        found = schedules.resolve(tx, request.path_params["id"])
        schedules.remove(tx, found.id, at=desk.now)
        return found.id

    return done(request, f"{await desk.database.write(work)} is removed; its past is kept", "/ui/cron")
