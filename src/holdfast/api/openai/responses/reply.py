"""Renders a turn as a response: as one document, as server-sent events, or event by event."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.responses import Response

from holdfast import sse
from holdfast.api.errors import ApiError, translate
from holdfast.api.openai.responses.document import ResponseFacts
from holdfast.api.openai.responses.events import EventData, ResponseEvents
from holdfast.api.openai.turn_stream import TurnStream
from holdfast.model.errors import HoldfastError


class ResponsesReply:
    """Renders a turn in the format of the Responses API."""

    def __init__(self, turn: TurnStream, about: ResponseFacts, after: int = -1) -> None:
        self.turn = turn
        self.events = ResponseEvents(about, after)

    async def whole(self) -> Response:
        await self.turn.follow_to_end(self.events.take)
        headers = self.turn.headers() | {"x-session-seq": str(self.turn.reply.seq)}
        return json_response(self._document(self.events.document()), headers)

    def at_once(self) -> Response:
        """Respond with the current state. The turn continues."""
        self.turn.received.close()
        admission = self.turn.received.admission
        status = "in_progress" if admission.began or admission.repeated else "queued"
        return json_response(self.events.document() | {"status": status}, self.turn.headers())

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Generate the stream as server-sent events. It ends as `stream` does."""
        async with aclosing(self.stream()) as events:
            async for event in events:
                yield sse.HEARTBEAT if event is None else sse.format_event(event, name=str(event["type"]))

    async def stream(self) -> AsyncGenerator[EventData | None, None]:
        """Generate the events, and None while there are none for a while.

        The last one has the whole response, or is an error if the turn could not be followed to its end.
        """
        turn = self.turn
        try:
            for event in self.events.begin():
                yield event
            beats = turn.received.follow(idle_seconds=turn.context.heartbeat_seconds)
            async with aclosing(beats) as items:
                async for item in items:
                    if item is None:
                        yield None
                        continue
                    turn.reply.add(item)
                    for event in self.events.add(item):
                        yield self._complete(event)
            turn.set_answered()
        except HoldfastError as e:
            yield self._error(translate(e))
        finally:
            turn.received.close()

    def _complete(self, event: EventData) -> EventData:
        """Add the session to the event with the whole response."""
        document = event.get("response")
        if isinstance(document, dict) and self.events.ended is not None:
            event["response"] = self._document(document)
        return event

    def _document(self, document: Mapping[str, object]) -> EventData:
        return {**document, "holdfast": self.turn.metadata()}

    def _error(self, error: ApiError) -> EventData:
        """Build an error event with the number of the last event, so that the client can resume after it.

        OpenAI's clients read its own fields, those of Open Responses the object `error`.
        """
        event: EventData = {"type": "error", "sequence_number": max(self.events.number, 0), "code": error.code}
        return {**event, "message": error.message, "param": error.param, **error.body()}


def json_response(document: Mapping[str, object], headers: dict[str, str]) -> Response:
    return Response(sse.encode_json(document), 200, headers, media_type="application/json")
