"""The port between a command and the face a person sits at: what each offers the other."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.engine.engine import Engine
from holdfast.engine.rewind import Rewind
from holdfast.model.errors import Invalid
from holdfast.model.message import Content
from holdfast.settings import Settings
from holdfast.store.inputs import Mode

if TYPE_CHECKING:
    from holdfast.store.search import SearchIndex


class Option(msgspec.Struct, frozen=True):
    """One of several things a person may choose; `label` is one line."""

    value: str
    label: str


class Running(msgspec.Struct, frozen=True):
    """A background process of the session, in a line."""

    id: str
    line: str


Preview = Callable[[str], Awaitable[str]]
"""What a value stands for, to be read before it is chosen."""


class Seat(Protocol):
    """Where a person sits: which session it is about, and the ways to tell, ask and lead them."""

    engine: Engine
    settings: Settings
    workdir: Path
    session_id: str | None
    """None until something has been said: a session begins with its first words."""
    busy: Mode
    """What becomes of words that come while a turn runs."""

    def tell(self, text: str) -> None:
        """Show some lines. They are no part of the session."""

    def confirm(self, text: str) -> None:
        """Say what a command has done. A face that shows the session's events as they come leaves it to them."""

    async def choose(self, question: str, options: Sequence[Option], preview: Preview | None = None) -> str | None:
        """Let the person choose; None if nothing was chosen, or if this face cannot ask."""

    async def refuse_busy(self) -> None:
        """Raise Busy while a turn runs here: for commands that make something before they move."""

    async def move(self, session_id: str | None, *, title: str | None = None) -> None:
        """Leave the current session well and take up another, or with None a new one, which may be given a title.

        Raises Busy while a turn runs here, and whatever keeps the other from being taken up: then nothing was left.
        """

    async def say(self, parts: tuple[Content, ...], *, instead: Rewind | None = None) -> None:
        """Say something in the current session, as if it had been typed; in one step with what it takes the place of."""

    async def change_model(self, name: str) -> None:
        """Use this model from now on. Raises Invalid for a name that is none."""

    async def index(self) -> "SearchIndex":
        """The search index."""

    async def processes(self) -> Sequence[Running]:
        """The background processes that belong to the session."""

    async def kill(self, process_id: str) -> str:
        """End one of them; what was done, in a sentence."""

    def leave(self) -> None:
        """Let the person go, once what runs has come to its end."""


def session_of(seat: Seat) -> str:
    """The current session. Raises Invalid before the first words."""
    if seat.session_id is None:
        raise Invalid("nothing has been said yet, so there is no session; it begins with your first words")
    return seat.session_id
