"""From the outbox to a platform: at least once, in order for each chat, and never silently not.

Before a part is handed to the platform that is committed; afterwards, what came of it. What lies between is a doubt: the worker
died, or the platform did not say. A platform that knows our keys is simply asked again. On any other the message is
sent again with a mark, or left as `unknown` for a person, as configured; either way the doubt is counted for good.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.engine.bell import Bell
from holdfast.engine.hand import Ground
from holdfast.engine.together import whole
from holdfast.gateway.lines import Lines
from holdfast.gateway.port import Fate, Later, Never, Outgoing, Platform, Sent, Unsure, reason
from holdfast.gateway.split import sendable, split
from holdfast.model.times import DAY, SECOND
from holdfast.store import outbox, workers
from holdfast.store.database import Transaction
from holdfast.store.outbox import Delivery

logger = logging.getLogger(__name__)
MARK = "(This may be a repeat.) "
LOOK_SECONDS = 5.0
"""How often the outbox is looked at, should nobody ring."""
GIVE_UP = 3 * DAY
"""How long a platform that takes nothing is tried."""


class Pace(msgspec.Struct, frozen=True):
    """How soon something is tried again, in seconds: the first time, and at the latest."""

    first: float = 1.0
    last: float = 300.0

    def delay(self, attempts: int) -> float:
        return min(self.first * 2.0 ** min(attempts - 1, 20), self.last)


class Deliverer:
    """Of one platform. `lock` keeps two from changing a chat at once."""

    def __init__(
        self,
        ground: Ground,
        name: str,
        platform: Platform,
        *,
        hold: bool,
        files: Path,
        lock: Callable[[str], asyncio.Lock],
        pace: Pace = Pace(),  # noqa: B008 # it is frozen
    ) -> None:
        self._ground = ground
        self._name = name
        self._platform = platform
        self._hold = hold
        self._files = files
        self._lock = lock
        self._pace = pace
        self._lines = Lines(f"deliveries of {name}", self._serve)
        self._closed_until = 0.0
        """The platform takes nothing from anybody before then, on the monotonic clock."""

    async def work(self) -> None:
        """Deliver what is there and what comes, until cancelled."""
        try:
            async with Bell(self._ground.database, outbox.topic(self._name)) as bell:
                while True:
                    await bell.wait(await self._start_all())
        finally:
            await self._lines.close()

    async def _start_all(self) -> float:
        """Set every chat going that has something to deliver; how long to wait for the next one."""
        now, wait = self._ground.clock.now(), LOOK_SECONDS
        closed = self._closed_until - self._ground.clock.monotonic()
        if closed > 0:
            return min(closed, LOOK_SECONDS)
        for head in await self._ground.database.read(outbox.heads, self._name):
            if head.chat in self._lines:
                self._lines.begin(head.chat)
                continue
            if head.state == "sending" and not await self._is_left(head):
                continue
            if head.due_at > now:
                wait = min(wait, (head.due_at - now) / SECOND)
                continue
            self._lines.begin(head.chat)
        return wait

    async def _is_left(self, delivery: Delivery) -> bool:
        """Whether whoever was sending it is gone: then nobody knows whether it arrived."""

        def work(tx: Transaction) -> bool:
            sender = workers.get(tx, delivery.worker_id or "")
            return sender is None or sender.ended_at is not None

        if delivery.worker_id != self._ground.worker_id and not await self._ground.database.read(work):
            return False
        await self._doubt(delivery, "its sender was cut off before the platform's answer was written down")
        return True

    async def _serve(self, chat: str) -> None:
        """What is due for one chat, in order."""
        while True:
            delivery = await self._ground.database.read(outbox.following, self._name, chat)
            if delivery is None or delivery.state != "waiting" or delivery.due_at > self._ground.clock.now():
                return
            if self._closed_until > self._ground.clock.monotonic():
                return
            async with self._lock(chat):
                # From the mark to the answer it is one piece: a cancelled sender would leave a doubt for nothing.
                if not await whole(self._send_next(delivery)):
                    return
            await asyncio.sleep(self._platform.limits.chat_seconds)

    async def _send_next(self, delivery: Delivery) -> bool:
        """Send the next part, and write down what came of it; False if that is another worker's business."""
        begun = await self._ground.database.write(outbox.begin, delivery.id, self._ground.worker_id)
        if begun is None:
            return False
        parts = self._parts(begun)
        fate = await self._hand_over(begun, parts[begun.part])
        await self._record(begun, fate, last=begun.part + 1 >= len(parts))
        return True

    def _parts(self, delivery: Delivery) -> list[Outgoing]:
        """The messages that a delivery comes to, always the same ones; what can be pressed stands under the last text."""
        message, limits = delivery.message, self._platform.limits
        texts = split(sendable(message.text), limits.text - limits.measure(MARK), limits.measure)
        parts = [
            Outgoing(
                chat=delivery.chat,
                text=text,
                key=f"{delivery.id}-{number}",
                reply_to=message.reply_to if number == 1 else "",
                choices=message.choices if number == len(texts) else (),
                about=delivery.id,
            )
            for number, text in enumerate(texts, 1)
        ]
        folder = (self._files / (delivery.session_id or "")).resolve()
        for name in message.files:
            path, key = (folder / name).resolve(), f"{delivery.id}-{len(parts) + 1}"
            there = path.is_relative_to(folder) and path.is_file()
            text = path.name if there else f"(The file {path.name} is no longer there.)"
            parts.append(Outgoing(chat=delivery.chat, text=text, key=key, file=path if there else None))
        return parts

    async def _hand_over(self, delivery: Delivery, part: Outgoing) -> Fate:
        if delivery.unsure and not self._platform.limits.keyed:
            part = msgspec.structs.replace(part, text=MARK + part.text)
        seconds = self._platform.limits.answer_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(delivery, part)
        except TimeoutError:
            return Unsure(f"the platform did not answer within {seconds:g} s")
        except Exception as e:
            logger.exception("%s: sending %s broke", self._name, delivery.id)
            return Unsure(reason(e))

    async def _ask(self, delivery: Delivery, part: Outgoing) -> Fate:
        """A reply that was shown while it was made takes the place of what was shown."""
        if delivery.part == 0 and delivery.kind == "reply" and (shown := await self._shown(delivery)):
            fate = await self._platform.edit(delivery.chat, shown, part.text)
            if not isinstance(fate, Never):
                return Sent(shown) if isinstance(fate, Sent) else fate
        return await self._platform.send(part)

    async def _shown(self, delivery: Delivery) -> str | None:
        """The platform's name of the message in which the reply was shown while it was made."""
        if delivery.session_id is None or delivery.turn_id is None or not self._platform.limits.edits:
            return None
        rows = await self._ground.database.read(outbox.of_turn, delivery.session_id, delivery.turn_id)
        shown = [row.remotes for row in rows if row.kind == "preview" and row.chat == delivery.chat and row.remotes]
        return shown[0][0] if shown else None

    async def _record(self, delivery: Delivery, fate: Fate, *, last: bool) -> None:
        database, clock = self._ground.database, self._ground.clock
        match fate:
            case Sent():
                await database.write(
                    outbox.arrived, delivery, self._ground.worker_id, fate.remote, last=last, at=clock.now()
                )
            case Later():
                delay = max(fate.after_seconds or 0.0, self._pace.delay(delivery.attempts))
                if fate.everywhere:
                    self._closed_until = clock.monotonic() + delay
                await self._later(delivery, fate.reason, delay)
            case Never():
                logger.warning("%s: %s was not taken: %s", self._name, delivery.id, fate.reason)
                await database.write(outbox.fail, delivery.id, fate.reason)
            case Unsure():
                await self._doubt(delivery, fate.reason)

    async def _later(self, delivery: Delivery, why: str, delay: float) -> None:
        now = self._ground.clock.now()
        if now - delivery.at > GIVE_UP:
            await self._ground.database.write(outbox.fail, delivery.id, f"given up after three days: {why}")
            return
        await self._ground.database.write(outbox.postpone, delivery.id, why, due=now + int(delay * SECOND))

    async def _doubt(self, delivery: Delivery, why: str) -> None:
        """Written down before anything is done about it."""
        due = self._ground.clock.now() + int(self._pace.delay(delivery.attempts) * SECOND)
        hold = self._hold and not self._platform.limits.keyed
        logger.warning("%s: %s may have arrived: %s", self._name, delivery.id, why)
        await self._ground.database.write(outbox.doubt, delivery.id, why, hold=hold, due=due)
