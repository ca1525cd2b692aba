"""The parameter type of a session reference, which a shell can complete."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from holdfast.model.session import Session

OFFERED = 50
"""The sessions used last."""
TITLE_SHOWN = 60


class SessionRef(click.types.StringParamType):
    """Any text is accepted: the command resolves it. Completion offers the ids of the sessions used last, with their titles."""

    name = "ref"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = asyncio.run(_recent(ctx.find_root().params.get("home")))
        return [
            CompletionItem(session.id, help=_title(session)) for session in found if session.id.startswith(incomplete)
        ]


REF = SessionRef()


async def _recent(home: Path | None) -> "list[Session]":
    """The sessions used last; none if there is no readable store. Completion must not create one or print an error."""
    from holdfast import config
    from holdfast.model.errors import HoldfastError
    from holdfast.store.repos import session_list
    from holdfast.wiring.store import open_app

    try:
        settings = config.load(home)
        if settings.store_path is not None and not settings.store_path.exists():
            return []
        async with open_app(settings) as app:
            page = await app.database.read(session_list.list_page, session_list.SessionFilters(), limit=OFFERED)
            return page.sessions
    except HoldfastError:
        return []


def _title(session: "Session") -> str:
    from holdfast.model.sanitize import one_line

    return one_line(session.summary.title or session.summary.preview)[:TITLE_SHOWN]
