"""`holdfast cron`: run prompts on a schedule."""

from typing import TYPE_CHECKING, cast

import click

from holdfast import config
from holdfast.cli import context, errors, render, signals, turn_output
from holdfast.cli.parsing.groups import SuggestingGroup
from holdfast.clock import format_local_time, load_zone
from holdfast.cron import Cron, check_schedule, next_slot
from holdfast.interop.serialization import format_time
from holdfast.model.errors import Invalid
from holdfast.model.sanitize import one_line, visible
from holdfast.model.times import moment
from holdfast.providers import registry
from holdfast.settings import TERMINALS
from holdfast.store.repos import outbox, schedules
from holdfast.store.repos.schedules import PREFIX, Missed, Schedule, ScheduleSlot

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine
    from holdfast.store.database import Transaction
    from holdfast.wiring.store import App

SLOTS = 20


@click.group(cls=SuggestingGroup)
def cron() -> None:
    """Run prompts on a schedule, in `holdfast serve`."""


@cron.command()
@click.argument("when", metavar="SCHEDULE")
@click.argument("prompt")
@click.option("--deliver", metavar="CHANNEL", help="Send the reply to this channel, such as telegram:42.")
@click.option(
    "--timezone", default="local", show_default=True, help="Set the time zone of the schedule, such as Europe/Berlin."
)
@click.option(
    "--missed",
    type=click.Choice(["run", "skip"]),
    default="run",
    show_default=True,
    help="Run the latest missed slot, or skip missed slots.",
)
@click.option("--model", metavar="PROVIDER:NAME", help="Use this model.")
@click.option("--terminal", type=click.Choice(TERMINALS), help="Run commands in this backend.")
@context.json_option
def add(
    *,
    when: str,
    prompt: str,
    deliver: str | None,
    timezone: str,
    missed: str,
    model: str | None,
    terminal: str | None,
    as_json: bool,
) -> None:
    """Run PROMPT on a schedule. SCHEDULE has five fields: minute, hour, day, month, weekday."""
    check_schedule(when, timezone)
    if not prompt.strip():
        raise Invalid("the prompt is empty")
    if deliver is not None:
        _check_delivery(deliver)
    if model is not None:
        registry.parse(model)
    context.require_terminal(terminal)
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
            next_slot(when, timezone, at, tz),
            at,
            terminal=terminal or "",
        )
        schedules.add(tx, added)
        return added

    added = context.write(work)
    if as_json:
        render.print_json(_schedule_document(added))
    else:
        render.print_text(f"Added schedule {added.id}; first run at {_in_its_zone(added.next_at, timezone, tz)}")


def _in_its_zone(at: int, timezone: str, tz: str) -> str:
    """The time as the schedule counts it, with the name of its time zone."""
    shown = moment(at).astimezone(load_zone(timezone, tz))
    return f"{shown:%Y-%m-%d %H:%M} {f'{shown:%Z}' if timezone == 'local' else timezone}"


def _check_delivery(channel: str) -> None:
    """Raise Invalid for a malformed channel. A platform that is not configured yet only gets a notice."""
    platform = outbox.parse_channel(channel).platform
    if platform not in context.settings().gateway.platforms:
        context.note(f"[gateway.{platform}] is not configured; replies stay queued until it is")


def _schedule_document(schedule: Schedule) -> dict[str, object]:
    return {
        "id": schedule.id,
        "schedule": schedule.cron,
        "timezone": schedule.timezone,
        "prompt": schedule.prompt,
        "deliver": schedule.deliver,
        "model": schedule.model,
        "terminal": schedule.terminal or None,
        "missed": schedule.missed,
        "next_at": format_time(schedule.next_at),
        "created_at": format_time(schedule.created_at),
        "removed_at": format_time(schedule.removed_at),
    }


@cron.command("list")
@context.json_option
def list_(*, as_json: bool) -> None:
    """List schedules, with next run and results."""
    found = context.read(lambda tx: [(one, schedules.count_slots(tx, one.id)) for one in schedules.list_all(tx)])
    if as_json:
        render.print_json({"schedules": [_schedule_document(one) | {"slots": counts} for one, counts in found]})
        return
    rows = [
        [
            one.id,
            one.cron,
            format_local_time(one.next_at),
            ", ".join(f"{count} {state}" for state, count in counts.items()),
            one.deliver or "",
            one.prompt,
        ]
        for one, counts in found
    ]
    render.print_table(["id", "schedule", "next run", "runs", "deliver to", "prompt"], rows, stretch=5)


@cron.command()
@click.argument("ref", metavar="ID")
@click.option(
    "--slots",
    "count",
    type=click.IntRange(1, 10_000),
    default=SLOTS,
    show_default=True,
    help="Show at most this many runs.",
)
@context.json_option
def show(*, ref: str, count: int, as_json: bool) -> None:
    """Show a schedule and its runs, newest first."""

    def work(tx: "Transaction") -> tuple[Schedule, list[ScheduleSlot]]:
        schedule = schedules.resolve(tx, ref)
        return schedule, schedules.list_slots(tx, schedule.id, count)

    schedule, found = context.read(work)
    if as_json:
        render.print_json({"schedule": _schedule_document(schedule), "slots": [_slot_document(one) for one in found]})
        return
    render.print_text(visible(f"{schedule.id}  {schedule.cron}  {schedule.timezone}\n{schedule.prompt}"))
    rows = [[format_local_time(one.due_at), one.state, one.session_id or "", one.reason] for one in found]
    render.print_table(["due", "state", "session", "reason"], rows, stretch=3)


def _slot_document(slot: ScheduleSlot) -> dict[str, object]:
    return {
        "due_at": format_time(slot.due_at),
        "state": slot.state,
        "reason": slot.reason,
        "session_id": slot.session_id,
        "turn_id": slot.turn_id,
        "began_at": format_time(slot.began_at),
        "ended_at": format_time(slot.ended_at),
    }


@cron.command()
@click.argument("refs", metavar="ID...", nargs=-1, required=True)
def remove(*, refs: tuple[str, ...]) -> None:
    """Delete schedules. A running turn finishes, and past sessions are kept."""

    def work(tx: "Transaction", app: "App") -> list[Schedule]:
        found = [schedules.resolve(tx, ref) for ref in refs]
        for one in found:
            schedules.remove(tx, one.id, at=app.clock.now())
        return found

    for one in context.write(work):
        render.print_text(one_line(f"Removed schedule {one.id}: {one.cron} {one.prompt}"))


@cron.command("run")
@click.argument("ref", metavar="ID")
def run_(*, ref: str) -> int:
    """Run a schedule now and print the reply. If this command is killed, a server finishes the turn."""
    context.hide_secrets()
    return context.with_app(lambda app: _run(app, ref))


async def _run(app: "App", ref: str) -> int:
    from holdfast.wiring.engine import open_engine

    schedule = await app.database.read(schedules.resolve, ref)
    async with open_engine(
        app.database, app.settings, config.environment(), supervisor=app.supervisor, kind="cron"
    ) as engine:
        return await signals.run_until_signalled(_run_turn(engine, app, schedule), engine.drain, engine.death)


async def _run_turn(engine: "Engine", app: "App", schedule: Schedule) -> int:
    turn = await Cron(engine, app.settings.model).run_now(schedule, stream="live")
    outcome = await turn_output.show(turn.follow(), text_stream=None, note_stream=None)
    render.print_text(visible(outcome.text))
    problem = turn_output.failure_message(outcome.ended)
    if problem is None:
        return errors.DONE
    context.note(f"holdfast: {problem} (session {turn.admission.session.id})")
    return errors.FAILED
