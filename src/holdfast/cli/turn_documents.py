"""The JSON output of one turn: a document at its end, or also a line for each thing that happens.

`docs/commands.md` describes the lines. Each is complete JSON in ASCII; the last one has the type `result`.
"""

import sys
from collections.abc import AsyncIterator

import msgspec

from holdfast.cli import render, turn_output
from holdfast.cli.turn_output import TurnResult
from holdfast.engine.engine import Engine
from holdfast.engine.streaming.bus import LiveText
from holdfast.interop import serialization
from holdfast.model.entry import Entry
from holdfast.model.session import Session
from holdfast.model.times import iso

Line = dict[str, object]
NOT_APPROVED = "denied"
"""The error code if a tool was not run because nobody answered the approval question."""


class TurnLines:
    """Prints the lines of one turn. `has_result` says whether the last one was printed."""

    has_result = False

    def begin(self, session: Session, turn_id: str) -> None:
        model = session.summary.model
        self._write({"type": "session", "session_id": session.id, "turn_id": turn_id, "model": model})

    async def print_items(self, items: AsyncIterator[Entry | LiveText]) -> AsyncIterator[Entry | LiveText]:
        """Print a line for each item, and pass it on."""
        async for item in items:
            if isinstance(item, LiveText):
                self._write({"type": item.kind, "text": item.text})
            else:
                event = {"seq": item.seq, "kind": item.kind, "at": iso(item.at), "body": item.event}
                self._write({"type": "event", **event})
            yield item

    def end(self, result: Line) -> None:
        self.has_result = True
        self._write({"type": "result", **result})

    def _write(self, line: Line) -> None:
        """Print a line at once. Raises NotSaved if it cannot be written."""
        render.print_text(serialization.dump(line))
        render.flush()


async def result_document(engine: Engine, session_id: str, outcome: TurnResult) -> Line:
    """What is known at the end of the turn; `error` only if it did not end well."""
    session, _ = await engine.read(session_id)
    ended = outcome.ended
    document: Line = {
        "session_id": session_id,
        "turn_id": ended.turn_id,
        "epoch": session.summary.epoch,
        "compacted": outcome.compacted,
        "seq": outcome.seq,
        "text": outcome.text,
        "usage": msgspec.structs.asdict(ended.usage),
    }
    if outcome.unanswered:
        document["error"] = {"code": NOT_APPROVED, "message": not_approved(outcome)}
    if (problem := turn_output.failure_message(ended)) is not None:
        document["error"] = {"code": ended.code or ended.outcome, "message": problem}
    return document


def not_approved(outcome: TurnResult) -> str:
    """The message about tools that were not run because nobody answered the approval question."""
    return (
        f"not run, approval timed out: {', '.join(outcome.unanswered)}; use 'holdfast chat', "
        "or raise agent.approval_seconds and answer with 'holdfast questions' or the dashboard"
    )


def print_failed_result(code: str, message: str) -> None:
    """The last line of a stream that ended with an error before or during the turn."""
    line: Line = {"type": "result", "error": {"code": code, "message": message}}
    sys.stdout.write(serialization.dump(line) + "\n")
    sys.stdout.flush()
