"""Determines which input a provider refused for its content. Pure: derived from the log.

Only input that the provider has not accepted before can be the cause: the input since the model's last reply, except
content that it accepted before. That may include input of earlier turns which ended before the provider judged it.
Everything else in the context was part of an accepted request.
"""

from collections.abc import Sequence

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.errors import ProviderFailed, Refused
from holdfast.model.event import InputRefused, ModelSaid, ToolEnded, TurnStarted, UserSaid
from holdfast.model.message import Content

REFUSED_NOTICE = "! the provider refused this input; it was set aside, and the model is not shown it again"
"""The notice for an `input_refused` event."""


class RefusedInput(msgspec.Struct, frozen=True):
    event: InputRefused
    turn_goes_on: bool
    """Whether only results of our own tools were refused: the model can continue without them."""


def blames_input(error: ProviderFailed) -> bool:
    """Whether the provider refused some input for its content."""
    return isinstance(error, Refused) and error.blames_input


def refused_input(entries: Sequence[Entry], turn_id: str, error: ProviderFailed) -> RefusedInput | None:
    """The input to set aside after a refusal; None if the newest input is not the cause. `entries` is the whole log."""
    known = _set_aside_before(entries)
    blamed = [entry for entry in _new_input(entries) if entry.seq not in known]
    accepted = _accepted(entries)
    blamed = [entry for entry in blamed if _content(entry) not in accepted]
    if not blamed:
        return None
    seqs = tuple(entry.seq for entry in blamed)
    event = InputRefused(turn_id=turn_id, seqs=seqs, reason=str(error), code=error.code)
    only_results = all(isinstance(entry.event, ToolEnded) for entry in blamed)
    return RefusedInput(event, turn_goes_on=only_results and _has_spoken(entries, turn_id))


def _new_input(entries: Sequence[Entry]) -> list[Entry]:
    """The input and tool results since the model's last reply."""
    found: list[Entry] = []
    for entry in reversed(entries):
        if isinstance(entry.event, ModelSaid):
            break
        if isinstance(entry.event, UserSaid | ToolEnded):
            found.append(entry)
    return found[::-1]


def _set_aside_before(entries: Sequence[Entry]) -> set[int]:
    return {seq for entry in entries if isinstance(entry.event, InputRefused) for seq in entry.event.seqs}


def _accepted(entries: Sequence[Entry]) -> list[tuple[Content, ...]]:
    """The content of all input that was answered."""
    accepted: list[tuple[Content, ...]] = []
    pending: list[tuple[Content, ...]] = []
    for entry in entries:
        if isinstance(entry.event, UserSaid | ToolEnded):
            pending.append(_content(entry))
        elif isinstance(entry.event, InputRefused):
            pending = []
        elif isinstance(entry.event, ModelSaid) and entry.event.model:
            accepted += pending
            pending = []
    return accepted


def _content(entry: Entry) -> tuple[Content, ...]:
    assert isinstance(entry.event, UserSaid | ToolEnded), "only these are input"
    return entry.event.parts


def _has_spoken(entries: Sequence[Entry], turn_id: str) -> bool:
    """Whether the model has replied in this turn, so that its calls were run here and not by the client."""
    for entry in reversed(entries):
        if isinstance(entry.event, TurnStarted):
            return False
        if isinstance(entry.event, ModelSaid):
            return entry.event.turn_id == turn_id
    return False
