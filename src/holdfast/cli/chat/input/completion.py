"""Completion of slash commands, their arguments, session titles and file names."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from holdfast.cli.chat.input.file_completion import complete_path
from holdfast.interop.export.formats import FORMATS
from holdfast.model.mode import MODES
from holdfast.model.sanitize import one_line
from holdfast.slash.queued import ACTIONS
from holdfast.slash.registry import BY_NAME, COMMANDS, list_own
from holdfast.slash.session_info import BUSY_MODES
from holdfast.store.database import Database
from holdfast.store.repos import session_list

COMMAND = re.compile(r"/(\S*)")
ARGUMENT = re.compile(r"/(\S+)\s+(.*)", re.DOTALL)
OFFERED = 200


class ChatCompleter(Completer):
    def __init__(self, database: Database, workdir: Path, home: Path) -> None:
        self._home = home
        self._database = database
        self.workdir = workdir

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """All completions except titles, which need the store."""
        text = document.text_before_cursor
        if (found := COMMAND.fullmatch(text)) is not None and "/" not in found[1]:
            return [*_commands(found[1]), *self._custom(found[1])]
        if (found := ARGUMENT.fullmatch(text)) is not None and found[1] in BY_NAME:
            choices = list(_choices(BY_NAME[found[1]].completes, found[2]))
            if choices:
                return choices
        return complete_path(text, self.workdir)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        found = ARGUMENT.fullmatch(document.text_before_cursor)
        if found is not None and found[1] in BY_NAME and BY_NAME[found[1]].completes == "session":
            for completion in await self._sessions(found[2]):
                yield completion
            return
        for completion in await asyncio.to_thread(self.get_completions, document, complete_event):
            yield completion

    def _custom(self, prefix: str) -> Iterator[Completion]:
        """The user's own commands and the skills."""
        for command in list_own(self._home, self.workdir):
            if command.name.startswith(prefix.lower()):
                yield Completion(f"/{command.name}", -len(prefix) - 1, display_meta=command.help)

    async def _sessions(self, typed: str) -> list[Completion]:
        """Sessions by title, or by id if they have none."""
        page = await self._database.read(session_list.list_page, session_list.SessionFilters(), limit=OFFERED)
        found = []
        for session in page.sessions:
            summary = session.summary
            ref = summary.title or session.id
            if typed.lower() in f"{ref} {session.id}".lower():
                found.append(Completion(ref, -len(typed), display_meta=one_line(summary.preview)))
        return found


def _commands(prefix: str) -> Iterator[Completion]:
    for command in COMMANDS:
        for name in (command.name, *command.aliases):
            if name.startswith(prefix.lower()):
                yield Completion(f"/{name}", -len(prefix) - 1, display_meta=command.help)


def _choices(kind: str, typed: str) -> Iterator[Completion]:
    offered = {
        "busy": BUSY_MODES,
        "mode": MODES,
        "goal": ("pause", "resume", "clear"),
        "queue": tuple(ACTIONS),
        "export": FORMATS,
        "command": tuple(command.name for command in COMMANDS),
    }
    for choice in offered.get(kind, ()):
        if choice.startswith(typed):
            yield Completion(choice, -len(typed))
