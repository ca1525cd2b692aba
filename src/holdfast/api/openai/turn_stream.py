"""Follow an admitted turn for a response of any format. Closing the response does not stop the turn."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.context import ApiContext
from holdfast.api.errors import ApiError, translate, turn_error
from holdfast.api.openai.reply import ReplyState
from holdfast.engine.streaming.bus import LiveText
from holdfast.engine.submission import AdmittedTurn, SubmittedTurn
from holdfast.model.entry import Entry
from holdfast.model.errors import HoldfastError

RETRYABLE_STATUSES = (429, 502, 503, 504)
"""Statuses for which a retry may succeed."""
STOP_SECONDS = 10.0
"""How long to wait for a turn that was told to stop; it ends in any case."""


async def is_disconnected(request: Request) -> bool:
    """Whether the client has left. Call it after the whole body was received."""
    try:
        async with asyncio.timeout(0):
            return bool((await request.receive())["type"] == "http.disconnect")
    except TimeoutError:
        return False


async def wait_for_end(context: ApiContext, turn: AdmittedTurn) -> None:
    """Wait until the turn that was told to stop has ended, with a time limit."""
    received = await context.engine.submit(turn, stream="durable")
    try:
        async with asyncio.timeout(STOP_SECONDS), aclosing(received.follow()) as items:
            async for _ in items:
                pass
    except TimeoutError:
        return  # it still runs, and the response says so
    finally:
        received.close()


class TurnStream:
    """An admitted turn, its reply so far, and the headers of its response."""

    def __init__(self, context: ApiContext, received: SubmittedTurn, *, keyed: bool, echo: str | None) -> None:
        self.context = context
        self.received = received
        self.reply = ReplyState(receives_live=not received.admission.repeated)
        self._keyed = keyed
        self._echo = echo

    async def follow_to_end(self, also: Callable[[Entry], object] | None = None) -> None:
        """Follow the turn to its end and pass each event to `also`. Raises ApiError if the turn fails.

        Live text is left out: it may be that of an attempt that fails, and the events have all text that counts.
        """
        try:
            async with aclosing(self.received.follow()) as items:
                async for item in items:
                    if isinstance(item, LiveText):
                        continue
                    self.reply.add(item)
                    if also is not None:
                        also(item)
            self.raise_if_failed()
        except HoldfastError as e:
            raise self.add_headers(translate(e)) from e
        except ApiError as e:
            raise self.add_headers(e) from None
        finally:
            self.received.close()

    async def mark_answered(self, response: Response, request: Request) -> Response:
        """Return the response, and record it as answered if the client is still connected."""
        if not await is_disconnected(request):
            self.set_answered()
        return response

    def set_answered(self) -> None:
        """Record that the client has the whole response: the same request again is a new one, not a retry."""
        self.context.engine.intake.answered.add(self.received.admission.turn_id)

    def raise_if_failed(self) -> None:
        """Raise ApiError for a turn that did not end with outcome done."""
        ended = self.reply.ended
        assert ended is not None, "the turn was followed to its end"
        if ended.outcome != "done":
            raise turn_error(ended.code, ended.outcome, ended.reason)

    def add_headers(self, error: ApiError) -> ApiError:
        """Add the session headers to the error. A retry of an admitted request is safe only with an idempotency key."""
        retry = self._keyed and error.status in RETRYABLE_STATUSES
        seq = {"x-session-seq": str(self.reply.seq)} if self.reply.seq else {}
        error.headers |= self.headers() | seq | {"x-should-retry": str(retry).lower()}
        return error

    @property
    def epoch(self) -> int:
        before = self.received.admission.session.summary.epoch
        return before if self.reply.epoch is None else self.reply.epoch

    def headers(self) -> dict[str, str]:
        """Headers of every response; a non-streamed one adds `x-session-seq`."""
        received = self.received
        session = received.admission.session
        found = {
            "x-session-id": session.id,
            "x-session-new": str(int(received.new)),
            "x-session-epoch": str(self.epoch),
            "x-turn-id": received.admission.turn_id,
        }
        if received.forked_from is not None:
            found["x-session-forked-from"] = received.forked_from
        if self._echo is not None:
            found[self._echo] = session.id
        return found

    def metadata(self) -> dict[str, object]:
        """Build the field `holdfast` of a complete response."""
        admission = self.received.admission
        return {
            "session_id": admission.session.id,
            "turn_id": admission.turn_id,
            "epoch": self.epoch,
            "seq": self.reply.seq,
            "compacted": self.reply.epoch is not None,
        }
