"""The messages of a session as the AI SDK keeps them, folded from the log."""

from collections.abc import Iterable

from holdfast.api.ai_sdk.message_stream import Chunk, MessageChunks
from holdfast.api.ai_sdk.request import DYNAMIC, METADATA, STATIC
from holdfast.model.entry import Entry
from holdfast.model.event import TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Content, File, Image, Text
from holdfast.model.times import iso

Message = dict[str, object]
DEFAULT_MEDIA_TYPE = "application/octet-stream"


class MessageParts:
    """Builds the parts of a message from chunks, as a client does."""

    def __init__(self) -> None:
        self.parts: list[Chunk] = []
        self._streaming: dict[str, Chunk] = {}
        self._tools: dict[str, Chunk] = {}

    def add(self, chunk: Chunk) -> None:
        kind = str(chunk["type"])
        if kind == "start-step":
            self.parts.append({"type": "step-start"})
        elif kind.startswith(("text-", "reasoning-")):
            self._text(kind, chunk)
        elif kind.startswith("tool-"):
            self._tool(kind, chunk)

    def _text(self, kind: str, chunk: Chunk) -> None:
        name, _, step = kind.partition("-")
        id_ = str(chunk["id"])
        if step == "start":
            self._streaming[id_] = {"type": name, "text": "", "state": "streaming"}
            self.parts.append(self._streaming[id_])
            return
        part = self._streaming[id_]
        if step == "delta":
            part["text"] = f"{part['text']}{chunk['delta']}"
            return
        part["state"] = "done"
        if "providerMetadata" in chunk:
            part["providerMetadata"] = chunk["providerMetadata"]

    def _tool(self, kind: str, chunk: Chunk) -> None:
        call_id = str(chunk["toolCallId"])
        if kind == "tool-input-available":
            named: Chunk = {"type": f"{STATIC}{chunk['toolName']}"}
            if chunk.get("dynamic"):
                named = {"type": DYNAMIC, "toolName": chunk["toolName"], "providerExecuted": True}
            part = {**named, "toolCallId": call_id, "state": "input-available", "input": chunk["input"]}
            self._tools[call_id] = part
            self.parts.append(part)
            return
        part = self._tools[call_id]
        part["state"] = kind.removeprefix("tool-")
        match kind:
            case "tool-approval-request":
                approval = {"id": chunk["approvalId"], "descriptor": chunk["approvalDescriptor"]}
                part |= {"state": "approval-requested", "approval": approval}
            case "tool-output-available":
                part["output"] = chunk["output"]
            case "tool-output-error":
                part["errorText"] = chunk["errorText"]
        approval_given = part.get("approval")
        if isinstance(approval_given, dict) and kind != "tool-approval-request":
            part["approval"] = {**approval_given, "approved": kind != "tool-output-denied"}


class MessageHistory:
    """Folds standing entries of a log into messages. A message of the assistant has the id of the turn that began it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._chunks = MessageChunks(takes_reasoning=False)
        self._parts: MessageParts | None = None
        self._next_id = ""

    def add(self, entry: Entry) -> None:
        event = entry.event
        match event:
            case TurnStarted():
                if not self._chunks.awaited:
                    self._parts = None
                self._next_id = event.turn_id
            case UserSaid():
                self._parts = None
                self._next_id = event.input_id or event.turn_id
                said: Message = {"id": f"{self._next_id}-user", "role": "user", "parts": [*map(user_part, event.parts)]}
                self.messages.append(said | {"metadata": {METADATA: {"at": iso(entry.at)}}})
                if event.input_id:
                    return
        for chunk in self._chunks.add(entry):
            if self._parts is None:
                self._open(entry)
            assert self._parts is not None, "it was just opened"
            self._parts.add(chunk)
        if isinstance(event, TurnEnded):
            self._mark(event)

    def _open(self, entry: Entry) -> None:
        self._parts = MessageParts()
        about = {METADATA: {"turn_id": getattr(entry.event, "turn_id", ""), "at": iso(entry.at)}}
        message: Message = {"id": self._next_id, "role": "assistant", "parts": self._parts.parts, "metadata": about}
        self.messages.append(message)

    def _mark(self, ended: TurnEnded) -> None:
        """Record in the message how its turn ended."""
        if self._parts is not None and not ended.awaiting:
            about = self.messages[-1]["metadata"]
            assert isinstance(about, dict), "that is how messages are built"
            about[METADATA] |= {"outcome": ended.outcome, "code": ended.code, "reason": ended.reason}


def build_messages(entries: Iterable[Entry]) -> list[Message]:
    """The messages of standing entries."""
    history = MessageHistory()
    for entry in entries:
        history.add(entry)
    return history.messages


def user_part(part: Content) -> Message:
    """A part of a user's message."""
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image():
            return {"type": "file", "mediaType": part.media_type or "image/*", "url": part.url}
        case File():
            media_type = part.media_type or DEFAULT_MEDIA_TYPE
            return {"type": "file", "mediaType": media_type, "filename": part.name, "url": part.url}
