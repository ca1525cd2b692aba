"""Shows a running turn in its chat: a typing indicator and, if messages can be edited, the reply while it grows.

The text comes from the draft in the store, so only durable text is shown, whichever worker generates it. If the preview
fails, the reply is still delivered from the outbox.
"""

import asyncio
import logging
from collections.abc import Callable

from holdfast.engine import outbound
from holdfast.engine.services import EngineServices
from holdfast.gateway.port import Outgoing, Platform, Sent
from holdfast.gateway.split import replace_unsendable
from holdfast.model.errors import HoldfastError
from holdfast.store.database import Transaction
from holdfast.store.repos import input_queue, log, outbox, sessions
from holdfast.store.repos.outbox import Address, OutboundMessage
from holdfast.tasks import Tasks

logger = logging.getLogger(__name__)
POLL_SECONDS = 1.5
"""How often the draft is read: platforms allow about one edit per second."""
MIN_CHARS = 40
"""The shortest reply that is shown; most short replies are complete before they are shown."""
CONTINUED = " …"


class LivePreview:
    """Shows the running turns of one platform."""

    def __init__(
        self,
        services: EngineServices,
        name: str,
        platform: Platform,
        *,
        stream: bool,
        lock: Callable[[str], asyncio.Lock],
    ) -> None:
        self._services = services
        self._name = name
        self._platform = platform
        self._stream = stream and platform.limits.edits
        self._lock = lock
        self._tasks = Tasks()

    def start(self, session_id: str, turn_id: str, to: Address) -> None:
        """Show a turn until it has ended."""
        if self._stream or self._platform.limits.typing_seconds is not None:
            self._tasks.start(self._run(session_id, turn_id, to), name=f"preview {turn_id}")

    async def close(self) -> None:
        await self._tasks.close()

    async def _run(self, session_id: str, turn_id: str, to: Address) -> None:
        try:
            await self._follow(session_id, turn_id, to)
        except HoldfastError as e:
            logger.warning("%s: preview of %s stopped: %s", self._name, turn_id, e)
        except Exception:
            logger.exception("%s: preview of %s stopped", self._name, turn_id)

    async def _follow(self, session_id: str, turn_id: str, to: Address) -> None:
        typed_at, shown = float("-inf"), _PreviewMessage()
        interval = self._platform.limits.typing_seconds
        while True:
            state, text = await self._services.database.read(_read_turn, session_id, turn_id)
            if state == "over":
                return
            now = self._services.clock.monotonic()
            if state == "running" and interval is not None and now - typed_at >= interval:
                typed_at = now
                await self._platform.typing(to.chat)
            if self._stream and text is not None and len(text) >= MIN_CHARS:
                await self._update_preview(session_id, turn_id, to, text, shown)
            await asyncio.sleep(POLL_SECONDS)

    async def _update_preview(
        self, session_id: str, turn_id: str, to: Address, text: str, shown: "_PreviewMessage"
    ) -> None:
        """Show the text so far, unless the turn has ended."""
        limits, text = self._platform.limits, replace_unsendable(text)
        while limits.measure(text + CONTINUED) > limits.text:
            text = text[: int(len(text) * 0.9)]
        if text == shown.text:
            return
        async with self._lock(to.chat):
            state, _ = await self._services.database.read(_read_turn, session_id, turn_id)
            if state != "running":
                return
            if shown.remote:
                await self._platform.edit(to.chat, shown.remote, text + CONTINUED)
            elif not shown.tried:
                await self._send_preview(session_id, turn_id, to, text, shown)
        shown.text = text

    async def _send_preview(
        self, session_id: str, turn_id: str, to: Address, text: str, shown: "_PreviewMessage"
    ) -> None:
        """Send the message that later edits change. If its delivery is not confirmed, it is never edited."""
        shown.tried = True
        delivery_id, at = self._services.ids.make(outbound.OUT), self._services.clock.now()
        row = {"kind": "preview", "session_id": session_id, "turn_id": turn_id}
        await self._services.database.write(outbox.put, delivery_id, to, OutboundMessage(text=""), at=at, **row)  # type: ignore[arg-type] # the keys are parameter names
        result = await self._platform.send(
            Outgoing(chat=to.chat, text=text + CONTINUED, key=delivery_id, reply_to=to.reply_to)
        )
        if isinstance(result, Sent):
            shown.remote = result.remote
            await self._services.database.write(
                outbox.record_preview, delivery_id, result.remote, at=self._services.clock.now()
            )


class _PreviewMessage:
    """The preview message that a chat shows."""

    def __init__(self) -> None:
        self.remote = ""
        self.text = ""
        self.tried = False


def _read_turn(tx: Transaction, session_id: str, turn_id: str) -> tuple[str, str | None]:
    """Whether the turn is waiting, running or over, and its draft."""
    session = sessions.get(tx, session_id)
    if session.summary.open_turn == turn_id:
        draft = log.get_draft(tx, session_id)
        return "running", draft.body if draft is not None and draft.turn_id == turn_id else None
    waits = any(item.turn_id == turn_id for item in input_queue.list_waiting(tx, session_id))
    return ("waiting" if waits else "over"), None
