"""Runs prompts at scheduled times, each in its own session.

Each time at which a schedule is due (a slot) has exactly one row, regardless of crashes and of the number of workers: the
row is written in the transaction that advances the schedule to its next slot, which only one worker can do. That
transaction also creates the session and admits the prompt, so that after a crash the slot is due or started, never lost.
The transaction that ends the turn also records the result.

The clock parameter does not follow a jump at once (see `clock`). A worker that started while the clock was ahead may
still have advanced a schedule past the true time. So each new `next_at` is checked once: if it is later than the first
slot after now, it is set back to that slot, and slots that were recorded as missed or skipped before they were due are
deleted. A slot that has started never starts again.
"""

import logging
from datetime import datetime, tzinfo

import msgspec

from holdfast.clock import load_zone
from holdfast.engine.admission.admit import Admission, UserInput, admit
from holdfast.engine.engine import Engine
from holdfast.engine.notifications import TopicListener
from holdfast.engine.submission import AdmitInTransaction, Stream, SubmittedTurn
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION, TURN
from holdfast.model.message import Text
from holdfast.model.session import title_line
from holdfast.model.times import MINUTE, SECOND, iso, micros, moment
from holdfast.store.database import Transaction
from holdfast.store.repos import outbox, schedules, sessions
from holdfast.store.repos.schedules import Schedule, ScheduleSlot
from holdfast.supervisor import BackgroundTask, Completed, ignore_cycle

logger = logging.getLogger(__name__)
POLL_SECONDS = 30.0
"""How often schedules are checked if no notification arrives: clocks change and machines sleep."""
GRACE = 5 * MINUTE
"""How late a slot may start and still be on time."""
POSTPONE_DELAY = 60 * MINUTE
"""How long a schedule waits whose time zone is unknown on this machine; arbitrary."""
PAGE = 500
"""Missed slots that are recorded in one transaction."""
TOPIC = "schedules"


def check_schedule(cron: str, timezone: str) -> None:
    """Raise Invalid for a wrong cron expression or time zone."""
    from croniter import croniter

    if len(cron.split()) != 5 or not croniter.is_valid(cron):
        raise Invalid(f"{cron!r} is not a cron expression; use five fields: minute, hour, day, month, weekday")
    try:
        _load_known_zone(timezone, "")
    except Unavailable as e:
        raise Invalid(f"{e}; use local or a name such as Europe/Berlin") from e


def _load_known_zone(timezone: str, tz: str) -> tzinfo:
    """Load a time zone. Raises Unavailable if this machine does not know it: another machine may."""
    from zoneinfo import ZoneInfoNotFoundError

    try:
        return load_zone(timezone, tz)
    except (ZoneInfoNotFoundError, ValueError, OSError) as e:
        raise Unavailable(f"unknown time zone {timezone!r}") from e


def next_slot(cron: str, timezone: str, after: int, tz: str = "") -> int:
    """The first slot after an instant. `tz` is the environment variable TZ.

    A slot that daylight saving skips in spring is due at once; one that occurs twice in autumn is due once, if the hour
    is fixed. Raises Invalid for a schedule that never occurs, and Unavailable for an unknown time zone.
    """
    from croniter import CroniterBadDateError, croniter

    local = _load_known_zone(timezone, tz)
    slots = croniter(cron, moment(after).astimezone(local))
    try:
        found: datetime = slots.get_next(datetime)
        while found.fold and "*" not in cron.split()[1]:
            found = slots.get_next(datetime)
    except CroniterBadDateError as e:
        raise Invalid(f"{cron!r} never occurs") from e
    return micros(found)


class ScheduleDecision(msgspec.Struct, frozen=True):
    """What to do with a due schedule: the slots to record as missed, the slot to start, and the next slot."""

    missed: list[int]
    start: int | None
    next_at: int


def plan_slots(schedule: Schedule, now: int, tz: str = "", limit: int = PAGE) -> ScheduleDecision:
    """Decide about the slots of a due schedule. Pure.

    If no worker was running, the newest slot starts late if the schedule says so, and the others are missed.
    """
    slots: list[int] = []
    at = schedule.next_at
    while at <= now and len(slots) < limit:
        slots.append(at)
        at = next_slot(schedule.cron, schedule.timezone, at, tz)
    newest = slots[-1]
    if at <= now:  # there are more: record these first
        return ScheduleDecision(slots, None, at)
    on_time = now - newest <= GRACE
    if on_time or schedule.missed == "run":
        return ScheduleDecision(slots[:-1], newest, at)
    return ScheduleDecision(slots, None, at)


def earlier_slot(schedule: Schedule, now: int, tz: str = "") -> int | None:
    """The first slot after now, if the schedule's next slot is later than that. Pure."""
    if schedule.next_at <= now:
        return None
    try:
        found = next_slot(schedule.cron, schedule.timezone, now, tz)
    except (Invalid, Unavailable):
        return None
    return found if found < schedule.next_at else None


