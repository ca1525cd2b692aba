"""A session that is open in an editor: what is shown of it, its prompts, and its open questions.

One task follows the log and sends every update in order, so that the answer to a prompt comes after everything that
happened in its turn. Turns of other interfaces, in the same session, are shown like those of the editor.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

from acp.exceptions import RequestError
from acp.schema import AvailableCommandsUpdate, ConfigOptionUpdate, StopReason
from pydantic import ValidationError

from holdfast.acp import commands, config_options, permissions
from holdfast.acp.old_texts import OldTexts
from holdfast.acp.permissions import PermissionQuestion
from holdfast.acp.services import EditorServices
from holdfast.acp.updates import UpdateRenderer, show_plan
from holdfast.engine.admission.rewind import Rewind
from holdfast.engine.engine import Engine
from holdfast.engine.streaming.bus import LiveText, StreamItem, TurnBroke
from holdfast.engine.submission import NewMessage
from holdfast.model.entry import Entry
from holdfast.model.errors import Conflict, HoldfastError, NotFound
from holdfast.model.event import (
    ApprovalAnswered,
    GoalSet,
    InputDropped,
    ModelChanged,
    ModelSaid,
    Quarantined,
    TurnEnded,
    UserSaid,
)
from holdfast.model.message import Content
from holdfast.model.session import standing
from holdfast.store.repos import approvals, plans
from holdfast.tasks import Tasks

logger = logging.getLogger(__name__)
BY = "editor"
"""`ApprovalAnswered.by` for an answer that a person gave in the editor."""
CALLER = "acp"
EndOfTurn = TurnEnded | InputDropped | Quarantined


class EditorSession:
    """`name` is the id under which the editor knows the session."""

    def __init__(
        self, engine: Engine, services: EditorServices, client: Any, name: str, session_id: str, workdir: Path
    ) -> None:
        self.session_id = session_id
        self.workdir = workdir
        self._engine = engine
        self._services = services
        self._client = client
        self._name = name
        self._renderer = UpdateRenderer(workdir)
        self._old_texts = OldTexts(engine.services.database, session_id)
        self._admission = asyncio.Lock()
        """Held while a prompt is admitted: its first event is shown only when it is known to be ours."""
        self._turns: dict[str, asyncio.Future[EndOfTurn | None]] = {}
        """The turns of this editor's prompts, by the id under which they were admitted or which they joined."""
        self._unsent: set[asyncio.Future[None]] = set()
        """One for each prompt that has no turn yet; done when the editor cancels it."""
        self._is_closed = False
        self._finish: dict[str, str] = {}
        self._questions: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._seen = 0
        self._tasks = Tasks()
        self._changed = asyncio.Event()
        """Set when a turn has ended or a question was asked."""

    # opening and closing

    async def open(self, *, replay: bool) -> None:
        """Show the session, if wanted; `follow` continues from there. Open questions are asked again.

        A session that is open already is opened again: prompts go on waiting for their turns.
        """
        await self._stop_following()
        async with self._admission:
            await self._close_left_turn()
            session, entries = await self._engine.read(self.session_id)
            self._seen = session.seq
            self._renderer = UpdateRenderer(self.workdir)
            self._renderer.window = self._services.window(session.summary.model)
            if replay:
                for entry in standing(entries):
                    await self._send_updates(entry)
            elif plan := await self._engine.services.database.read(plans.current, self.session_id):
                await self.send(show_plan(plan))
            for entry in entries:
                self._note(entry)

    def follow(self) -> None:
        """Follow the session. The first update is sent after the response to the request that has opened the session."""
        self._tasks.start(self._offer_commands(), f"acp commands {self.session_id}")
        self._tasks.start(self._follow(), f"acp {self.session_id}")
        self._tasks.start(self._follow_questions(), f"acp questions {self.session_id}")

    async def _offer_commands(self) -> None:
        offered = await asyncio.to_thread(commands.available, self._services.settings.home, self.workdir)
        await self.send(AvailableCommandsUpdate(session_update="available_commands_update", available_commands=offered))

    async def _close_left_turn(self) -> None:
        """Close a turn that a dead worker left, unless it waits for an answer: that can still be given."""
        if not await self._engine.services.database.read(approvals.list_unanswered, self.session_id):
            await self._engine.close_left(self.session_id)

    async def close(self) -> None:
        """Stop following. Turns go on; the editor's prompts are answered as cancelled."""
        self._is_closed = True
        self._cancel_unsent()
        await self._stop_following()
        async with self._admission:
            for turn in self._turns.values():
                if not turn.done():
                    turn.set_result(None)
            self._turns.clear()

    async def _stop_following(self) -> None:
        await self._tasks.close()
        self._questions.clear()

    @property
    def is_busy(self) -> bool:
        """Whether this process runs a turn, or waits to run one, and no answer of a person is needed."""
        return self._engine.is_serving(self.session_id) and not self._questions

    async def wait_for_change(self) -> None:
        """Wait until a turn ends or a question is asked."""
        self._changed.clear()
        await self._changed.wait()

    async def send(self, update: Any) -> None:
        """Show an update. Nothing happens if the editor is gone: the log has everything."""
        try:
            await self._client.session_update(session_id=self._name, update=update)
        except ConnectionError:
            logger.debug("the editor of session %s is gone", self.session_id)

    # following the log

    async def _follow(self) -> None:
        watched = self._engine.watch(self.session_id, after=self._seen, stream="durable", so_far=True, output=True)
        async with aclosing(watched) as items:
            async for item in items:
                async with self._admission:
                    await self._show(item)

    async def _show(self, item: StreamItem) -> None:
        match item:
            case LiveText():
                for update in self._renderer.live(item):
                    await self.send(update)
            case TurnBroke():
                self._break_turns(item)
            case Entry():
                is_ours = isinstance(item.event, UserSaid) and self._is_ours(item.event)
                await self._send_updates(item, echo=not is_ours)
                if isinstance(item.event, ModelChanged):
                    await self._show_model(item.event.model)
                self._note(item)

    async def _send_updates(self, entry: Entry, *, echo: bool = True) -> None:
        started = self._renderer.find_replacing(entry)
        old = None if started is None else await self._old_texts.find(started)
        for update in self._renderer.entry(entry, echo=echo, old=old):
            await self.send(update)

    async def _show_model(self, model: str) -> None:
        """Show the model in the editor's menu, whoever changed it."""
        self._renderer.window = self._services.window(model)
        offered = config_options.describe_options(model, self._services.settings)
        await self.send(ConfigOptionUpdate(session_update="config_option_update", config_options=list(offered)))

    def _is_ours(self, said: UserSaid) -> bool:
        return said.turn_id in self._turns or said.input_id in self._turns

    def _note(self, entry: Entry) -> None:
        event = entry.event
        match event:
            case UserSaid() if event.input_id in self._turns:
                self._turns[event.turn_id] = self._turns.pop(event.input_id)
            case ModelSaid() if event.turn_id in self._turns:
                self._finish[event.turn_id] = event.finish
            case TurnEnded() | InputDropped() | Quarantined():
                self._end_turn(event)
            case ApprovalAnswered():
                self._stop_asking((self.session_id, event.turn_id, event.call_id))
            case _:
                pass

    def _end_turn(self, event: EndOfTurn) -> None:
        for key in list(self._questions):
            if key[:2] == (self.session_id, event.turn_id):
                self._stop_asking(key)
        future = self._turns.pop(event.turn_id, None)
        if future is not None and not future.done():
            future.set_result(event)
        self._changed.set()

    def _break_turns(self, broke: TurnBroke) -> None:
        broken = list(self._turns) if broke.turn_id is None else [broke.turn_id]
        for turn_id in broken:
            future = self._turns.pop(turn_id, None)
            if future is not None and not future.done():
                future.set_exception(broke.error)

    async def _follow_questions(self) -> None:
        """Ask the questions that are open, those of sub-agents too, which are in other logs."""
        database = self._engine.services.database
        async with aclosing(database.listen(self.session_id)) as changes:
            async for _ in changes:
                found = await database.read(approvals.list_unanswered_in_tree, self.session_id)
                for one in found:
                    if one.call_key not in self._questions:
                        self._ask(PermissionQuestion(*one.call_key, one.question, one.proposal))
                for key in set(self._questions) - {one.call_key for one in found}:
                    self._stop_asking(key)

    # prompts

    async def prompt(
        self, parts: tuple[Content, ...], instead: Rewind | None = None, goal: GoalSet | None = None
    ) -> StopReason:
        """Send a message and wait for the end of its turn. It is durable before the model is asked."""
        async with self._admission:
            if self._is_closed:
                return "cancelled"
            message = NewMessage(self.session_id, parts, mode="queue", caller=CALLER, instead=instead, goal=goal)
            admission = (await self._engine.submit(message)).admission
            turn: asyncio.Future[EndOfTurn | None] = asyncio.get_running_loop().create_future()
            self._turns[admission.turn_id] = turn
        outcome = await turn
        return "cancelled" if outcome is None else self._stop_reason(outcome)

    @contextmanager
    def unsent(self) -> Iterator["asyncio.Future[None]"]:
        """A future for a prompt that has no turn yet. It is done if the editor cancels the prompt or closes the session."""
        cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsent.add(cancelled)
        if self._is_closed:
            self._cancel_unsent()
        try:
            yield cancelled
        finally:
            self.mark_sent(cancelled)

    def mark_sent(self, cancelled: "asyncio.Future[None]") -> None:
        """The prompt has a turn, or needs none: cancelling it concerns its turn alone."""
        self._unsent.discard(cancelled)

    def _cancel_unsent(self) -> None:
        for cancelled in self._unsent:
            if not cancelled.done():
                cancelled.set_result(None)

    def _stop_reason(self, outcome: EndOfTurn) -> StopReason:
        """Why the turn ended. Raises RequestError for a turn that failed."""
        finish = self._finish.pop(outcome.turn_id, "")
        match outcome:
            case TurnEnded(outcome="done"):
                return "max_tokens" if finish == "length" else "refusal" if finish == "refused" else "end_turn"
            case TurnEnded(outcome="failed", code="max_steps"):
                return "max_turn_requests"
            case TurnEnded(outcome="failed") | Quarantined():
                code = outcome.code if isinstance(outcome, TurnEnded) else "quarantined"
                raise RequestError(-32603, outcome.reason or "the turn failed", {"code": code or "failed"})
            case _:
                return "cancelled"

    async def cancel(self) -> None:
        """Interrupt the running turn, and withdraw this editor's queued and unsent prompts. What was said stays in the log."""
        self._cancel_unsent()
        async with self._admission:
            turns = list(self._turns)
        for turn_id in turns:
            await self._engine.cancel(self.session_id, turn_id)
        if not turns:
            await self._engine.interrupt(self.session_id)

    # questions

    def _ask(self, asked: PermissionQuestion) -> None:
        """Ask the person in the editor. Whoever answers first decides: the question is open everywhere else, too."""
        key = asked.session_id, asked.turn_id, asked.call_id
        self._questions[key] = self._tasks.start(self._request_permission(asked), "acp permission")
        self._changed.set()

    def _stop_asking(self, key: tuple[str, str, str]) -> None:
        task = self._questions.pop(key, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _request_permission(self, asked: PermissionQuestion) -> None:
        try:
            response = await self._client.request_permission(
                session_id=self._name,
                tool_call=permissions.describe_call(asked),
                options=permissions.options(asked.proposal),
            )
            answer = permissions.parse_outcome(response, asked.proposal)
            if answer is not None:
                call_key = (asked.session_id, asked.turn_id, asked.call_id)
                await self._engine.answer(call_key, answer, by=BY)
        except (Conflict, NotFound) as e:
            logger.info("the question of session %s was answered elsewhere: %s", self.session_id, e)
        except HoldfastError as e:
            logger.warning("the answer of the editor in session %s was not accepted: %s", self.session_id, e)
        except (RequestError, ConnectionError, ValidationError) as e:
            logger.info("the editor did not answer a question of session %s, which stays open: %s", self.session_id, e)
