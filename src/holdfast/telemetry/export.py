"""Exports the log of a store to a collector: one worker at a time, from a durable position.

The worker that exports is recorded in the store together with the position. When it ends or dies, another one continues
from there. What was sent just before a crash is sent again, with the same ids. The data describes committed events only.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from holdfast.model.entry import Entry, decode
from holdfast.model.errors import Corrupt, NotFound, Unavailable
from holdfast.model.event import TurnEnded, TurnStarted
from holdfast.model.times import Clock
from holdfast.settings import TelemetrySettings
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import delegations, log, meta, sessions, turn_lookup, workers
from holdfast.supervisor import BackgroundTask, Completed, ignore_cycle
from holdfast.telemetry.collector import Collector
from holdfast.telemetry.log_records import LogRecord, log_record
from holdfast.telemetry.metric_points import histogram_points
from holdfast.telemetry.turn_spans import Span, TraceSubject, turn_spans

logger = logging.getLogger(__name__)
KEY = "telemetry"
POLL_SECONDS = 2.0
BATCH_EVENTS = 500
LONGEST_PAUSE = 60.0


class ExportPosition(msgspec.Struct, frozen=True):
    """How far the log was exported, and by which worker."""

    position: int
    worker_id: str
    at: int

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


class ExportBatch(msgspec.Struct, frozen=True):
    """What the next events of the log give, and the position after them."""

    spans: list[Span]
    records: list[LogRecord]
    upto: int


class TelemetryExport:
    """Exports for one worker. Several workers of a store may each run one."""

    def __init__(
        self, database: Database, clock: Clock, worker_id: str, settings: TelemetrySettings, default_model: str
    ) -> None:
        assert settings.endpoint is not None, "only a configured collector is exported to"
        self._database = database
        self._clock = clock
        self._worker_id = worker_id
        self._settings = settings
        self._default_model = default_model
        headers = {name: value.reveal() for name, value in settings.headers.items()}
        self._collector = Collector(settings.endpoint, headers)

    def as_task(self) -> BackgroundTask:
        return BackgroundTask(self.work, LONGEST_PAUSE)

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Export until cancelled. A collector that is away delays the export and is not a failure of this task."""
        pause = POLL_SECONDS
        try:
            while True:
                try:
                    while await self.export_next():
                        completed()
                except Unavailable as e:
                    if pause == POLL_SECONDS:
                        logger.warning("%s; the export continues when it answers", e)
                    pause = min(2 * pause, LONGEST_PAUSE)
                else:
                    pause = POLL_SECONDS
                completed()
                await asyncio.sleep(pause)
        finally:
            await self.close()

    async def close(self) -> None:
        await self._collector.close()

    async def export_next(self) -> bool:
        """Export the next events; False if there are none, or if another worker exports. Raises Unavailable."""
        owned = await self._database.write(_take, self._worker_id, at=self._clock.now())
        if owned is None:
            return False
        batch = await self._database.read(self._read_batch, owned.position)
        if batch.upto == owned.position:
            return False
        at = self._clock.now()
        await self._send(batch, owned.at, at)
        after = ExportPosition(batch.upto, self._worker_id, at)
        return await self._database.write(meta.replace, KEY, owned.encode(), after.encode())

    async def _send(self, batch: ExportBatch, start: int, end: int) -> None:
        from holdfast.telemetry import otlp

        source = otlp.resource(self._settings.service, await self._database.read(meta.get_store_id))
        signals = self._settings.signals
        # Metrics last: they count what was sent twice, so they are sent only when nothing else can fail.
        if "traces" in signals and batch.spans:
            await self._collector.send("traces", otlp.encode_spans(source, batch.spans))
        if "logs" in signals and batch.records:
            await self._collector.send("logs", otlp.encode_logs(source, batch.records))
        if "metrics" in signals and batch.spans:
            points = histogram_points(batch.spans)
            await self._collector.send("metrics", otlp.encode_metrics(source, points, start, end))

    def _read_batch(self, tx: Transaction, after: int) -> ExportBatch:
        upto = max(after, log.get_last_position(tx))  # the newest events may have been pruned
        rows = log.list_after_position(tx, after, upto=upto, limit=BATCH_EVENTS)
        spans: list[Span] = []
        records: list[LogRecord] = []
        copied: dict[str, int] = {}
        for row in rows:
            if row.session_id not in copied:
                copied[row.session_id] = _last_copied(tx, row.session_id)
            if row.seq <= copied[row.session_id]:
                continue
            try:
                entry = Entry(row.seq, row.at, decode(row.kind, row.body))
            except Corrupt as e:
                logger.warning("the event at position %d is not exported: %s", row.position, e)
                continue
            records.append(log_record(row.session_id, entry, content=self._settings.content))
            if isinstance(entry.event, TurnEnded):
                spans += self._read_spans(tx, row.session_id, entry)
        return ExportBatch(spans, records, rows[-1].position if rows else upto)

    def _read_spans(self, tx: Transaction, session_id: str, end: Entry) -> Sequence[Span]:
        """The spans of a turn; none if its beginning cannot be read."""
        assert isinstance(end.event, TurnEnded)
        try:
            found = turn_lookup.find(tx, session_id, end.event.turn_id)
            summary = sessions.get(tx, session_id).summary
            if found is None or not found.first:
                return []
            entries = log.read(tx, session_id, first=found.first, last=end.seq)
        except (Corrupt, NotFound) as e:
            logger.warning("turn %s is not exported: %s", end.event.turn_id, e)
            return []
        if not entries or not isinstance(entries[0].event, TurnStarted):
            return []
        subject = TraceSubject(
            session_id=session_id,
            model=summary.model or self._default_model,
            source=summary.source,
            content=self._settings.content,
            delegated_by=_delegated_by(tx, session_id, end.event.turn_id),
        )
        return turn_spans(subject, entries)


def _take(tx: Transaction, worker_id: str, *, at: int) -> ExportPosition | None:
    """The position, owned by this worker; None while another live worker exports. A new export begins with the next event."""
    text = meta.get(tx, KEY)
    if text is None:
        begin = ExportPosition(log.get_last_position(tx), worker_id, at)
        return begin if meta.replace(tx, KEY, None, begin.encode()) else None
    found = msgspec.json.decode(text, type=ExportPosition)
    if found.worker_id == worker_id:
        return found
    holder = workers.get(tx, found.worker_id)
    if holder is not None and holder.ended_at is None:
        return None
    taken = msgspec.structs.replace(found, worker_id=worker_id)
    return taken if meta.replace(tx, KEY, text, taken.encode()) else None


def _delegated_by(tx: Transaction, session_id: str, turn_id: str) -> tuple[str, str] | None:
    """The session and the turn that delegated this turn, if it is the task of a sub-agent."""
    record = delegations.get(tx, session_id)
    return (record.parent_id, record.turn_id) if record is not None and record.task_turn == turn_id else None


def _last_copied(tx: Transaction, session_id: str) -> int:
    """The last event that the session has from elsewhere: from the session it was forked from, or from an import."""
    try:
        summary = sessions.get(tx, session_id).summary
    except NotFound:
        return log.TO_THE_END
    if summary.parent_id is None and summary.source != "import":
        return 0
    return log.get_last_copied(tx, session_id)