class Cron:
    """Starts due slots. Every long-lived worker runs one; several on one store share the work."""

    def __init__(self, engine: Engine, default_model: str, tz: str = "") -> None:
        self._engine = engine
        self._services = engine.services
        self._model = default_model
        self._tz = tz
        self._checked: dict[str, int] = {}
        """The next slot of each schedule, after it was checked not to be too late."""
        self._checked_at = 0

    def as_task(self) -> BackgroundTask:
        return BackgroundTask(self.work, POLL_SECONDS)

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Start due slots until cancelled. Errors escape to the supervisor."""
        with TopicListener(self._services.database, TOPIC) as listener:
            while True:
                wait = POLL_SECONDS
                await self.run_due()
                due = await self._services.database.read(schedules.get_next_due)
                if due is not None:
                    wait = min(wait, max((due - self._services.clock.now()) / SECOND, 0.05))
                completed()
                await listener.wait(wait)

    async def run_due(self) -> int:
        """Start the slots that are due now and close orphaned ones. Return the number of started slots."""
        await self._close_orphans()
        await self._set_back()
        started = 0
        while due := await self._services.database.read(schedules.list_due, self._services.clock.now()):
            for schedule in due:
                started += await self._process(schedule)
        return started

    async def _set_back(self) -> None:
        """Set back schedules whose next slot is too late because the clock was ahead when it was computed."""
        now = self._services.clock.now()
        if now < self._checked_at:
            self._checked.clear()
        self._checked_at = now
        for schedule in await self._services.database.read(schedules.list_all):
            if self._checked.get(schedule.id) == schedule.next_at:
                continue
            earlier = earlier_slot(schedule, now, self._tz)
            if earlier is not None and await self._services.database.write(schedules.move_back, schedule, earlier, now):
                logger.warning(
                    "schedule %s: its next slot was %s, computed while the clock was ahead; it is %s now",
                    schedule.id,
                    iso(schedule.next_at),
                    iso(earlier),
                )
            if earlier is None:
                self._checked[schedule.id] = schedule.next_at

    async def _process(self, schedule: Schedule) -> bool:
        now = self._services.clock.now()
        try:
            plan = plan_slots(schedule, now, self._tz)
        except Invalid as e:
            logger.warning("schedule %s is removed: %s", schedule.id, e)
            await self._services.database.write(schedules.remove, schedule.id, at=now)
            return False
        except Unavailable as e:
            await self._postpone(schedule, str(e), now)
            return False
        session_id, turn_id = self._services.ids.make(SESSION), self._services.ids.make(TURN)

        def work(tx: Transaction) -> Admission | None:
            if not schedules.advance(tx, schedule, plan.next_at):
                return None
            reason = (
                "no worker was running" if plan.start is None else "no worker was running; a later slot runs instead"
            )
            schedules.skip_slots(tx, schedule.id, plan.missed, "missed", reason, at=now)
            if plan.start is None:
                return None
            return self._start(tx, schedule, plan.start, session_id, turn_id, now)

        turn = await self._engine.submit(AdmitInTransaction(work))
        if turn is not None:
            logger.info("schedule %s started session %s", schedule.id, session_id)
        return turn is not None

    async def _postpone(self, schedule: Schedule, reason: str, now: int) -> None:
        """Skip a slot of a schedule whose next slot cannot be computed here, and try again later."""
        logger.warning("schedule %s will be retried in %d minutes: %s", schedule.id, POSTPONE_DELAY // MINUTE, reason)

        def work(tx: Transaction) -> None:
            if schedules.advance(tx, schedule, now + POSTPONE_DELAY):
                schedules.skip_slots(tx, schedule.id, [schedule.next_at], "skipped", reason, at=now)

        await self._services.database.write(work)

    def _start(
        self, tx: Transaction, schedule: Schedule, due_at: int, session_id: str, turn_id: str, now: int
    ) -> Admission | None:
        """Start a slot, unless the previous one still runs or this one has already started (the clock was ahead)."""
        if schedules.has_slot(tx, schedule.id, due_at):
            return None
        if schedules.is_running(tx, schedule.id):
            schedules.skip_slots(tx, schedule.id, [due_at], "skipped", "the previous run is still running", at=now)
            return None
        opened = SessionOpened(
            source="cron",
            model=schedule.model or self._model,
            title=title_line(schedule.prompt) or None,
            terminal=schedule.terminal,
            mode=self._services.mode,
        )
        sessions.create(tx, session_id, opened, at=now)
        schedules.open_slot(tx, ScheduleSlot(schedule.id, due_at, "running", "", session_id, turn_id, now, None))
        if schedule.deliver is not None:
            outbox.add_reply_address(tx, session_id, turn_id, outbox.parse_channel(schedule.deliver), at=now)
        message = UserInput(turn_id=turn_id, parts=(Text(schedule.prompt),))
        return admit(tx, session_id, message, worker_id=self._services.worker_id, at=now)

    async def run_now(self, schedule: Schedule, *, stream: Stream | None = None) -> SubmittedTurn:
        """Start a slot now, on request. Raises Invalid if one still runs."""
        now = self._services.clock.now()
        session_id, turn_id = self._services.ids.make(SESSION), self._services.ids.make(TURN)

        def work(tx: Transaction) -> Admission | None:
            if schedules.is_running(tx, schedule.id):
                raise Invalid(f"schedule {schedule.id} is still running")
            return self._start(tx, schedule, now, session_id, turn_id, now)

        turn = await self._engine.submit(AdmitInTransaction(work), stream=stream)
        assert turn is not None, "work() raises if a slot runs, and no slot has this time"
        return turn

    async def _close_orphans(self) -> None:
        """Close slots whose session was abandoned; they would block their schedule."""
        for orphan in await self._services.database.read(schedules.list_orphan_slots):
            reason = orphan.quarantined or "its session was ended before its turn"
            at = self._services.clock.now()
            await self._services.database.write(
                schedules.close_slot, orphan.session_id, orphan.turn_id, "failed", reason, at=at
            )
