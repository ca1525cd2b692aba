"""How large a context is: what the provider counted for the last reply, and a guess for what came since."""

from collections.abc import Sequence

import msgspec

from holdfast.engine import size
from holdfast.model.message import Message

LEAST = 0.75
"""How many tokens a guess may stand for at the least: four bytes each."""


CREDIBLE = 0.25
"""How much of our guess a provider's count must come to: twelve bytes a token. Some servers leave out what they had
in a cache, or cut the context off without a word; believed, they would never be spared anything."""


class Weight(msgspec.Struct, frozen=True):
    """How large the context is, in tokens: rather too large, and at the least."""

    tokens: int
    least: int


class Known(msgspec.Struct, frozen=True):
    """So many messages of the view, with the frame around them, take so many tokens; counted by the provider, or derived from a guess."""

    messages: int
    tokens: int
    is_counted: bool


class Scales:
    """What is known about the size of a view that grows at its end. Whoever changes it elsewhere says `forget`."""

    def __init__(self) -> None:
        self._known: list[Known] = []
        self._guessed: tuple[int, int] = (0, 0)
        """How many messages were guessed to take how many tokens, the frame not included."""

    @property
    def is_counted(self) -> bool:
        """Whether what is known goes back to a count of the provider."""
        return bool(self._known) and self._known[-1].is_counted

    def know(self, messages: int, tokens: int, *, is_counted: bool) -> None:
        self._known.append(Known(messages, tokens, is_counted))

    def forget(self) -> None:
        self._known, self._guessed = [], (0, 0)

    def forget_counts(self) -> None:
        """Another model counts differently."""
        self._known = []

    def forget_guess(self) -> None:
        self._guessed = (0, 0)

    def cut(self, known: Sequence[Known], messages: int) -> None:
        """Keep what is known of the first messages, all that is left."""
        self._known = [one for one in known if one.messages <= messages]

    @property
    def known(self) -> Sequence[Known]:
        return self._known

    def weigh(self, view: Sequence[Message], frame: int) -> Weight:
        """`frame` is what the system text and the tools are guessed to take."""
        known = self._known[-1] if self._known else None
        guessed = frame + self.guess(view) if known is None else size.of_messages(view[known.messages :])
        if known is None or not known.is_counted:
            guessed += known.tokens if known is not None else 0
            return Weight(guessed, int(guessed * LEAST))
        least = known.tokens + int(guessed * LEAST)
        return Weight(max(known.tokens + guessed, int((frame + self.guess(view)) * CREDIBLE)), least)

    def guess(self, view: Sequence[Message]) -> int:
        """What the messages are guessed to take, whatever anybody has counted."""
        count, known = self._guessed
        known += size.of_messages(view[count:])
        self._guessed = len(view), known
        return known
