"""`POST /v1/chat/completions`, as one response or as a stream."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from holdfast import sse
from holdfast.api import headers as naming
from holdfast.api.context import get_context
from holdfast.api.errors import ApiError, translate
from holdfast.api.openai import admission, chat_request
from holdfast.api.openai.reply import ChunkFields, chunk_fields
from holdfast.api.openai.turn_stream import TurnStream
from holdfast.model.errors import HoldfastError
from holdfast.model.message import ToolCall

LARGE_BODY = 256 * 1024
"""Bodies above this size are parsed in a thread, so that other requests do not wait."""


async def create_completion(request: Request) -> Response:
    """Create a chat completion. The request is durable once admitted, even if the client disconnects."""
    context = get_context(request)
    body = await request.body()
    is_large = len(body) > LARGE_BODY
    memo = context.memo
    asked = await asyncio.to_thread(chat_request.parse, body, memo) if is_large else chat_request.parse(body, memo)
    named = naming.parse_session_names(request.headers, context.settings.api.session_headers, asked.cache_key)
    arriving = admission.build_client_request(context, request, asked, named)
    received = await admission.admit_request(context, arriving)
    answer = ChatResponse(TurnStream(context, received, keyed=bool(arriving.key), echo=named.echo))
    if asked.stream:
        return sse.EventStream(answer.pieces(include_usage=asked.include_usage), answer.turn.headers())
    return await answer.turn.mark_answered(await answer.whole(), request)


class ChatResponse:
    """Renders a turn in the format of the Chat Completions API."""

    def __init__(self, turn: TurnStream) -> None:
        self.turn = turn
        received = turn.received
        self._fields = chunk_fields(received.admission.turn_id, received.model)
        self._around_text: tuple[bytes, bytes] | None = None

    async def whole(self) -> Response:
        await self.turn.follow_to_end()
        headers = self.turn.headers() | {"x-session-seq": str(self.turn.reply.seq)}
        return Response(sse.encode_json(self._document()), 200, headers, media_type="application/json")

    def _document(self) -> dict[str, object]:
        reply = self.turn.reply
        message: dict[str, object] = {"role": "assistant", "content": reply.text, "refusal": None}
        if reply.calls:
            message |= {"content": reply.text or None, "tool_calls": [_call(call) for call in reply.calls]}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish}
        about = _with_fields(self._fields, "chat.completion")
        return {**about, "choices": [choice], "usage": reply.usage(), "holdfast": self.turn.metadata()}

    async def pieces(self, *, include_usage: bool) -> AsyncGenerator[bytes, None]:
        """Generate the stream. It ends with a usage chunk and `[DONE]`, or with an error and `[DONE]`."""
        turn = self.turn
        try:
            yield self._chunk({"role": "assistant", "content": "", "refusal": None})
            beats = turn.received.follow(idle_seconds=turn.context.heartbeat_seconds)
            async with aclosing(beats) as items:
                async for item in items:
                    if item is None:
                        yield sse.HEARTBEAT
                    elif text := turn.reply.add(item):
                        yield self._text_chunk(text)
            turn.raise_if_failed()
            for piece in self._ending(include_usage=include_usage):
                yield piece
        except HoldfastError as e:
            yield sse.format_event(translate(e).body())
        except ApiError as e:
            yield sse.format_event(e.body())
        finally:
            turn.received.close()
        yield sse.DONE
        turn.set_answered()

    def _ending(self, *, include_usage: bool) -> list[bytes]:
        """Build the last chunks. Usage is a separate chunk if requested, else part of the chunk with the finish reason."""
        reply = self.turn.reply
        calls = [self._chunk({"tool_calls": [{"index": n, **_call(call)}]}) for n, call in enumerate(reply.calls)]
        usage: dict[str, object] = {"usage": reply.usage(), "holdfast": self.turn.metadata()}
        if not include_usage:
            return [*calls, self._chunk({}, reply.finish, usage)]
        about = _with_fields(self._fields, "chat.completion.chunk")
        return [*calls, self._chunk({}, reply.finish), sse.format_event({**about, "choices": [], **usage})]

    def _text_chunk(self, text: str) -> bytes:
        """Build the chunk with this text. What comes before and after the text is the same in each, and is encoded once."""
        if self._around_text is None:
            before, _, after = self._chunk({"content": ""}).rpartition(b'""')
            self._around_text = before, after
        before, after = self._around_text
        return before + sse.encode_json(text) + after

    def _chunk(
        self, delta: dict[str, object], finish: str | None = None, more: dict[str, object] | None = None
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return sse.format_event(
            {**_with_fields(self._fields, "chat.completion.chunk"), "choices": [choice], **(more or {})}
        )


def _with_fields(fields: ChunkFields, kind: str) -> dict[str, object]:
    return {"id": fields.id, "object": kind, "created": fields.created, "model": fields.model}


def _call(call: ToolCall) -> dict[str, object]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
