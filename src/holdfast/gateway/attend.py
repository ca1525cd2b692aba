"""While a turn runs for a chat: a sign of typing and, where messages can be changed, the reply as it grows.

What is shown is the draft in the store, so that it is only ever text that would survive a crash, whichever worker
makes it. Nothing depends on this: if it fails, the reply still comes out of the outbox.
"""

import asyncio
import logging
from collections.abc import Callable

from holdfast.engine import replies
from holdfast.engine.hand import Ground
from holdfast.engine.together import stop
from holdfast.gateway.port import Outgoing, Platform, Sent
from holdfast.gateway.split import sendable
from holdfast.model.errors import HoldfastError
from holdfast.store import log, outbox, sessions
from holdfast.store.database import Transaction
from holdfast.store.outbox import Address, Message

logger = logging.getLogger(__name__)
LOOK_SECONDS = 1.5
"""How often the draft is looked at: platforms allow about one change a second."""
FIRST_CHARS = 40
"""A reply is shown once it is that long; most short ones are over by then."""
MORE = " …"


class Attendant:
    """Of one platform."""

    def __init__(
        self, ground: Ground, name: str, platform: Platform, *, stream: bool, lock: Callable[[str], asyncio.Lock]
    ) -> None:
        self._ground = ground
        self._name = name
        self._platform = platform
        self._stream = stream and platform.limits.edits
        self._lock = lock
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, session_id: str, turn_id: str, to: Address) -> None:
        """Attend to a turn until it is over."""
        if self._stream or self._platform.limits.typing_seconds is not None:
            task = asyncio.create_task(self._attend(session_id, turn_id, to), name=f"attend {turn_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        await stop(*self._tasks)

    async def _attend(self, session_id: str, turn_id: str, to: Address) -> None:
        try:
            await self._follow(session_id, turn_id, to)
        except HoldfastError as e:
            logger.warning("%s: nobody attends to %s any more: %s", self._name, turn_id, e)
        except Exception:
            logger.exception("%s: nobody attends to %s any more", self._name, turn_id)

    async def _follow(self, session_id: str, turn_id: str, to: Address) -> None:
        typed, shown = float("-inf"), _Shown()
        every = self._platform.limits.typing_seconds
        while True:
            state, text = await self._ground.database.read(_state, session_id, turn_id)
            if state == "over":
                return
            now = self._ground.clock.monotonic()
            if state == "running" and every is not None and now - typed >= every:
                typed = now
                await self._platform.typing(to.chat)
            if self._stream and text is not None and len(text) >= FIRST_CHARS:
                await self._show(session_id, turn_id, to, text, shown)
            await asyncio.sleep(LOOK_SECONDS)

    async def _show(self, session_id: str, turn_id: str, to: Address, text: str, shown: "_Shown") -> None:
        """Show the text so far, unless the reply is on its way already."""
        limits, text = self._platform.limits, sendable(text)
        while limits.measure(text + MORE) > limits.text:
            text = text[: int(len(text) * 0.9)]
        if text == shown.text:
            return
        async with self._lock(to.chat):
            state, _ = await self._ground.database.read(_state, session_id, turn_id)
            if state != "running":
                return
            if shown.remote:
                await self._platform.edit(to.chat, shown.remote, text + MORE)
            elif not shown.tried:
                await self._begin_showing(session_id, turn_id, to, text, shown)
        shown.text = text

    async def _begin_showing(self, session_id: str, turn_id: str, to: Address, text: str, shown: "_Shown") -> None:
        """Send the message that will be changed. If it is not known to have arrived, it is left alone."""
        shown.tried = True
        delivery_id, at = self._ground.ids.make(replies.OUT), self._ground.clock.now()
        row = {"kind": "preview", "session_id": session_id, "turn_id": turn_id}
        await self._ground.database.write(outbox.put, delivery_id, to, Message(text=""), at=at, **row)  # type: ignore[arg-type] # these are its names
        fate = await self._platform.send(
            Outgoing(chat=to.chat, text=text + MORE, key=delivery_id, reply_to=to.reply_to)
        )
        if isinstance(fate, Sent):
            shown.remote = fate.remote
            await self._ground.database.write(outbox.shown, delivery_id, fate.remote, at=self._ground.clock.now())


class _Shown:
    """What a chat shows of a reply in the making."""

    def __init__(self) -> None:
        self.remote = ""
        self.text = ""
        self.tried = False


def _state(tx: Transaction, session_id: str, turn_id: str) -> tuple[str, str | None]:
    """Whether the turn waits, runs or is over, and what has been said in it so far."""
    session = sessions.get(tx, session_id)
    if session.summary.open_turn == turn_id:
        draft = log.draft(tx, session_id)
        return "running", draft.body if draft is not None and draft.turn_id == turn_id else None
    waits = tx.all("inputs.waiting", session=session_id)
    return ("waiting" if any(row[0] == turn_id for row in waits) else "over"), None
