"""`holdfast cron`: prompts that are said at set times."""

from typing import TYPE_CHECKING, cast

import click
import msgspec

from holdfast import config
from holdfast.cli import errors, face, render, reply, signals
from holdfast.cron import Cron, check, following
from holdfast.interop import shapes
from holdfast.interop.visible import one_line, visible
from holdfast.model.errors import Invalid
from holdfast.providers import choose
from holdfast.store import outbox, schedules
from holdfast.store.schedules import PREFIX, Missed, Schedule, Slot

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.engine.engine import Engine
    from holdfast.store.database import Transaction

SLOTS = 20


@click.group()
def cron() -> None:
    """Prompts that are said at set times, by `holdfast serve`."""


@cron.command()
@click.argument("when", metavar="SCHEDULE")
@click.argument("prompt")
@click.option("--deliver", metavar="CHANNEL", help="Where the reply goes, such as telegram:42.")
@click.option("--timezone", default="local", show_default=True, help="The zone of the schedule, such as Europe/Berlin.")
@click.option(
    "--missed",
    type=click.Choice(["run", "skip"]),
    default="run",
    show_default=True,
    help="What becomes of a time at which nobody was there: the newest is made up for, or none.",
)
@click.option("--model", metavar="PROVIDER:NAME", help="The model to ask.")
@face.json_option
def add(
    *, when: str, prompt: str, deliver: str | None, timezone: str, missed: str, model: str | None, as_json: bool
) -> None:
    """Say PROMPT at set times. SCHEDULE has five fields: minute, hour, day, month, weekday."""
    check(when, timezone)
    if not prompt.strip():
        raise Invalid("there is nothing to say: the prompt is empty")
    if deliver is not None:
        _check_delivery(deliver)
    if model is not None:
        choose.parse(model)
    tz = config.environment().get("TZ", "")

    def work(tx: "Transaction", app: "App") -> Schedule:
        at = app.clock.now()
        added = Schedule(
            app.ids.make(PREFIX),
            when,
            timezone,
            prompt,
            deliver,
            model,
            cast("Missed", missed),
            following(when, timezone, at, tz),
            at,
        )
        schedules.add(tx, added)
        return added

    added = face.write(work)
    if as_json:
        render.document(_schedule(added))
    else:
        render.out(f"{added.id}: first at {render.day(added.next_at)}")


def _check_delivery(channel: str) -> None:
    """Raises Invalid for what is no chat; of a platform that is not there the person is told, for it may come."""
    platform = outbox.address_of(channel).platform
    if platform not in face.settings().gateway.platforms:
        face.note(f"there is no [gateway.{platform}] in the settings; until there is one, replies wait")


def _schedule(schedule: Schedule) -> dict[str, object]:
    return {
        "id": schedule.id,
        "schedule": schedule.cron,
        "timezone": schedule.timezone,
        "prompt": schedule.prompt,
        "deliver": schedule.deliver,
        "model": schedule.model,
        "missed": schedule.missed,
        "next_at": shapes.time(schedule.next_at),
        "created_at": shapes.time(schedule.created_at),
        "removed_at": shapes.time(schedule.removed_at),
    }


@cron.command("list")
@face.json_option
def list_(*, as_json: bool) -> None:
    """All schedules, when each comes next, and how its times have ended."""
    found = face.read(lambda tx: [(one, schedules.counts(tx, one.id)) for one in schedules.every(tx)])
    if as_json:
        render.document({"schedules": [_schedule(one) | {"slots": counts} for one, counts in found]})
        return
    rows = [
        [
            one.id,
            one.cron,
            render.day(one.next_at),
            ", ".join(f"{count} {state}" for state, count in counts.items()),
            one.deliver or "",
            one.prompt,
        ]
        for one, counts in found
    ]
    render.table(["id", "schedule", "next", "so far", "deliver", "prompt"], rows, stretch=5)


@cron.command()
@click.argument("ref", metavar="ID")
@click.option(
    "--slots", "count", type=click.IntRange(1, 10_000), default=SLOTS, show_default=True, help="How many times."
)
@face.json_option
def show(*, ref: str, count: int, as_json: bool) -> None:
    """A schedule and what became of the times it was due, the newest first."""

    def work(tx: "Transaction") -> tuple[Schedule, list[Slot]]:
        schedule = schedules.resolve(tx, ref)
        return schedule, schedules.slots(tx, schedule.id, count)

    schedule, found = face.read(work)
    if as_json:
        render.document({"schedule": _schedule(schedule), "slots": [_slot(one) for one in found]})
        return
    render.out(visible(f"{schedule.id}  {schedule.cron}  {schedule.timezone}\n{schedule.prompt}"))
    rows = [[render.day(one.due_at), one.state, one.session_id or "", one.reason] for one in found]
    render.table(["due", "state", "session", "reason"], rows, stretch=3)


def _slot(slot: Slot) -> dict[str, object]:
    return {
        "due_at": shapes.time(slot.due_at),
        "state": slot.state,
        "reason": slot.reason,
        "session_id": slot.session_id,
        "turn_id": slot.turn_id,
        "began_at": shapes.time(slot.began_at),
        "ended_at": shapes.time(slot.ended_at),
    }


@cron.command()
@click.argument("refs", metavar="ID...", nargs=-1, required=True)
def remove(*, refs: tuple[str, ...]) -> None:
    """Say it no more. What runs is finished, and the past is kept."""

    def work(tx: "Transaction", app: "App") -> list[Schedule]:
        found = [schedules.resolve(tx, ref) for ref in refs]
        for one in found:
            schedules.remove(tx, one.id, at=app.clock.now())
        return found

    for one in face.write(work):
        render.out(one_line(f"{one.id} is removed: {one.cron} {one.prompt}"))


@cron.command("run")
@click.argument("ref", metavar="ID")
def run_(*, ref: str) -> int:
    """Say it now, and print the reply. Should this be killed, a worker that serves goes on with it."""
    return face.with_app(lambda app: _run(app, ref))


async def _run(app: "App", ref: str) -> int:
    from holdfast.assemble import open_engine

    schedule = await app.database.read(schedules.resolve, ref)
    async with open_engine(app.database, app.settings, config.environment(), kind="cron") as engine:
        return await signals.unless_signalled(_turn(engine, app, schedule), engine.drain, engine.death)


async def _turn(engine: "Engine", app: "App", schedule: Schedule) -> int:
    begun = await Cron(engine, app.settings.model).run_now(schedule)
    # The turn may have gone on before we listen: what was missed is read in the store.
    admission = msgspec.structs.replace(begun, began=False, repeated=True)
    subscription = engine.ground.bus.subscribe(admission.session.id)
    try:
        outcome = await reply.show(engine.follow(admission, subscription), words=None, notes=None)
    finally:
        engine.ground.bus.unsubscribe(admission.session.id, subscription)
    render.out(visible(outcome.text))
    problem = reply.complaint(outcome.ended)
    if problem is None:
        return errors.DONE
    face.note(f"holdfast: {problem} (session {admission.session.id})")
    return errors.FAILED
