"""The page of schedules and their runs."""

from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import templating
from holdfast.dashboard.context import get_context
from holdfast.dashboard.forms import action_response, get_fields, require_field
from holdfast.model.errors import Invalid
from holdfast.store.database import Transaction
from holdfast.store.repos import schedules
from holdfast.store.repos.schedules import Schedule, ScheduleSlot

MAX_SLOTS = 14


async def show_schedules(request: Request) -> Response:
    context = get_context(request)
    found = await context.database.read(_read_all)
    return templating.page_response(request, "cron.html", schedules=found, now=context.now)


def _read_all(tx: Transaction) -> list[tuple[Schedule, dict[str, int], list[ScheduleSlot]]]:
    return [
        (one, schedules.count_slots(tx, one.id), schedules.list_slots(tx, one.id, MAX_SLOTS)[::-1])
        for one in schedules.list_all(tx)
    ]


async def add_schedule(request: Request) -> Response:
    fields = get_fields(request)
    missed = fields.get("missed", "run")
    if missed not in ("run", "skip"):
        raise Invalid("missed must be run or skip")
    zone, deliver = fields.get("timezone", "").strip() or "local", fields.get("deliver", "").strip() or None
    added = await get_context(request).schedules.add(
        require_field(request, "when").strip(), zone, require_field(request, "prompt"), deliver, missed
    )
    return action_response(request, f"Schedule {added.id} added", "/ui/cron")


async def run_schedule(request: Request) -> Response:
    context = get_context(request)
    schedule = await context.database.read(schedules.resolve, request.path_params["id"])
    session_id = await context.schedules.run(schedule)
    return action_response(request, "Running now", f"/ui/s/{session_id}", move=True)


async def remove_schedule(request: Request) -> Response:
    context = get_context(request)

    def work(tx: Transaction) -> str:
        found = schedules.resolve(tx, request.path_params["id"])
        schedules.remove(tx, found.id, at=context.now)
        return found.id

    return action_response(
        request, f"{await context.database.write(work)} removed; its past sessions are kept", "/ui/cron"
    )
