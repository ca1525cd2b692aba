"""The port of a messaging platform: six methods. Each platform is one module behind it.

A platform brings payloads and takes messages. It decides nothing: who may talk, in what order, whether a message
came before and what becomes of a reply is the gateway's business, and the same for all of them.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from holdfast.model.errors import HoldfastError, Invalid
from holdfast.model.times import Clock
from holdfast.store.outbox import Choice

T = TypeVar("T")


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """Something that came with a message; `ref` is what the platform needs to fetch it."""

    ref: str
    name: str
    media_type: str = ""
    size: int | None = None


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A payload as it is understood. `chat` and `message` together are its identity on the platform."""

    chat: str
    message: str
    person: str = ""
    name: str = ""
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    private: bool = True
    """Whether only one person and the agent are there."""
    addressed: bool = True
    """In a group: whether the agent was spoken to."""
    pressed: str = ""
    """The value of a choice that was pressed, and `about` the delivery it belonged to."""
    about: str = ""
    reply_to: str = ""
    """What a reply refers to, in the platform's own words; without it, the message."""
    ignored: str = ""
    """Why it is nobody's business: an edit, our own words, an update without a message."""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One message to send. `key` is the same whenever the same thing is sent again."""

    chat: str
    text: str
    key: str
    reply_to: str = ""
    choices: tuple[Choice, ...] = ()
    about: str = ""
    """The delivery that a choice belongs to: comes back with it."""
    file: Path | None = None


class Sent(msgspec.Struct, frozen=True):
    """It was taken; `remote` is the platform's name for it."""

    remote: str


class Later(msgspec.Struct, frozen=True):
    """It was certainly not taken, and may be later. With `everywhere` the same holds for all chats."""

    reason: str
    after_seconds: float | None = None
    everywhere: bool = False


class Never(msgspec.Struct, frozen=True):
    """It will not be taken, now or later."""

    reason: str


class Unsure(msgspec.Struct, frozen=True):
    """It may have been taken: the connection broke before the platform said."""

    reason: str


Fate = Sent | Later | Never | Unsure


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform can do."""

    text: int
    """The longest text of one message, in `measure`'s units."""
    measure: Callable[[str], int] = len
    keyed: bool = False
    """Whether it recognises by its key something that is sent again."""
    edits: bool = False
    typing_seconds: float | None = None
    """How often a sign of typing must be renewed; None if there is none."""
    chat_seconds: float = 0.0
    """The least time between two messages of a chat."""
    tells_queued: bool = True
    """Whether people are told that their words wait."""
    answer_seconds: float = 20.0
    """How long it may take to answer."""


class Inlet(Protocol):
    """Where a platform puts what it receives."""

    async def take(self, payloads: Sequence[str | bytes], position: str | None = None) -> None:
        """Keep the payloads, and how far the platform was read. When this returns they are safe, and may be acknowledged.

        Payloads that cannot be understood are kept as well; what comes twice is recognised. Raises NotSaved or Unavailable.
        """

    async def connected(self) -> None:
        """Say that the platform is reached."""

    async def troubled(self, error: str) -> None:
        """Say that it is not, and that the platform's own module is trying again."""


class Platform(Protocol):
    """A connection. Every method may be called at any time while it is open."""

    limits: Limits

    async def receive(self, inlet: Inlet, position: str) -> None:
        """Hand all that comes to the inlet, from `position` on, until cancelled; acknowledge only what it has taken.

        Raises Unavailable when the connection is lost for good: it is then opened anew.
        """

    def read(self, payload: str) -> Incoming:
        """What a payload says. Pure; any error means that it cannot be understood."""

    async def send(self, message: Outgoing) -> Fate:
        """Send one message that fits the limits."""

    async def edit(self, chat: str, remote: str, text: str) -> Fate:
        """Change a message that was sent, where the platform can."""

    async def typing(self, chat: str) -> None:
        """Show that a reply is being made. What goes wrong here is nobody's business."""

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        """Save an attachment. Raises TooLarge having stopped in time, or Unavailable."""


class TooLarge(Exception):
    """An attachment that is over the limit; whoever fetches it handles this."""


Connect = Callable[["Options", Clock], AbstractAsyncContextManager[Platform]]
"""Opens a platform from its settings. Raises Invalid for wrong settings, Unavailable for no answer."""


class Options:
    """The settings of a platform, each checked when it is asked for. What nobody asked for is unknown and refused."""

    def __init__(self, name: str, given: dict[str, object]) -> None:
        self._name = self.name = name
        self._given = given
        self._asked: set[str] = set()

    def text(self, key: str, default: str | None = None) -> str:
        return self._get(key, str, default, "a text")

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, (int, float), default, "a number")
        if isinstance(value, bool) or value < 0:
            raise Invalid(f"[gateway.{self._name}] {key}: expected a number that is not negative")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        return self._get(key, bool, default, "true or false")

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; numbers are taken as such, because the ids of many platforms are."""
        value = self._get(key, list, [], "a list")
        if not all(isinstance(one, str | int) for one in value):
            raise Invalid(f"[gateway.{self._name}] {key}: expected a list of texts")
        return tuple(str(one) for one in value)

    def one_of(self, key: str, known: Sequence[str]) -> str:
        """One of some words; the first is the default."""
        value = self.text(key, known[0])
        if value not in known:
            raise Invalid(f"[gateway.{self._name}] {key}: expected one of {', '.join(known)}")
        return value

    def _get(self, key: str, kind: type[T] | tuple[type, ...], default: T | None, what: str) -> T:
        self._asked.add(key)
        value = self._given.get(key, default)
        if value is None:
            raise Invalid(f"[gateway.{self._name}] needs {key}, {what}")
        if not isinstance(value, kind):
            raise Invalid(f"[gateway.{self._name}] {key}: expected {what}")
        return value  # type: ignore[return-value] # it was just checked

    def refuse_unknown(self) -> None:
        """Raises Invalid for a setting that nobody has asked for."""
        for key in self._given:
            if key not in self._asked:
                known = ", ".join(sorted(self._asked))
                raise Invalid(f"[gateway.{self._name}] has an unknown setting {key}; known here are {known}")


def reason(error: BaseException) -> str:
    """An error of somebody else's in a line."""
    if isinstance(error, HoldfastError):
        return str(error)
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
