"""What a compaction makes of the messages: pinned ones, the summary, and all that came after it. Pure.

The same messages and the same compaction always give the same view, byte for byte.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from holdfast.engine.thin import thin
from holdfast.model.event import Compacted
from holdfast.model.message import Message, Text, ToolResult

BEGIN = (
    "[Summary. It stands for messages {first} to {last} of this session, which are no longer shown{pinned}. Nothing is "
    "lost: recall(query=…) finds words in them, recall(from_seq=…, to_seq=…) reads them.]"
)
PINNED = ", but for those above"
END = "[End of the summary. Go on from here.]"


def show(messages: Sequence[Message], compacted: Compacted, pinned: Iterable[int], at: int) -> list[Message]:
    """The messages as the model sees them after the compaction. `pinned` are numbers of messages it stands for."""
    kept = [message for message in with_company(messages, pinned) if message.seq <= compacted.upto_seq]
    head = [*kept, summary_of(compacted, at, pinned=bool(kept))] if compacted.upto_seq else []
    rest = messages[place_behind(messages, compacted.upto_seq) :]
    if compacted.thinned_upto <= compacted.upto_seq:
        return [*head, *rest]
    return [
        *head,
        *(
            thin(message, compacted.thinned_to) if message.seq <= compacted.thinned_upto else message
            for message in rest
        ),
    ]


def summary_of(compacted: Compacted, at: int, *, pinned: bool) -> Message:
    """The message that stands for all the others."""
    begin = BEGIN.format(first=1, last=compacted.upto_seq, pinned=PINNED if pinned else "")
    return Message(compacted.upto_seq, "user", (Text(f"{begin}\n\n{compacted.summary}\n\n{END}"),), at)


def place_behind(messages: Sequence[Message], seq: int) -> int:
    """Where the messages begin that came after the event."""
    return bisect_right(messages, seq, key=lambda message: message.seq)


def find(messages: Sequence[Message], seq: int) -> int | None:
    """The place of the message with that number."""
    place = bisect_left(messages, seq, key=lambda message: message.seq)
    return place if place < len(messages) and messages[place].seq == seq else None


def with_company(messages: Sequence[Message], seqs: Iterable[int]) -> list[Message]:
    """The messages with these numbers, in order, each call together with its results."""
    places: set[int] = set()
    for seq in seqs:
        place = find(messages, seq)
        if place is not None:
            places |= _exchange(messages, place)
    return [messages[place] for place in sorted(places)]


def _exchange(messages: Sequence[Message], place: int) -> set[int]:
    """The place of the message; with calls also those of the results, and the other way round."""
    message = messages[place]
    answered = {part.call_id for part in message.parts if isinstance(part, ToolResult)}
    while answered and place > 0 and not answered & {call.id for call in messages[place].tool_calls}:
        place -= 1
    owed = {call.id for call in messages[place].tool_calls}
    found = {place}
    for later in range(place + 1, len(messages)):
        if not owed:
            break
        ids = {part.call_id for part in messages[later].parts if isinstance(part, ToolResult)}
        if ids & owed:
            found.add(later)
            owed -= ids
    return found
