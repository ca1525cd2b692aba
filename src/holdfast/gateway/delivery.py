"""Delivers the outbox to a platform: at least once, in order for each chat, and never dropped silently.

A commit before each attempt records that it starts, and a commit after it records the result. If the worker dies in
between, or the platform does not respond, the result is unknown. A platform that recognises our keys simply gets the
message again. On any other platform it is sent again with a mark, or left as `unknown` for a person, as configured;
either way the delivery keeps count of its unknown results.

A platform can tell us to wait. Then the whole chat waits, because replies out of order are worse than late ones. A long
delay is logged, reported to the home channel, and listed by `holdfast gateway status` and the dashboard.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.engine.notifications import TopicListener
from holdfast.engine.outbound import OUT
from holdfast.engine.services import EngineServices
from holdfast.gateway.chat_queues import ChatQueues
from holdfast.gateway.port import (
    DeliveryResult,
    DeliveryUnknown,
    Outgoing,
    Platform,
    Rejected,
    RetryLater,
    Sent,
    describe_error,
)
from holdfast.gateway.split import replace_unsendable, split
from holdfast.model.ids import derive
from holdfast.model.times import DAY, SECOND, iso
from holdfast.store.database import Transaction
from holdfast.store.repos import outbox, workers
from holdfast.store.repos.outbox import MAX_DELAY, Delivery, OutboundMessage
from holdfast.supervisor import BackgroundTask, Completed, ignore_cycle
from holdfast.tasks import run_to_completion

logger = logging.getLogger(__name__)
REPEAT_MARK = "(This may be a repeat.) "
POLL_SECONDS = 5.0
"""How often the outbox is polled if no notification arrives."""
REPORT_SECONDS = 60.0
"""The shortest delay that is reported; arbitrary."""
MAX_REPORTED = 1_000
"""How many reported deliveries are remembered; arbitrary."""
MAX_AGE = 3 * DAY
"""How long a delivery is retried."""


class RetrySchedule(msgspec.Struct, frozen=True):
    """Exponential backoff in seconds: the first delay and the longest."""

    first: float = 1.0
    last: float = 300.0

    def delay(self, attempts: int) -> float:
        return min(self.first * 2.0 ** min(attempts - 1, 20), self.last)


class Deliverer:
    """Delivers the outbox of one platform. `lock` prevents simultaneous changes to a chat."""

    def __init__(
        self,
        services: EngineServices,
        name: str,
        platform: Platform,
        *,
        hold: bool,
        files: Path,
        lock: Callable[[str], asyncio.Lock],
        home: str | None = None,
        retry: RetrySchedule = RetrySchedule(),  # noqa: B008 # immutable
    ) -> None:
        self._services = services
        self._name = name
        self._platform = platform
        self._hold = hold
        self._files = files
        self._lock = lock
        self._home = home
        """The channel that gets notices of long delays."""
        self._reported: OrderedDict[str, None] = OrderedDict()
        """The newest deliveries whose delay was logged."""
        self._retry = retry
        self._queues = ChatQueues(f"deliveries of {name}", self._serve)
        self._closed_until = 0.0
        """Until this monotonic time, the platform accepts no message for any chat."""

    def as_task(self) -> BackgroundTask:
        return BackgroundTask(self.work, POLL_SECONDS)

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Deliver messages until cancelled. Errors escape to the supervisor."""
        try:
            with TopicListener(self._services.database, outbox.topic(self._name)) as listener:
                while True:
                    wait = await self._wake_queues()
                    completed()
                    await listener.wait(wait)
        finally:
            await self._queues.close()

    async def _wake_queues(self) -> float:
        """Start every chat that has something due; return the seconds until the next one is due."""
        now, wait = self._services.clock.now(), POLL_SECONDS
        closed = self._closed_until - self._services.clock.monotonic()
        if closed > 0:
            return min(closed, POLL_SECONDS)
        for head in await self._services.database.read(outbox.list_heads, self._name):
            if head.chat in self._queues:
                self._queues.wake(head.chat)
                continue
            if head.state == "sending" and not await self._is_abandoned(head):
                continue
            if (seconds := head.wait_seconds(now)) > 0:
                wait = min(wait, seconds)
                continue
            self._queues.wake(head.chat)
        return wait

    async def _is_abandoned(self, delivery: Delivery) -> bool:
        """Whether the sending worker is gone; then mark the result as unknown."""

        def work(tx: Transaction) -> bool:
            sender = workers.get(tx, delivery.worker_id or "")
            return sender is None or sender.ended_at is not None

        if delivery.worker_id != self._services.worker_id and not await self._services.database.read(work):
            return False
        await self._mark_unknown(delivery, "the sender stopped before the platform's response was recorded")
        return True

    async def _serve(self, chat: str) -> None:
        """Send what is due for one chat, in order."""
        while True:
            delivery = await self._services.database.read(outbox.find_next, self._name, chat)
            if delivery is None or delivery.state != "waiting" or delivery.wait_seconds(self._services.clock.now()) > 0:
                return
            if self._closed_until > self._services.clock.monotonic():
                return
            async with self._lock(chat):
                # Not cancellable from the first commit to the second: the result would be unknown for no reason.
                if not await run_to_completion(self._send_next(delivery)):
                    return
            await asyncio.sleep(self._platform.limits.chat_seconds)

    async def _send_next(self, delivery: Delivery) -> bool:
        """Send the next part and record the result; False if another worker is sending it."""
        started = await self._services.database.write(outbox.begin, delivery.id, self._services.worker_id)
        if started is None:
            return False
        parts = self._parts(started)
        result = await self._send_part(started, parts[started.part])
        await self._record(started, result, last=started.part + 1 >= len(parts))
        return True

    def _parts(self, delivery: Delivery) -> list[Outgoing]:
        """Split a delivery into messages, always in the same way; buttons go with the last text."""
        message, limits = delivery.message, self._platform.limits
        literal = delivery.kind == "question"
        measure = (limits.measure_literal if literal else None) or limits.measure
        room = limits.text - measure(REPEAT_MARK)
        texts = split(replace_unsendable(message.text), room, measure, code_blocks=not literal)
        parts = [
            Outgoing(
                chat=delivery.chat,
                text=text,
                key=f"{delivery.id}-{number}",
                reply_to=message.reply_to if number == 1 else "",
                choices=message.choices if number == len(texts) else (),
                about=delivery.id,
                literal=literal,
            )
            for number, text in enumerate(texts, 1)
        ]
        folder = (self._files / (delivery.session_id or "")).resolve()
        for name in message.files:
            path, key = (folder / name).resolve(), f"{delivery.id}-{len(parts) + 1}"
            exists = path.is_relative_to(folder) and path.is_file()
            text = path.name if exists else f"(The file {path.name} no longer exists.)"
            parts.append(Outgoing(chat=delivery.chat, text=text, key=key, file=path if exists else None))
        return parts

    async def _send_part(self, delivery: Delivery, part: Outgoing) -> DeliveryResult:
        if delivery.unsure and not self._platform.limits.keyed:
            part = msgspec.structs.replace(part, text=REPEAT_MARK + part.text)
        seconds = self._platform.limits.answer_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._send_or_edit(delivery, part)
        except TimeoutError:
            return DeliveryUnknown(f"the platform did not respond within {seconds:g} s")
        except Exception as e:
            logger.exception("%s: sending %s failed", self._name, delivery.id)
            return DeliveryUnknown(describe_error(e))

    async def _send_or_edit(self, delivery: Delivery, part: Outgoing) -> DeliveryResult:
        """Send a part; a reply that has a live preview replaces the preview."""
        if delivery.part == 0 and delivery.kind == "reply" and (shown := await self._preview_id(delivery)):
            result = await self._platform.edit(delivery.chat, shown, part.text)
            if not isinstance(result, Rejected):
                return Sent(shown) if isinstance(result, Sent) else result
        return await self._platform.send(part)

    async def _preview_id(self, delivery: Delivery) -> str | None:
        """The platform's id of the message that showed the live preview of the reply."""
        if delivery.session_id is None or delivery.turn_id is None or not self._platform.limits.edits:
            return None
        rows = await self._services.database.read(outbox.list_by_turn, delivery.session_id, delivery.turn_id)
        shown = [row.remotes for row in rows if row.kind == "preview" and row.chat == delivery.chat and row.remotes]
        return shown[0][0] if shown else None

    async def _record(self, delivery: Delivery, result: DeliveryResult, *, last: bool) -> None:
        database, clock = self._services.database, self._services.clock
        match result:
            case Sent():
                await database.write(
                    outbox.mark_part_sent, delivery, self._services.worker_id, result.remote, last=last, at=clock.now()
                )
            case RetryLater():
                delay = max(result.after_seconds or 0.0, self._retry.delay(delivery.attempts))
                delay = min(delay, MAX_DELAY / SECOND)
                if result.everywhere:
                    self._closed_until = clock.monotonic() + delay
                await self._postpone(delivery, result.reason, delay)
            case Rejected():
                logger.warning("%s: %s was rejected: %s", self._name, delivery.id, result.reason)
                await database.write(outbox.fail, delivery.id, result.reason)
            case DeliveryUnknown():
                await self._mark_unknown(delivery, result.reason)

    async def _postpone(self, delivery: Delivery, why: str, delay: float) -> None:
        now = self._services.clock.now()
        if now - delivery.at > MAX_AGE:
            await self._services.database.write(outbox.fail, delivery.id, f"gave up after three days: {why}")
            return
        due = now + int(delay * SECOND)
        notice = self._report_delay(delivery, why, due) if delay >= REPORT_SECONDS else None

        def work(tx: Transaction) -> None:
            outbox.postpone(tx, delivery.id, why, due=due)
            if notice is not None and self._home is not None:
                note_id = derive(OUT, delivery.at, f"{delivery.id} is delayed")
                outbox.put(tx, note_id, outbox.parse_channel(self._home), OutboundMessage(text=notice), at=now)

        await self._services.database.write(work)

    def _report_delay(self, delivery: Delivery, why: str, due: int) -> str | None:
        """Log a long delay once per delivery; return the notice for the home channel, unless that is the delayed chat."""
        channel = outbox.format_channel(self._name, delivery.chat)
        text = f"Messages to {channel} are delayed until {iso(due)[:16]} UTC: {why}. They will then be sent in order."
        if delivery.id not in self._reported:
            self._reported[delivery.id] = None
            if len(self._reported) > MAX_REPORTED:
                self._reported.popitem(last=False)
            logger.warning("%s", text)
        return None if channel == self._home else f"! {text}"

    async def _mark_unknown(self, delivery: Delivery, why: str) -> None:
        """Record that the result is unknown, before any retry."""
        due = self._services.clock.now() + int(self._retry.delay(delivery.attempts) * SECOND)
        hold = self._hold and not self._platform.limits.keyed
        logger.warning("%s: %s may have arrived: %s", self._name, delivery.id, why)
        await self._services.database.write(outbox.mark_unknown, delivery.id, why, hold=hold, due=due)
