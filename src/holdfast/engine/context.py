"""What the model is shown: a view of the log. Pure, and the same bytes each time for the part that has not changed."""

from collections.abc import Sequence

from holdfast.model.asking import Request, ToolSpec
from holdfast.model.event import Entry, ModelSaid, SessionOpened
from holdfast.model.session import messages


def build(entries: Sequence[Entry], *, model: str, system: str, tools: tuple[ToolSpec, ...]) -> Request:
    """The request that asks for the next reply."""
    return Request(
        model=model, system=system_of(entries) or system, messages=tuple(messages(_counted(entries))), tools=tools
    )


def system_of(entries: Sequence[Entry]) -> str | None:
    """The session's own system text, if it was opened with one."""
    first = entries[0].event if entries else None
    return first.system if isinstance(first, SessionOpened) else None


def _counted(entries: Sequence[Entry]) -> list[Entry]:
    """The events without replies that were cut off and then asked for again in the same turn: the whole one counts."""
    counted: list[Entry] = []
    superseded = _newest_turn(entries)
    for entry in reversed(entries):
        event = entry.event
        if isinstance(event, ModelSaid):
            if event.partial and event.turn_id == superseded:
                continue
            superseded = event.turn_id
        counted.append(entry)
    counted.reverse()
    return counted


def _newest_turn(entries: Sequence[Entry]) -> str | None:
    """The turn that a reply is being asked for now."""
    for entry in reversed(entries):
        turn_id = getattr(entry.event, "turn_id", None)
        if turn_id is not None:
            return str(turn_id)
    return None
