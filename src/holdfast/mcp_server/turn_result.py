"""What a turn has produced so far: its state, the newest reply, and short progress messages."""

import msgspec

from holdfast.engine.streaming.bus import LiveText
from holdfast.interop.serialization import Document, Json
from holdfast.mcp_server.transcript import PAGE_CHARS, Position
from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAsked,
    Compacted,
    InputDropped,
    ModelSaid,
    Recovered,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from holdfast.model.message import text_of
from holdfast.model.sanitize import one_line
from holdfast.store.repos.approvals import Approval
from holdfast.store.repos.turn_lookup import TurnPosition

PROGRESS_CHARS = 500
"""Characters of one progress message."""
QUESTIONS = 10


class WaitingQuestion(Document, frozen=True):
    id: str
    question: str


class TurnReport(Document, frozen=True):
    session_id: str
    turn_id: str
    state: str
    """`queued`, `running`, `dropped`, or the outcome of the turn."""
    text: str
    """The newest reply, or its beginning if it is long."""
    next: str | None
    """Where `read_session` continues a long reply."""
    seq: int
    code: str
    reason: str
    usage: Json | None
    questions: list[WaitingQuestion]
    """Tool calls that wait for a person's approval."""

    @property
    def failed(self) -> bool:
        return self.state not in ("queued", "running", "done")


class TurnProgress:
    """Collects the items of one followed turn."""

    def __init__(self, session_id: str, turn_id: str, position: TurnPosition) -> None:
        self._session_id = session_id
        self._turn_id = turn_id
        self._within = position.turn_id
        """The turn that has the message; another one if the message joined it."""
        self._state = "running" if position.first else "queued" if position.dropped is None else "dropped"
        self._text = ""
        self._text_seq = 0
        self._seq = 0
        self._ended: TurnEnded | None = None

    def add(self, item: Entry | LiveText | None) -> str | None:
        """Note the item and return the progress message about it; None if there is nothing to say."""
        if item is None:
            return "queued" if self._state == "queued" else "still running"
        if isinstance(item, LiveText):
            return self._add_text(item)
        self._seq = item.seq
        match item.event:
            case TurnStarted():
                self._state = "running"
            case ModelSaid(parts=parts) if text := text_of(parts):
                self._text, self._text_seq = text, item.seq
            case TurnEnded() as ended:
                self._ended, self._state = ended, ended.outcome
            case InputDropped():
                self._state = "dropped"
            case ToolStarted(name=name):
                return f"tool {name} started"
            case ToolEnded(name=name, outcome=outcome):
                return f"tool {name} ended: {outcome}"
            case ApprovalAsked(question=question):
                return _shorten(f"waits for approval: {question}")
            case Compacted():
                return "the context was compacted"
            case Recovered(action=action):
                return _shorten(f"the turn was recovered: {action}")
            case _:
                pass
        return None

    def _add_text(self, live: LiveText) -> str | None:
        self._state = "running"
        if live.kind == "text":
            self._text, self._text_seq = ("" if self._text_seq else self._text)[: live.at] + live.text, 0
            return live.text[-PROGRESS_CHARS:]
        if live.kind == "restarted":
            self._text, self._text_seq = "", 0
        return None if live.kind == "reasoning" else _shorten(live.text)

    def report(self, questions: list[Approval]) -> TurnReport:
        """The state of the turn now."""
        ended = self._ended
        is_cut = len(self._text) > PAGE_CHARS
        waiting = [one for one in questions if one.turn_id == self._within]
        return TurnReport(
            session_id=self._session_id,
            turn_id=self._turn_id,
            state=self._state,
            text=self._text[:PAGE_CHARS],
            next=str(Position(self._text_seq - 1, PAGE_CHARS)) if is_cut and self._text_seq else None,
            seq=self._seq,
            code="" if ended is None else ended.code,
            reason="" if ended is None else ended.reason,
            usage=None if ended is None else msgspec.to_builtins(ended.usage),
            questions=[WaitingQuestion(one.id, _shorten(one.question)) for one in waiting[:QUESTIONS]],
        )


def _shorten(text: str) -> str:
    return one_line(text)[:PROGRESS_CHARS]
