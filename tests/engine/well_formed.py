"""The invariants of every log, whatever happened to the process that wrote it."""

from collections.abc import Sequence

from holdfast.model.event import Event, ModelSaid, Rewound, ToolEnded, TurnEnded, TurnStarted
from holdfast.model.message import ToolCall


def assert_well_formed(events: Sequence[Event]) -> None:
    """Each call has exactly one result before the model speaks again; turns do not overlap; every turn ends once.

    A turn that ends with calls for its client names exactly those; they have their results when the next one starts, unless
    they were taken back.
    """
    owed: list[str] = []
    owed_after: list[list[str]] = []
    turn: str | None = None
    for event in events:
        match event:
            case Rewound():
                owed = list(owed_after[event.to_seq - 1])
            case TurnStarted():
                assert turn is None, f"{event.turn_id} began while {turn} was open"
                turn = event.turn_id
            case TurnEnded():
                assert turn == event.turn_id
                assert sorted(owed) == sorted(event.awaiting), f"the turn ended with calls open: {owed}"
                turn = None
            case ModelSaid():
                assert not owed, f"the model spoke while it was owed {owed}"
                owed = [part.id for part in event.parts if isinstance(part, ToolCall)]
                assert len(owed) == len(set(owed))
            case ToolEnded():
                assert event.call_id in owed, f"a result for {event.call_id}, which is not owed"
                owed.remove(event.call_id)
            case _:
                pass
        owed_after.append(list(owed))
    assert turn is None, f"{turn} never ended"
