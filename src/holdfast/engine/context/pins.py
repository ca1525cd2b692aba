"""Which messages are pinned, and since when."""

from holdfast.model.event import Compacted


class Pins:
    """By the numbers of messages and of the events that pinned them."""

    def __init__(self) -> None:
        self._pinned_at: dict[int, int] = {}
        self._unpinned_at: dict[int, int] = {}

    def pin(self, seq: int, at: int) -> None:
        self._pinned_at[seq] = at

    def unpin(self, seq: int, at: int) -> None:
        self._unpinned_at[seq] = at

    @property
    def current(self) -> set[int]:
        """The numbers of pinned messages."""
        return {seq for seq, at in self._pinned_at.items() if at > self._unpinned_at.get(seq, 0)}

    def shown_after(self, compacted: Compacted, compacted_at: int) -> set[int]:
        """The messages to show besides the summary: those that the compaction kept, and those pinned since."""
        kept = {seq for seq in compacted.pinned if self._unpinned_at.get(seq, 0) < compacted_at}
        return kept | {seq for seq in self.current if self._pinned_at[seq] > compacted_at}
