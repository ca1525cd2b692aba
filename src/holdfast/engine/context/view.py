"""The messages after a compaction: pinned ones, the summary, and everything after it. Pure.

The same messages and the same compaction always give the same view, byte for byte.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from holdfast.engine.context.truncate import truncate_results
from holdfast.model.event import Compacted
from holdfast.model.message import Message, Text, ToolResult
from holdfast.model.plan import checklist

BEGIN = (
    "[Summary. It stands for messages {first} to {last} of this session, which are no longer shown{pinned}. Nothing is "
    "lost: recall(query=…) finds words in them, recall(from_seq=…, to_seq=…) reads them.]"
)
PLAN = "[Your plan at that point, as set with todo:]"
GOAL = "[The goal of this session, as the user set it:]"
PINNED = ", but for those above"
END = "[End of the summary. Go on from here.]"


def build_view(messages: Sequence[Message], compacted: Compacted, pinned: Iterable[int], at: int) -> list[Message]:
    """The messages after the compaction. `pinned` are numbers of messages that the summary covers."""
    kept = [message for message in with_exchanges(messages, pinned) if message.seq <= compacted.upto_seq]
    head = [*kept, summary_message(compacted, at, pinned=bool(kept))] if compacted.upto_seq else []
    rest = messages[index_after(messages, compacted.upto_seq) :]
    if compacted.thinned_upto <= compacted.upto_seq:
        return [*head, *rest]
    return [
        *head,
        *(
            truncate_results(message, compacted.thinned_to) if message.seq <= compacted.thinned_upto else message
            for message in rest
        ),
    ]


def summary_message(compacted: Compacted, at: int, *, pinned: bool) -> Message:
    """The message with the summary."""
    begin = BEGIN.format(first=1, last=compacted.upto_seq, pinned=PINNED if pinned else "")
    plan = [f"{PLAN}\n{checklist(compacted.plan)}"] if compacted.plan else []
    goal = [f"{GOAL}\n{compacted.goal}"] if compacted.goal else []
    text = "\n\n".join([begin, compacted.summary, *goal, *plan, END])
    return Message(compacted.upto_seq, "user", (Text(text),), at)


def index_after(messages: Sequence[Message], seq: int) -> int:
    """The index of the first message after the event."""
    return bisect_right(messages, seq, key=lambda message: message.seq)


def find_index(messages: Sequence[Message], seq: int) -> int | None:
    """The index of the message with that number."""
    index = bisect_left(messages, seq, key=lambda message: message.seq)
    return index if index < len(messages) and messages[index].seq == seq else None


def with_exchanges(messages: Sequence[Message], seqs: Iterable[int]) -> list[Message]:
    """The messages with these numbers, in order, each call together with its results."""
    indexes: set[int] = set()
    for seq in seqs:
        index = find_index(messages, seq)
        if index is not None:
            indexes |= _exchange(messages, index)
    return [messages[index] for index in sorted(indexes)]


def _exchange(messages: Sequence[Message], index: int) -> set[int]:
    """The index of the message; for calls also those of their results, and vice versa."""
    message = messages[index]
    answered = {part.call_id for part in message.parts if isinstance(part, ToolResult)}
    while answered and index > 0 and not answered & {call.id for call in messages[index].tool_calls}:
        index -= 1
    pending = {call.id for call in messages[index].tool_calls}
    found = {index}
    for later in range(index + 1, len(messages)):
        if not pending:
            break
        ids = {part.call_id for part in messages[later].parts if isinstance(part, ToolResult)}
        if ids & pending:
            found.add(later)
            pending -= ids
    return found
