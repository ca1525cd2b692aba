"""Describes an interrupted turn: what it was doing, and what resuming it would do. Pure."""

from collections.abc import Sequence

import msgspec

from holdfast.cli.chat.output.text_fit import call_line
from holdfast.model.entry import Entry
from holdfast.model.event import UserSaid
from holdfast.model.message import ToolCall, text_of
from holdfast.model.sanitize import one_line
from holdfast.model.text import truncate
from holdfast.model.turn import turn_of

QUOTED = 60
"""Characters of a message that is quoted."""


class InterruptedTurn(msgspec.Struct, frozen=True):
    """Two clauses: `was` follows "the turn was interrupted", `will` follows "resuming it"."""

    was: str
    will: str


def describe(entries: Sequence[Entry]) -> InterruptedTurn:
    """The state of the open turn with these events."""
    turn = turn_of(entries)
    started = [call for call in turn.open_calls if call.id in turn.started]
    if started and all(call.id in turn.delegated for call in started):
        return InterruptedTurn(f"while it waited for {_names(started)}", "waits for the same sub-agents")
    if started:
        return InterruptedTurn(
            f"while it ran {_names(started)}",
            "tells the model that the outcome is unknown (a tool that only reads runs again)",
        )
    if turn.open_calls:
        return InterruptedTurn(f"before it ran {_names(turn.open_calls)}", "runs it")
    return InterruptedTurn(f"while the model was answering “{_question(entries)}”", "asks the model again")


def _names(calls: Sequence[ToolCall]) -> str:
    return ", ".join(f"`{call_line(call)}`" for call in calls)


def _question(entries: Sequence[Entry]) -> str:
    said = [entry.event for entry in entries if isinstance(entry.event, UserSaid)]
    return truncate(one_line(text_of(said[-1].parts)), QUOTED) if said else ""
