"""The port between slash commands and the interface in which a user types them."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.engine.admission.rewind import Rewind
from holdfast.engine.engine import Engine
from holdfast.model.errors import Invalid
from holdfast.model.event import GoalSet
from holdfast.model.message import Content
from holdfast.model.mode import LOCAL_USER, Mode
from holdfast.settings import Settings
from holdfast.store.repos.input_queue import InputMode

if TYPE_CHECKING:
    from holdfast.store.search.index import SearchIndex


class CommandChoice(msgspec.Struct, frozen=True):
    """One option of a choice; `label` is one line."""

    value: str
    label: str
    tags: tuple[str, ...] = ()
    """Groups of options; a picker can show one group only."""


class RunningProcess(msgspec.Struct, frozen=True):
    """A background process of the session, described in one line."""

    id: str
    line: str


Preview = Callable[[str], Awaitable[str]]
"""Loads the preview of an option."""


class CommandContext(Protocol):
    """The session a command acts on, and the ways to show text, ask the user and switch sessions."""

    engine: Engine
    settings: Settings
    workdir: Path
    session_id: str | None
    """None until the first message: it creates the session."""
    source: str
    """The source of the sessions that this interface opens."""
    user: str
    """The user, on platforms with several; empty at a terminal."""
    memory_owner: str
    """Whose remembered facts the user may see and change; empty for nobody's."""
    busy: InputMode
    """What happens to a message that arrives during a turn."""
    has_list: bool
    """Whether `choose` lets the user select in a list of any length."""

    def show(self, text: str) -> None:
        """Show lines to the user. They are not part of the session."""

    def confirm(self, text: str) -> None:
        """Confirm what a command has done. An interface that shows the session's events may leave it to them."""

    async def choose(
        self, question: str, options: Sequence[CommandChoice], preview: Preview | None = None
    ) -> str | None:
        """Let the user choose; None if nothing was chosen, or if this interface cannot ask."""

    async def require_idle(self) -> None:
        """Raise Busy while a turn runs here. For commands that create something before they switch sessions."""

    async def switch_session(self, session_id: str | None, *, title: str | None = None) -> None:
        """Leave the current session and open another one; None opens a new one, optionally with a title.

        Raises Busy while a turn runs here, or the error that prevents opening the other session; then nothing has changed.
        """

    async def say(
        self, parts: tuple[Content, ...], *, instead: Rewind | None = None, goal: GoalSet | None = None
    ) -> None:
        """Send a message in the current session, as if typed. `instead` rewinds in the same transaction.

        A `goal` is set when the turn of the message begins.
        """

    async def change_model(self, name: str) -> bool:
        """Change the model; False if that happens after the running turn. Raises Invalid for a malformed name."""

    async def permission_mode(self) -> Mode:
        """The permission mode of the session, or of the one that the first message creates."""

    async def change_mode(self, mode: Mode) -> None:
        """Change the permission mode. Raises Invalid if this user may not."""

    def take_back(self, parts: tuple[Content, ...]) -> bool:
        """Put a message back into the input line for editing; False if there is no input line."""

    async def search_index(self) -> "SearchIndex":
        """The search index."""

    async def processes(self) -> Sequence[RunningProcess]:
        """The background processes of the session."""

    def follow_output(self, process_id: str) -> bool:
        """Show the output of a process as it grows; False if this interface cannot."""

    async def kill(self, process_id: str) -> str:
        """Stop a process; returns a sentence about the result."""

    def quit(self) -> None:
        """Close the interface once the running turn has ended."""


def acting_user(context: CommandContext) -> str:
    """The user who types the commands, as the log names them."""
    return context.user or LOCAL_USER


def require_session(context: CommandContext) -> str:
    """The current session. Raises Invalid before the first message."""
    if context.session_id is None:
        raise Invalid("no session yet; your first message creates it")
    return context.session_id
