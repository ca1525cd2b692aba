"""The port of a messaging platform: six methods. Each platform is one module behind it.

A platform receives payloads and sends messages. The gateway decides everything else, in the same way for all platforms:
who may talk, in which order, whether a message is a duplicate, and how a reply is retried.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from holdfast.model.errors import HoldfastError, Invalid
from holdfast.model.times import Clock
from holdfast.model.validation import explain
from holdfast.store.repos.outbox import ReplyChoice

T = TypeVar("T")
PLATFORMS = "platforms"
"""The directory in the home with the private files of each platform."""


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment of a message; the platform needs `ref` to fetch it."""

    ref: str
    name: str
    media_type: str = ""
    size: int | None = None


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed payload. `chat` and `message` together identify it on the platform."""

    chat: str
    message: str
    person: str = ""
    name: str = ""
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    private: bool = True
    """Whether the chat has only one person and the agent."""
    addressed: bool = True
    """In a group: whether the message addresses the agent."""
    pressed: str = ""
    """The value of the button that was pressed; `about` is the delivery that showed it."""
    about: str = ""
    reply_to: str = ""
    """The message that a reply refers to, in the platform's format; if empty, `message`."""
    unreadable: str = ""
    """Why the message cannot be read; it has no text then."""
    ignored: str = ""
    """Why the gateway ignores it: an edit, our own message, an update without a message."""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One message to send. Every attempt to send it has the same `key`."""

    chat: str
    text: str
    key: str
    reply_to: str = ""
    choices: tuple[ReplyChoice, ...] = ()
    about: str = ""
    """The delivery that shows the choices; the platform returns it with the choice."""
    file: Path | None = None
    literal: bool = False
    """Whether every character must be shown as it is, because somebody approves what the text says. Otherwise the platform
    may format it as Markdown."""


class Sent(msgspec.Struct, frozen=True):
    """The platform accepted it; `remote` is the platform's id for it."""

    remote: str


class RetryLater(msgspec.Struct, frozen=True):
    """The platform did not accept it, and may do so later. `everywhere`: the same holds for all chats."""

    reason: str
    after_seconds: float | None = None
    everywhere: bool = False


class Rejected(msgspec.Struct, frozen=True):
    """The platform will never accept it."""

    reason: str


class DeliveryUnknown(msgspec.Struct, frozen=True):
    """The platform may have accepted it: the connection broke before its response."""

    reason: str


DeliveryResult = Sent | RetryLater | Rejected | DeliveryUnknown


class PlatformLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The capabilities and limits of a platform."""

    text: int
    """The longest text of one message, in units of `measure`."""
    measure: Callable[[str], int] = len
    measure_literal: Callable[[str], int] | None = None
    """The length of a literal text, where that is longer because markup in it is escaped."""
    keyed: bool = False
    """Whether it recognises a repeated message by its key."""
    edits: bool = False
    typing_seconds: float | None = None
    """How often the typing indicator must be renewed; None if the platform has none."""
    chat_seconds: float = 0.0
    """The minimum time between two messages to a chat."""
    tells_queued: bool = True
    """Whether people are told that their message is queued."""
    answer_seconds: float = 20.0
    """How long it may take to respond."""


class InboundPort(Protocol):
    """Takes what a platform receives."""

    async def take(self, payloads: Sequence[str | bytes], position: str | None = None) -> None:
        """Commit the payloads and the read position. When this returns, they are durable and may be acknowledged.

        Payloads that cannot be parsed are stored as well; duplicates are recognised. Raises NotSaved or Unavailable.
        """

    async def report_connected(self) -> None:
        """Record that the platform is connected."""

    async def report_down(self, error: str) -> None:
        """Record that it is not connected; the platform's own module retries."""


class Platform(Protocol):
    """An open connection. Every method may be called at any time."""

    limits: PlatformLimits

    async def receive(self, intake: InboundPort, position: str) -> None:
        """Pass everything after `position` to the intake until cancelled; acknowledge only what the intake has stored.

        Raises Unavailable when the connection is lost; the gateway then opens a new one.
        """

    def read(self, payload: str) -> Incoming:
        """Parse a payload. Pure; any error means that the payload cannot be parsed."""

    async def send(self, message: Outgoing) -> DeliveryResult:
        """Send one message that fits the limits."""

    async def edit(self, chat: str, remote: str, text: str) -> DeliveryResult:
        """Edit a sent message, if the platform supports it."""

    async def typing(self, chat: str) -> None:
        """Show a typing indicator. Failures are ignored."""

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        """Save an attachment. Raises TooLarge, without downloading more than `max_bytes`, or Unavailable."""


Connect = Callable[["PlatformOptions", Clock], AbstractAsyncContextManager[Platform]]
"""Opens a platform. Raises Invalid for wrong settings, Unavailable if the platform does not respond."""


class PlatformOptions:
    """The settings of a platform. Each is checked when it is read; one that was never read is unknown and refused."""

    def __init__(self, name: str, given: dict[str, object], folder: Path | None = None) -> None:
        self._name = self.name = name
        self.folder = folder
        """Where the platform may keep private files; it may not exist yet. None if nothing is kept."""
        self._given = given
        self._read: set[str] = set()

    @property
    def names_read(self) -> frozenset[str]:
        return frozenset(self._read)

    def text(self, key: str, default: str | None = None) -> str:
        return self._get(key, str, default, "a string")

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, (int, float), default, "a number")
        if isinstance(value, bool) or value < 0:
            raise Invalid(f"[gateway.{self._name}] {key}: expected a non-negative number")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        return self._get(key, bool, default, "true or false")

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings. Numbers are converted, because many platforms have numeric ids."""
        value = self._get(key, list, [], "a list")
        if not all(isinstance(one, str | int) for one in value):
            raise Invalid(f"[gateway.{self._name}] {key}: expected a list of strings")
        return tuple(str(one) for one in value)

    def lists(self, key: str) -> dict[str, tuple[str, ...]]:
        """A table of lists of strings."""
        table = self._get(key, dict, {}, "a table of lists")
        if not all(isinstance(value, list) for value in table.values()):
            raise Invalid(f"[gateway.{self._name}] {key}: expected a table of lists of strings")
        return {str(name): tuple(str(one) for one in value) for name, value in table.items()}

    def one_of(self, key: str, known: Sequence[str]) -> str:
        """One of the known values; the first is the default."""
        value = self.text(key, known[0])
        if value not in known:
            raise Invalid(f"[gateway.{self._name}] {key}: expected one of {', '.join(known)}")
        return value

    def _get(self, key: str, kind: type[T] | tuple[type, ...], default: T | None, what: str) -> T:
        self._read.add(key)
        value = self._given.get(key, default)
        if value is None:
            raise Invalid(f"[gateway.{self._name}] needs {key}, {what}")
        if not isinstance(value, kind):
            raise Invalid(f"[gateway.{self._name}] {key}: expected {what}")
        return value  # type: ignore[return-value] # checked above

    def refuse_unknown(self) -> None:
        """Raise Invalid for a setting that was never read."""
        for key in self._given:
            if key not in self._read:
                known = ", ".join(sorted(self._read))
                raise Invalid(f"[gateway.{self._name}] unknown setting {key}; known settings: {known}")


def describe_error(error: BaseException) -> str:
    """Describe any error in one line of at most 300 characters."""
    if isinstance(error, HoldfastError):
        return str(error)
    if isinstance(error, msgspec.ValidationError):
        return " ".join(explain(error).split())[:300]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
