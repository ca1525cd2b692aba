"""Which messages memory may drop: those that a model's summary has replaced, unless they may be shown again."""

from collections.abc import Iterable, Sequence

from holdfast.engine.context.view import find_index, index_after, with_exchanges
from holdfast.model.event import Compacted
from holdfast.model.message import Message, text_bytes

MESSAGE_BYTES = 450
"""Memory of a message besides its text, measured with messages of 100 to 300 characters."""
MECHANICAL = ("digest", "thinned")
"""Compactions that no model wrote: the next summary is made from the messages that they replaced."""


class DroppedMessages:
    """What a context has dropped of its messages."""

    def __init__(self) -> None:
        self.upto = 0
        """Messages up to this event are in memory only if they were needed when the others were dropped."""
        self._absent: set[int] = set()
        """Numbers that were needed then, but were not those of messages."""

    def drop(self, messages: Sequence[Message], upto: int, needed: set[int]) -> list[Message]:
        """The messages without those up to the event, except the needed ones, each call together with its results."""
        self.upto, self._absent = upto, {seq for seq in needed if find_index(messages, seq) is None}
        kept = [message for message in with_exchanges(messages, needed) if message.seq <= upto]
        return [*kept, *messages[index_after(messages, upto) :]]

    def includes_any(self, needed: set[int], messages: Sequence[Message]) -> bool:
        """Whether one of the needed messages was dropped. `messages` are those in memory."""
        old = (seq for seq in needed - self._absent if seq <= self.upto)
        return any(find_index(messages, seq) is None for seq in old)


def replaced_upto(compactions: Sequence[Compacted]) -> int:
    """The event up to which a summary of a model has replaced the messages; 0 if there is none."""
    written = next((one for one in reversed(compactions) if one.how not in MECHANICAL), None)
    return 0 if written is None else min(written.upto_seq, compactions[-1].upto_seq)


def count_bytes(messages: Iterable[Message]) -> int:
    """The approximate memory of the messages."""
    return sum(MESSAGE_BYTES + text_bytes(message.parts) for message in messages)
