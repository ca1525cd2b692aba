"""Schedules: prompts that are said at set times, each in a session of its own.

Each time a schedule is due has exactly one row, whatever happens and however many workers look: the row is written in the
transaction that moves the schedule on to its next time, which only one of them can do. That transaction also
begins the session and admits the prompt, so that a crash leaves the slot due or begun, never lost. The end is
written with the end of the turn, by whoever plays it.
"""

import logging
from datetime import datetime

import msgspec

from holdfast.clock import zone
from holdfast.engine.admit import Admission, Words, admit
from holdfast.engine.bell import Bell
from holdfast.engine.engine import Engine
from holdfast.model.errors import HoldfastError, Invalid
from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION, TURN
from holdfast.model.message import Text
from holdfast.model.session import title_line
from holdfast.model.times import MINUTE, SECOND, micros, moment
from holdfast.store import outbox, schedules, sessions
from holdfast.store.database import Transaction
from holdfast.store.schedules import Schedule, Slot

logger = logging.getLogger(__name__)
LOOK_SECONDS = 30.0
"""How often schedules are looked at, should nobody ring: clocks are set, machines sleep."""
GRACE = 5 * MINUTE
"""How late a slot may begin and still count as on time."""
PAGE = 500
"""Missed slots that are written down in one transaction."""
TOPIC = "schedules"


def check(cron: str, timezone: str) -> None:
    """Raises Invalid for an expression or a zone that makes no sense."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from croniter import croniter

    if len(cron.split()) != 5 or not croniter.is_valid(cron):
        raise Invalid(f"{cron!r} is no schedule; it has five fields: minute, hour, day, month, weekday")
    try:
        if timezone != "local":
            ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as e:
        raise Invalid(f"there is no time zone {timezone!r}; write local, or a name such as Europe/Berlin") from e


def following(cron: str, timezone: str, after: int, tz: str = "") -> int:
    """The first slot after an instant. `tz` is the variable TZ.

    A time that the clocks leave out in spring is made up for at once; one that they repeat in autumn comes once, if the
    hour is a fixed one. Raises Invalid for a schedule that never comes.
    """
    from croniter import CroniterBadDateError, croniter

    where = zone(timezone, tz)
    slots = croniter(cron, moment(after).astimezone(where))
    try:
        found: datetime = slots.get_next(datetime)
        while found.fold and "*" not in cron.split()[1]:
            found = slots.get_next(datetime)
    except CroniterBadDateError as e:
        raise Invalid(f"{cron!r} never comes") from e
    return micros(found)


class Due(msgspec.Struct, frozen=True):
    """What is to be done about a schedule that is due: slots to write down as missed, one to begin, and the next one."""

    missed: list[int]
    begin: int | None
    next_at: int


def plan(schedule: Schedule, now: int, tz: str = "", limit: int = PAGE) -> Due:
    """What a schedule that is due needs now. Pure.

    Of slots that nobody was there for, the newest is begun late if the schedule wants that, and the rest are missed.
    """
    slots: list[int] = []
    at = schedule.next_at
    while at <= now and len(slots) < limit:
        slots.append(at)
        at = following(schedule.cron, schedule.timezone, at, tz)
    newest = slots[-1]
    if at <= now:  # there are more of them: these are written down first
        return Due(slots, None, at)
    on_time = now - newest <= GRACE
    if on_time or schedule.missed == "run":
        return Due(slots[:-1], newest, at)
    return Due(slots, None, at)


class Cron:
    """One in each long-lived worker; several on one store share the work."""

    def __init__(self, engine: Engine, default_model: str, tz: str = "") -> None:
        self._engine = engine
        self._ground = engine.ground
        self._model = default_model
        self._tz = tz

    async def work(self) -> None:
        """Begin what is due, until cancelled: a store that is away is tried again."""
        async with Bell(self._ground.database, TOPIC) as bell:
            while True:
                wait = LOOK_SECONDS
                try:
                    await self.look()
                    due = await self._ground.database.read(schedules.next_due)
                    if due is not None:
                        wait = min(wait, max((due - self._ground.clock.now()) / SECOND, 0.05))
                except HoldfastError as e:
                    logger.warning("schedules are looked at again later: %s", e)
                except Exception:
                    # A bug must not stop all schedules for good, in silence.
                    logger.exception("schedules could not be looked at; they are again later")
                await bell.wait(wait)

    async def look(self) -> int:
        """Begin what is due now, and close what nobody will go on with; how many slots were begun."""
        await self._close_orphans()
        begun = 0
        while due := await self._ground.database.read(schedules.due, self._ground.clock.now()):
            for schedule in due:
                begun += await self._see_to(schedule)
        return begun

    async def _see_to(self, schedule: Schedule) -> bool:
        now = self._ground.clock.now()
        try:
            found = plan(schedule, now, self._tz)
        except Invalid as e:
            logger.warning("schedule %s is removed: %s", schedule.id, e)
            await self._ground.database.write(schedules.remove, schedule.id, at=now)
            return False
        session_id, turn_id = self._ground.ids.make(SESSION), self._ground.ids.make(TURN)

        def work(tx: Transaction) -> Admission | None:
            if not schedules.advance(tx, schedule, found.next_at):
                return None
            reason = "nobody was there" if found.begin is None else "nobody was there; a later one makes up for it"
            schedules.pass_over(tx, schedule.id, found.missed, "missed", reason, at=now)
            if found.begin is None:
                return None
            return self._begin(tx, schedule, found.begin, session_id, turn_id, now)

        admission = await self._engine.admit_by(work)
        if admission is not None:
            logger.info("schedule %s began %s", schedule.id, session_id)
        return admission is not None

    def _begin(
        self, tx: Transaction, schedule: Schedule, due_at: int, session_id: str, turn_id: str, now: int
    ) -> Admission | None:
        """Begin a slot, unless the one before still runs."""
        if schedules.is_running(tx, schedule.id):
            schedules.pass_over(tx, schedule.id, [due_at], "skipped", "the one before still runs", at=now)
            return None
        opened = SessionOpened(
            source="cron", model=schedule.model or self._model, title=title_line(schedule.prompt) or None
        )
        sessions.create(tx, session_id, opened, at=now)
        schedules.open_slot(tx, Slot(schedule.id, due_at, "running", "", session_id, turn_id, now, None))
        if schedule.deliver is not None:
            outbox.expect(tx, session_id, turn_id, outbox.address_of(schedule.deliver), at=now)
        words = Words(turn_id=turn_id, parts=(Text(schedule.prompt),))
        return admit(tx, session_id, words, worker_id=self._ground.worker_id, at=now)

    async def run_now(self, schedule: Schedule) -> Admission:
        """Begin a slot by hand, at this instant. Raises Invalid if one still runs."""
        now = self._ground.clock.now()
        session_id, turn_id = self._ground.ids.make(SESSION), self._ground.ids.make(TURN)

        def work(tx: Transaction) -> Admission | None:
            if schedules.is_running(tx, schedule.id):
                raise Invalid(f"a slot of {schedule.id} still runs")
            return self._begin(tx, schedule, now, session_id, turn_id, now)

        admission = await self._engine.admit_by(work)
        assert admission is not None, "nothing else runs, as was just seen"
        return admission

    async def _close_orphans(self) -> None:
        """A slot whose session was given up would hold back its schedule for ever."""
        for orphan in await self._ground.database.read(schedules.orphans):
            reason = orphan.quarantined or "its session was ended before its turn was"
            at = self._ground.clock.now()
            await self._ground.database.write(
                schedules.close_slot, orphan.session_id, orphan.turn_id, "failed", reason, at=at
            )
