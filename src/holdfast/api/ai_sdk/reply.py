"""Renders a message of the assistant as a UI message stream."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

from holdfast import sse
from holdfast.api.ai_sdk.message_stream import Chunk, MessageChunks
from holdfast.api.ai_sdk.request import METADATA
from holdfast.api.errors import ApiError, translate, turn_error
from holdfast.api.openai.turn_stream import TurnStream
from holdfast.engine.streaming.bus import LiveText
from holdfast.model.entry import Entry
from holdfast.model.errors import HoldfastError

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
STOPPED = ("interrupted", "cancelled")


class UIMessageReply:
    """Streams the rest of a message: up to the end of its turn, or until the user must approve a call.

    `before` are events of earlier turns of the same message, and `known` is the last event whose chunks the client has.
    """

    def __init__(
        self, turn: TurnStream, message_id: str, *, before: Sequence[Entry] = (), known: int = 0, replayed: int = 0
    ) -> None:
        self.turn = turn
        self._message_id = message_id
        self._before = before
        self._known = known
        self._replayed = replayed
        """The last event of the turn when the request came: a question before it may have been answered since."""
        self._chunks = MessageChunks(takes_reasoning=not turn.received.admission.repeated)

    def headers(self) -> dict[str, str]:
        return self.turn.headers() | HEADERS

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Generate the stream. It ends with a chunk `finish`, `abort` or `error`, and `[DONE]`."""
        turn = self.turn
        try:
            yield sse.format_event(self._start())
            for entry in self._before:
                for chunk in self._new(entry):
                    yield sse.format_event(chunk)
            beats = turn.received.follow(idle_seconds=turn.context.heartbeat_seconds)
            async with aclosing(beats) as items:
                async for item in items:
                    if item is None:
                        yield sse.HEARTBEAT
                        continue
                    turn.reply.add(item)
                    for chunk in self._new(item):
                        yield sse.format_event(chunk)
                    if self._is_paused(item):
                        break
            for chunk in self._ending():
                yield sse.format_event(chunk)
        except HoldfastError as e:
            yield sse.format_event(_error(translate(e)))
        finally:
            turn.received.close()
        yield sse.DONE
        turn.set_answered()

    def _start(self) -> Chunk:
        admission = self.turn.received.admission
        about = {"session_id": admission.session.id, "turn_id": admission.turn_id}
        named = {"messageId": self._message_id} if self._message_id else {}
        return {"type": "start", **named, "messageMetadata": {METADATA: about}}

    def _new(self, item: Entry | LiveText) -> Iterator[Chunk]:
        """The chunks for an item, unless the client has them."""
        is_known = isinstance(item, Entry) and item.seq <= self._known
        for chunk in self._chunks.add(item):
            if not is_known:
                yield chunk

    def _is_paused(self, item: Entry | LiveText) -> bool:
        return isinstance(item, Entry) and item.seq >= self._replayed and self._chunks.waits_for_user

    def _ending(self) -> Iterator[Chunk]:
        ended = self._chunks.ended
        about = self.turn.metadata()
        if ended is None or self._chunks.awaited:  # the message goes on when the user or the client has answered
            yield {
                "type": "finish",
                "finishReason": self._chunks.finish_reason,
                "messageMetadata": {METADATA: about},
            }
            return
        about |= {"outcome": ended.outcome, "code": ended.code, "reason": ended.reason, "usage": ended.usage}
        if ended.outcome == "done":
            reason = self._chunks.finish_reason
            yield {"type": "finish", "finishReason": reason, "messageMetadata": {METADATA: about}}
            return
        yield {"type": "message-metadata", "messageMetadata": {METADATA: about}}
        if ended.outcome in STOPPED:
            yield {"type": "abort", "reason": ended.reason or f"the turn was {ended.outcome}"}
        else:
            yield _error(turn_error(ended.code, ended.outcome, ended.reason))


def _error(error: ApiError) -> Chunk:
    return {"type": "error", "errorText": f"{error.message} ({error.code})"}
