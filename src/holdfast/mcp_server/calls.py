"""The calls that a client can make, on the same store and engine as every other interface.

A message is durable when `send_message` returns. The turn runs whether or not the client stays, and `follow_turn` finds it
again, also in another process. If its worker died, following it resumes it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.engine import Engine
from holdfast.engine.submission import AdmittedTurn, NewMessage, SubmittedTurn
from holdfast.interop.documents.sessions import SearchHitItem, SessionListResponse, SessionResponse
from holdfast.interop.serialization import Document
from holdfast.mcp_server.arguments import (
    FollowTurnArguments,
    ListSessionsArguments,
    OpenSessionArguments,
    ReadSessionArguments,
    SearchSessionsArguments,
    SendMessageArguments,
)
from holdfast.mcp_server.transcript import Position, TranscriptPage, read_page
from holdfast.mcp_server.turn_result import TurnProgress, TurnReport
from holdfast.model.errors import Busy, Invalid, NotFound
from holdfast.model.session import Session
from holdfast.model.text import parse_decimal
from holdfast.providers import registry
from holdfast.sse import HEARTBEAT_SECONDS
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, delegations, session_list, sessions, turn_lookup
from holdfast.store.repos.turn_lookup import TurnPosition
from holdfast.store.search.index import SearchIndex, SearchScope

CALLER = "mcp"
"""Idempotency keys of MCP clients are apart from those of other callers."""
CHANNEL_PREFIX = "key:"
"""As of the API, `holdfast run --key` and the library: the same key is the same session."""

Report = Callable[[str], Awaitable[None]]
"""Sends a progress message to the client."""


class SearchPage(Document, frozen=True):
    hits: list[SearchHitItem]
    next: str | None


class OpenedSessionReport(Document, frozen=True):
    session: SessionResponse
    new: bool


class AcceptedMessage(Document, frozen=True):
    session_id: str
    turn_id: str
    state: str
    """`running`, `queued`, or `repeated` for a message that was sent before with the same key."""
    seq: int


class SessionCalls:
    """The calls of all clients of one server."""

    def __init__(
        self, engine: Engine, search: Callable[[], Awaitable[SearchIndex]], workdir: Path | None = None
    ) -> None:
        self._engine = engine
        self._database = engine.services.database
        self._search = search
        self._workdir = workdir

    async def list_sessions(self, given: ListSessionsArguments) -> SessionListResponse:
        filters = session_list.SessionFilters(state=given.state, source=given.source)

        def work(tx: Transaction) -> SessionListResponse:
            page = session_list.list_page(tx, filters, limit=given.limit, cursor=given.cursor)
            return SessionListResponse.from_page(page, delegations.map_child_ids(tx, page.sessions))

        return await self._database.read(work)

    async def search_sessions(self, given: SearchSessionsArguments) -> SearchPage:
        before = None if given.cursor is None else parse_decimal(given.cursor)
        if given.cursor is not None and not before:
            raise Invalid(f"cursor {given.cursor[:40]!r} is not one of search_sessions; use `next` of the page before")
        within = None if given.session is None else await self._resolve(given.session)
        index = await self._search()
        await index.catch_up()
        scope = SearchScope(session_id=None if within is None else within.id, trashed=within is not None)
        hits = await index.search(given.query, limit=given.limit, scope=scope, before_position=before)
        titles = await self._database.read(sessions.get_titles, {hit.session_id for hit in hits})
        following = str(hits[-1].position) if len(hits) == given.limit else None
        return SearchPage([SearchHitItem.from_hit(hit, titles[hit.session_id]) for hit in hits], following)

    async def read_session(self, given: ReadSessionArguments) -> TranscriptPage:
        if given.cursor is not None and given.last is not None:
            raise Invalid("`last` and `cursor` cannot be used together")
        position = Position() if given.cursor is None else Position.parse(given.cursor)
        session = await self._resolve(given.session)
        return await self._database.read(read_page, session.id, position, given.limit, last=given.last)

    async def open_session(self, given: OpenSessionArguments) -> OpenedSessionReport:
        """Get a session by reference or key, or create one. A repeat with the same key opens the same session."""
        if given.session is not None and (given.key or given.title or given.system):
            raise Invalid(
                "`session` names an existing session; `key`, `title` and `system` are for another or a new one"
            )
        if given.key is not None and not given.key.isprintable():
            raise Invalid("`key` must contain only printable characters")
        if given.model is not None:
            registry.parse(given.model)
        opened = await self._engine.open(
            OpenRequest(
                ref=given.session,
                channel=None if given.key is None else CHANNEL_PREFIX + given.key.strip(),
                source="api",
                title=given.title,
                model=given.model,
                system=given.system,
                workdir=self._workdir,
            )
        )
        session = await self._database.read(sessions.get, opened.session.id)
        return OpenedSessionReport(SessionResponse.from_session(session), opened.new)

    async def send_message(self, given: SendMessageArguments) -> AcceptedMessage:
        """Send a message; it is durable when this returns."""
        if not given.text.strip():
            raise Invalid("`text` is empty")
        session = await self._resolve(given.session)
        mode = None if given.busy == "reject" else given.busy
        message = NewMessage(session.id, given.text, mode=mode, caller=CALLER, key=given.idempotency_key or "")
        try:
            admission = (await self._engine.submit(message)).admission
        except Busy:
            if not await self._engine.actions.free_from_dead_holder(session.id):
                raise
            admission = (await self._engine.submit(message)).admission
        state = "repeated" if admission.repeated else "running" if admission.began else "queued"
        return AcceptedMessage(session.id, admission.turn_id, state, admission.session.seq)

    async def follow_turn(self, given: FollowTurnArguments, report: Report) -> TurnReport:
        """Follow a turn to its end or for `wait_seconds`. Leaving does not stop it."""
        session = await self._resolve(given.session)
        position = await self._database.read(turn_lookup.find, session.id, given.turn_id)
        if position is None:
            raise NotFound(f"session {session.id} has no turn {given.turn_id[:100]!r}")
        progress = TurnProgress(session.id, given.turn_id, position)
        if position.dropped is None:
            await self._follow(session, position, progress, given.wait_seconds, report)
        waiting = await self._database.read(approvals.list_unanswered, session.id)
        return progress.report(waiting)

    async def _follow(
        self, session: Session, position: TurnPosition, progress: TurnProgress, seconds: float, report: Report
    ) -> None:
        submitted = await self._engine.submit(AdmittedTurn.at(session, position), stream="durable")
        try:
            async with asyncio.timeout(seconds if position.is_open else None):
                await _watch(submitted, progress, report)
        except TimeoutError:
            pass  # the report says that the turn runs
        finally:
            submitted.close()

    async def _resolve(self, ref: str) -> Session:
        def work(tx: Transaction) -> Session:
            return sessions.resolve(tx, ref).session

        return await self._database.read(work)


async def _watch(submitted: SubmittedTurn, progress: TurnProgress, report: Report) -> None:
    async with aclosing(submitted.follow(idle_seconds=HEARTBEAT_SECONDS)) as items:
        async for item in items:
            if message := progress.add(item):
                await report(message)
