"""A turn as chunks of the AI SDK's UI message stream.

One message of the assistant has a step for each reply of the model, with its reasoning, text and tool calls. The server's
own tools are dynamic tool parts that the provider has executed; the client's tools are parts of their own. Text is sent once
it is durable. Of a text that the log has no complete reply for, the part is marked: `discarded` if the model began again,
`partial` if the turn ended there.
"""

import json
from collections.abc import Iterator

from holdfast.api.ai_sdk.request import METADATA
from holdfast.engine.streaming.bus import LiveText
from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAnswered,
    ApprovalAsked,
    InputDropped,
    ModelSaid,
    ReplyRestarted,
    ToolEnded,
    TurnEnded,
    TurnStarted,
)
from holdfast.model.message import Reasoning, Text, ToolCall, text_of
from holdfast.providers.sanitize import parse_arguments

Chunk = dict[str, object]
FINISH_REASONS = {"length": "length", "refused": "content-filter"}
"""Finish reasons of the model that clients see; all others are `stop`."""
SERVER_TOOL: Chunk = {"dynamic": True, "providerExecuted": True}
"""Fields of a call that the client neither runs nor knows the type of."""


class MessageChunks:
    """Folds the events of a message's turns into chunks."""

    def __init__(self, *, takes_reasoning: bool) -> None:
        self.ended: TurnEnded | None = None
        self.awaited: dict[str, ToolCall] = {}
        """Calls that the client must run."""
        self._takes_reasoning = takes_reasoning
        """Whether reasoning is taken as it is streamed: only from the beginning of a turn on is it complete."""
        self._count = 0
        self._in_step = False
        self._replied = False
        """Whether the reply of this step is complete."""
        self._client_tools: frozenset[str] = frozenset()
        self._calls: dict[str, ToolCall] = {}
        """All calls of the message."""
        self._client_calls: set[str] = set()
        """Those of them that are for the client."""
        self._running: set[str] = set()
        """Calls of the server's tools without a result."""
        self._asked: set[str] = set()
        """Those of them that wait for the user's approval."""
        self._denied: set[str] = set()
        self._finish = ""
        self._part = ""
        """Id of the part that is being sent."""
        self._kind = ""
        self._text = ""
        """Text received of the current reply."""
        self._thought = ""
        self._cut = False
        """Whether the reply broke off. It may restart, or stay as it is."""
        self._held = ""
        """A text that broke off before this stream began: it is sent only if no other follows."""

    @property
    def waits_for_user(self) -> bool:
        """Whether nothing can happen before the user approves or denies a call."""
        return bool(self._asked) and self._running <= self._asked

    @property
    def finish_reason(self) -> str:
        return "tool-calls" if self.awaited or self.waits_for_user else FINISH_REASONS.get(self._finish, "stop")

    def add(self, item: Entry | LiveText) -> Iterator[Chunk]:
        """Add an event or live text, and yield the chunks for it."""
        if isinstance(item, LiveText):
            yield from self._live(item)
            return
        match item.event:
            case TurnStarted():
                self.ended, self.awaited = None, {}
                self._client_tools = frozenset(tool.name for tool in item.event.terms.tools)
            case ModelSaid():
                yield from self._said(item.event)
            case ReplyRestarted():
                yield from self._discard()
            case ToolEnded():
                yield from self._result(item.event)
            case ApprovalAsked():
                yield from self._ask(item.event)
            case ApprovalAnswered():
                self._asked.discard(item.event.call_id)
                if not item.event.allowed:
                    self._denied.add(item.event.call_id)
            case TurnEnded():
                yield from self._end(item.event)
            case InputDropped():
                reason = "the message was cancelled before its turn started"
                yield from self._end(TurnEnded(turn_id=item.event.turn_id, outcome="cancelled", reason=reason))

    def _live(self, live: LiveText) -> Iterator[Chunk]:
        match live.kind:
            case "text":
                yield from self._stream(live.text)
            case "reasoning" if self._takes_reasoning and not self._cut and self._kind != "text":
                yield from self._think(live.text)
            case "restarted":
                yield from self._discard()
            case "retrying":
                yield {"type": "data-notice", "data": {"kind": "retrying", "text": live.text}, "transient": True}

    # The reply of the model.

    def _begin(self, kind: str) -> Iterator[Chunk]:
        """Begin a part, in a new step if the last reply is complete."""
        if self._kind == kind:
            return
        yield from self._close()
        yield from self._step()
        self._count += 1
        self._kind, self._part = kind, f"{kind}-{self._count}"
        yield {"type": f"{kind}-start", "id": self._part}

    def _step(self) -> Iterator[Chunk]:
        if self._replied and self._in_step:
            yield {"type": "finish-step"}
            self._in_step = False
        self._replied = False
        if not self._in_step:
            self._in_step = True
            yield {"type": "start-step"}

    def _close(self, mark: str = "") -> Iterator[Chunk]:
        """End the part that is being sent."""
        if self._kind:
            marks: Chunk = {"providerMetadata": {METADATA: {mark: True}}} if mark else {}
            yield {"type": f"{self._kind}-end", "id": self._part, **marks}
        self._kind = ""

    def _stream(self, text: str) -> Iterator[Chunk]:
        """Stream text of the current reply. White space alone begins no part."""
        if self._cut:
            yield from self._discard()
        self._held = ""
        before, self._text = self._text, self._text + text
        if not self._text.strip():
            return
        new = text if before.strip() else self._text
        yield from self._begin("text")
        if new:
            yield {"type": "text-delta", "id": self._part, "delta": new}

    def _think(self, text: str) -> Iterator[Chunk]:
        self._thought += text
        if text:
            yield from self._begin("reasoning")
            yield {"type": "reasoning-delta", "id": self._part, "delta": text}

    def _discard(self) -> Iterator[Chunk]:
        """Expect the reply from its beginning."""
        yield from self._close("discarded" if self._kind == "text" else "")
        self._text = self._thought = self._held = ""
        self._cut = False

    def _said(self, said: ModelSaid) -> Iterator[Chunk]:
        text = text_of(said.parts)
        if said.partial and not self._text.strip():
            self._held = text
            return
        if said.partial:
            yield from self._stream(text[len(self._text) :] if text.startswith(self._text) else "")
            self._cut = True
            return
        yield from self._reason("\n\n".join(one.text for one in said.parts if isinstance(one, Reasoning) and one.text))
        if self._cut or not text.startswith(self._text):
            yield from self._discard()
        yield from self._stream(text[len(self._text) :])
        yield from self._close()
        for call in (part for part in said.parts if isinstance(part, ToolCall)):
            yield from self._call(call)
        self._finish, self._replied = said.finish, True
        self._text = self._thought = self._held = ""

    def _reason(self, thought: str) -> Iterator[Chunk]:
        """Send the reasoning of a reply that is complete, as far as it was not streamed."""
        if thought.startswith(self._thought) and self._kind != "text":
            yield from self._think(thought[len(self._thought) :])
        elif not self._thought and thought:  # its text came first: this stream began in the middle of the reply
            self._count += 1
            part = f"reasoning-{self._count}"
            yield {"type": "reasoning-start", "id": part}
            yield {"type": "reasoning-delta", "id": part, "delta": thought}
            yield {"type": "reasoning-end", "id": part}

    # Tools.

    def _call(self, call: ToolCall) -> Iterator[Chunk]:
        yield from self._step()
        self._calls[call.id] = call
        chunk: Chunk = {"type": "tool-input-available", "toolCallId": call.id, "toolName": call.name}
        chunk["input"] = parse_arguments(call.arguments)
        if call.name in self._client_tools:
            self._client_calls.add(call.id)
        else:
            self._running.add(call.id)
            chunk |= SERVER_TOOL
        yield chunk

    def _ask(self, asked: ApprovalAsked) -> Iterator[Chunk]:
        if asked.call_id in self._running:  # a running call may ask, too; that is answered elsewhere
            self._asked.add(asked.call_id)
            yield {
                "type": "tool-approval-request",
                "approvalId": asked.question_id or asked.call_id,
                "toolCallId": asked.call_id,
                "approvalDescriptor": {"question": asked.question},
            }

    def _result(self, ended: ToolEnded) -> Iterator[Chunk]:
        """The result of a call that this message has shown."""
        call = self._calls.get(ended.call_id)
        if call is None:
            return
        self._running.discard(call.id)
        self._asked.discard(call.id)
        text = text_of(tuple(part for part in ended.parts if isinstance(part, Text)))
        is_clients = call.id in self._client_calls
        chunk: Chunk = {"toolCallId": call.id, **({} if is_clients else SERVER_TOOL)}
        if ended.outcome == "ok":
            yield chunk | {"type": "tool-output-available", "output": _client_output(text) if is_clients else text}
        elif ended.outcome == "denied" and call.id in self._denied:
            yield {"type": "tool-output-denied", "toolCallId": call.id}
        else:
            yield chunk | {"type": "tool-output-error", "errorText": text}

    def _end(self, ended: TurnEnded) -> Iterator[Chunk]:
        if self._held:
            yield from self._stream(self._held)
        yield from self._close("partial" if self._kind == "text" else "")
        self._text = self._thought = ""
        self._cut = False
        self.ended = ended
        self.awaited = {id_: self._calls[id_] for id_ in ended.awaiting if id_ in self._calls}
        if self._in_step:
            yield {"type": "finish-step"}
        self._in_step = self._replied = False
        self._running.clear()
        self._asked.clear()


def _client_output(text: str) -> object:
    """The output that the client sent: JSON, or text."""
    if text.startswith(("{", "[")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text
