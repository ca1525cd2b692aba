"""Watches one session for a terminal: its log, its state, and the terminal that owns it.

All output of the chat comes from here, whether this process or another one runs the turns.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from holdfast import process_lookup
from holdfast.cli import stopped_worker
from holdfast.cli.chat.output import banner
from holdfast.cli.chat.output.diff import style_lines
from holdfast.cli.chat.output.inline_images import InlineImages
from holdfast.cli.chat.output.painter import Painter
from holdfast.cli.chat.output.status_line import TokenUsage
from holdfast.cli.chat.output.transcript import TerminalTranscript
from holdfast.cli.chat.session_state import ChatState, load_state
from holdfast.engine.engine import Engine
from holdfast.engine.goals.notice import RESUME
from holdfast.engine.process_port import list_running
from holdfast.model.entry import Entry
from holdfast.model.event import TurnEnded, TurnStarted
from holdfast.model.goal import OPEN
from holdfast.model.session import Session
from holdfast.tasks import run_all

CHECK_SECONDS = 2.0
"""How often to check whether the other terminal of the session is alive."""
Show = Callable[[str], None]
OnIdle = Callable[[], Awaitable[object]]
"""Called when no worker runs the session any more."""


class SessionWatcher:
    """One session in one terminal. `show` prints coloured lines; nothing is printed twice."""

    def __init__(
        self,
        engine: Engine,
        painter: Painter,
        images: InlineImages,
        show: Show,
        redraw: Callable[[], None],
        on_idle: OnIdle,
    ) -> None:
        self._engine = engine
        self._painter = painter
        self._images = images
        self._show = show
        self._redraw = redraw
        self._on_idle = on_idle
        self._our_turn = ""
        self._identity = process_lookup.current_identity()
        self.transcript = TerminalTranscript(painter, time.monotonic)
        self.usage = TokenUsage()
        self.state: ChatState | None = None
        self.processes = 0
        self.stopped_pid: int | None = None
        """The process that runs the turn or owns the session, if it is another one and is stopped."""
        self.is_offered = False
        """Whether to ask the user to resume an interrupted turn."""

    @property
    def is_working(self) -> bool:
        """Whether a turn is running, here or elsewhere."""
        is_held = self.state is None or self.state.session.lease_worker is not None
        return self.transcript.turn_id is not None and is_held

    @property
    def goal_state(self) -> str:
        """The state of the session's goal, if it has not ended."""
        state = "" if self.state is None else self.state.session.summary.goal
        return state if state in OPEN else ""

    @property
    def has_active_goal(self) -> bool:
        """Whether the session works by itself, so that an interrupt pauses its goal."""
        return self.goal_state == "active"

    @property
    def is_checking_goal(self) -> bool:
        """Whether a worker decides whether the session continues with its goal."""
        is_held = self.state is not None and self.state.session.lease_worker is not None
        return self.has_active_goal and is_held and self.transcript.turn_id is None

    @property
    def runs_here(self) -> bool:
        """Whether no other process runs the turn."""
        return self.state is None or self.state.session.lease_worker in (None, self._engine.services.worker_id)

    @property
    def hints(self) -> list[str]:
        """Why the turn does not continue, and what to do about it."""
        return [] if self.stopped_pid is None else [stopped_worker.hint(self.stopped_pid)]

    def show(self, text: str) -> None:
        """Print lines that are not part of the session."""
        usual = "yellow" if text.startswith("!") else "dim"
        self._show("".join(self._painter.rows(line, style or usual) for line, style in style_lines(text)))

    async def show_session(self, session: Session, entries: Sequence[Entry]) -> None:
        """Print the session header and the latest exchanges."""
        for entry in entries:
            self.usage.take(entry)
        self.state = await self._load_state(session.id)
        self._show(
            self._painter.plain(banner.session_header(session, self.state, self._engine.services.worker_id), "dim")
        )
        shown = banner.last_exchanges(entries)
        if earlier := banner.earlier_messages(banner.count_before(entries, shown)):
            self._show(self._painter.plain(earlier, "dim"))
        lines = [self.transcript.take(entry) + await self._images.render(entry, session.id) for entry in shown]
        self._show("".join(lines))
        self._update_offer()

    async def watch(self, session_id: str, *, after: int) -> None:
        """Follow the session after an event, until cancelled."""
        await run_all(self._news(session_id, after), self._observe(session_id), self._check_owner(session_id))

    async def _news(self, session_id: str, after: int) -> None:
        async with aclosing(self._engine.watch(session_id, after=after, stream="durable", output=True)) as news:
            async for item in news:
                self._show(self.transcript.take(item))
                if isinstance(item, Entry):
                    self._show(await self._images.render(item, session_id))
                    self.usage.take(item)
                    self._request_title(session_id, item)
                self._redraw()

    def _request_title(self, session_id: str, entry: Entry) -> None:
        """Request a title after an exchange that ran here."""
        event, titles = entry.event, self._engine.titles
        if isinstance(event, TurnStarted) and event.worker_id == self._engine.services.worker_id:
            self._our_turn = event.turn_id
        is_done = isinstance(event, TurnEnded) and (event.turn_id, event.outcome) == (self._our_turn, "done")
        if is_done and titles is not None:
            titles.give(session_id)

    async def _observe(self, session_id: str) -> None:
        """Track the state besides the log: owner, queued messages, questions, processes."""
        async for _ in self._engine.services.database.listen(session_id):
            before, self.state = self.state, await self._load_state(session_id)
            self.processes = len(await list_running(self._engine.services.database, self._engine.processes, session_id))
            if before is not None and before.session.summary.goal == "active" and self.goal_state == "paused":
                self.show(f"! The goal is paused. {RESUME}")
            if before is not None and before.session.lease_worker != self.state.session.lease_worker:
                self._update_offer()  # a worker has taken or released the session
                if self.state.session.lease_worker is None:
                    await self._on_idle()
            # No other terminal has it open any more: take over the ownership.
            if self.state.session.owner_worker is None and await self._engine.owned.keep(session_id):
                self.state = await self._load_state(session_id)
                self.show("[the other terminal closed the session; this terminal owns it now]")
            self._redraw()

    async def _check_owner(self, session_id: str) -> None:
        """If the terminal that owns the session dies, take over the session and offer to resume its turn."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self._check_stopped()
            session = None if self.state is None else self.state.session
            if session is None or session.owner_worker is None:
                continue
            ours = self._engine.services.worker_id
            if {session.owner_worker, session.lease_worker} <= {ours, None}:
                continue
            if await self._engine.owned.keep(session_id) and session.owner_worker != ours:
                self.state = await self._load_state(session_id)
                self.show("! the other terminal died; this terminal owns the session now")
                self._update_offer()
                self._redraw()

    async def _load_state(self, session_id: str) -> ChatState:
        state = await self._engine.services.database.read(load_state, session_id)
        self._check_stopped(state)
        return state

    def _check_stopped(self, state: ChatState | None = None) -> None:
        """Check whether the process that runs or owns the session is stopped (Ctrl-Z)."""
        state = state or self.state
        worker = None if state is None else state.holder or state.owner
        before = self.stopped_pid
        self.stopped_pid = stopped_worker.stopped_pid(worker, self._engine.services.worker_id, self._identity)
        if before != self.stopped_pid:
            self._redraw()

    def _update_offer(self) -> None:
        """Offer to resume an open turn that no worker runs."""
        session = None if self.state is None else self.state.session
        is_left = session is not None and session.summary.open_turn is not None and session.lease_worker is None
        self.is_offered = is_left and not self.has_active_goal  # then it continues by itself
