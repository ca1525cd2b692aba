"""`POST /v1/chat/completions`, in one piece or as a stream."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast import eventstream
from holdfast.api import intake, naming, shapes, stream
from holdfast.api.errors import Refusal, translate
from holdfast.api.house import of
from holdfast.api.reply import Frame, frame
from holdfast.api.telling import Telling
from holdfast.model.errors import HoldfastError
from holdfast.model.message import ToolCall

LARGE = 256 * 1024
"""Bodies from this size on are read beside the event loop, so that nobody else has to wait for it."""


async def complete(request: Request) -> Response:
    """Take the request in; it is durable from then on, whatever becomes of the client. Then tell of its turn."""
    house = of(request)
    body = await request.body()
    asked = await asyncio.to_thread(shapes.parse, body) if len(body) > LARGE else shapes.parse(body)
    named = naming.named(request.headers, house.settings.api.session_headers, asked.cache_key)
    received = await intake.receive(house, intake.arrival(house, request, asked, named))
    answer = Answer(Telling(house, received, keyed=bool(naming.key(request.headers)), echo=named.echo))
    if asked.stream:
        return eventstream.EventStream(answer.pieces(include_usage=asked.include_usage), answer.telling.headers())
    return await answer.whole()


class Answer:
    """A turn in the words of the Chat Completions API."""

    def __init__(self, telling: Telling) -> None:
        self.telling = telling
        arrived = telling.received.arrived
        self._frame = frame(arrived.admission.turn_id, arrived.model)

    async def whole(self) -> Response:
        await self.telling.hear_all()
        headers = self.telling.headers() | {"x-session-seq": str(self.telling.reply.seq)}
        return Response(msgspec.json.encode(self._document()), 200, headers, media_type="application/json")

    def _document(self) -> dict[str, object]:
        reply = self.telling.reply
        message: dict[str, object] = {"role": "assistant", "content": reply.text, "refusal": None}
        if reply.calls:
            message |= {"content": reply.text or None, "tool_calls": [_call(call) for call in reply.calls]}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish}
        about = _framed(self._frame, "chat.completion")
        return {**about, "choices": [choice], "usage": reply.usage(), "holdfast": self.telling.about()}

    async def pieces(self, *, include_usage: bool) -> AsyncGenerator[bytes, None]:
        """The stream. It ends with a usage chunk and `[DONE]`, or with an error and `[DONE]`."""
        telling = self.telling
        try:
            yield self._chunk({"role": "assistant", "content": "", "refusal": None})
            beats = eventstream.with_heartbeats(telling.received.follow(), telling.house.heartbeat_seconds)
            async with aclosing(beats) as items:
                async for item in items:
                    if item is None:
                        yield stream.HEARTBEAT
                    elif words := telling.reply.add(item):
                        yield self._chunk({"content": words})
            telling.refuse_failed()
            for piece in self._ending(include_usage=include_usage):
                yield piece
        except HoldfastError as e:
            yield stream.event(translate(e).body())
        except Refusal as refusal:
            yield stream.event(refusal.body())
        finally:
            telling.received.close()
        yield stream.DONE

    def _ending(self, *, include_usage: bool) -> list[bytes]:
        """The last chunks. The usage is in a chunk of its own if it was asked for, else in the one that says why it ended."""
        reply = self.telling.reply
        calls = [self._chunk({"tool_calls": [{"index": n, **_call(call)}]}) for n, call in enumerate(reply.calls)]
        usage: dict[str, object] = {"usage": reply.usage(), "holdfast": self.telling.about()}
        if not include_usage:
            return [*calls, self._chunk({}, reply.finish, usage)]
        about = _framed(self._frame, "chat.completion.chunk")
        return [*calls, self._chunk({}, reply.finish), stream.event({**about, "choices": [], **usage})]

    def _chunk(
        self, delta: dict[str, object], finish: str | None = None, more: dict[str, object] | None = None
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return stream.event({**_framed(self._frame, "chat.completion.chunk"), "choices": [choice], **(more or {})})


def _framed(around: Frame, kind: str) -> dict[str, object]:
    return {"id": around.id, "object": kind, "created": around.created, "model": around.model}


def _call(call: ToolCall) -> dict[str, object]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
