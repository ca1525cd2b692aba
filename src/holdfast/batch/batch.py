"""Runs the prompts of a batch, several at a time, each in its own session.

One transaction creates the session of a prompt, adds the prompt's key as an alias, and admits the text. One transaction
ends the turn and the session, written by whichever process runs the turn. So after a kill each prompt is not started, in
progress, or finished. A prompt in progress is resumed; a finished one is never sent again.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing

import msgspec

from holdfast.batch.prompts import BatchPrompt
from holdfast.batch.results import PromptError, PromptResult, ResultFile
from holdfast.engine.admission.admit import Admission, UserInput, admit
from holdfast.engine.engine import Engine
from holdfast.engine.outbound import BATCH
from holdfast.engine.submission import AdmitInTransaction, AdmittedTurn, NewMessage, SubmittedTurn
from holdfast.model.errors import Conflict, InQuarantine, NotFound
from holdfast.model.event import ModelSaid, SessionOpened, TurnEnded, TurnStarted, Usage
from holdfast.model.ids import SESSION, TURN
from holdfast.model.message import Text, text_of
from holdfast.model.session import Session, title_line
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, idempotency, log, sessions, turn_lookup
from holdfast.tasks import run_all

PAGE = 200
"""Prompts that are looked up in one transaction."""
Progress = Callable[[int, int, int, int], None]
"""Called with the numbers of finished, failed and all prompts, and of those that an earlier run finished."""


class StartedPrompt(msgspec.Struct, frozen=True):
    """A prompt that was started: its session, the turns of its attempts, and its result once it has one."""

    session: Session
    turns: tuple[str, ...]
    result: PromptResult | None


class Batch:
    def __init__(self, engine: Engine, name: str, prompts: Sequence[BatchPrompt], *, retries: bool) -> None:
        self._engine = engine
        self._services = engine.services
        self._name = name
        self._prompts = prompts
        self._retries = retries
        self.before = 0
        """How many were finished when this run started."""
        self.finished = 0
        self.failed: list[PromptResult] = []

    async def run(self, file: ResultFile, workers: int, on_progress: Progress) -> None:
        """Run every unfinished prompt, `workers` at a time, and write a result of every prompt to the file.

        A failed prompt is a result. Raises an error that affects all prompts: NotSaved, Unavailable, Conflict.
        """
        finished, left = await self._load_progress()
        await asyncio.to_thread(file.begin, finished)
        self.before = self.finished = len(finished)
        self.failed = [result for result in finished if result.status == "failed"]
        on_progress(self.finished, len(self.failed), len(self._prompts), self.before)
        queue = iter(left)

        async def work() -> None:
            for prompt in queue:
                result = await self._run_prompt(prompt)
                file.add(result)
                self.finished += 1
                self.failed += [result] * (result.status == "failed")
                on_progress(self.finished, len(self.failed), len(self._prompts), self.before)

        await run_all(*(work() for _ in range(min(workers, len(left)))))
        await asyncio.to_thread(file.finish)

    async def _load_progress(self) -> tuple[list[PromptResult], list[BatchPrompt]]:
        """Return the existing results and the prompts without one; those that were started come first."""
        finished: list[PromptResult] = []
        started: list[BatchPrompt] = []
        unstarted: list[BatchPrompt] = []
        for page in _pages(self._prompts):
            for prompt, known in zip(
                page, await self._services.database.read(_find_all, page, self._name), strict=True
            ):
                if known is None:
                    unstarted.append(prompt)
                elif known.result is None or (self._retries and known.result.status == "failed"):
                    started.append(prompt)
                else:
                    finished.append(known.result)
        return finished, [*started, *unstarted]

    async def _run_prompt(self, prompt: BatchPrompt) -> PromptResult:
        """Start or resume the prompt and wait for its result, whichever process runs the turn."""
        received = await self._start_or_resume(prompt)
        try:
            async with aclosing(received.follow()) as items:
                async for _ in items:
                    pass
        finally:
            received.close()
        [known] = await self._services.database.read(_find_all, [prompt], self._name)
        if known is None or known.result is None:
            raise NotFound(f"the session of line {prompt.line} was deleted while its turn ran")
        return known.result

    async def _start_or_resume(self, prompt: BatchPrompt) -> SubmittedTurn:
        [known] = await self._services.database.read(_find_all, [prompt], self._name)
        if known is None:
            return await self._start(prompt)
        if known.result is not None and known.result.status == "failed" and self._retries:
            return await self._retry(prompt, known)
        return await self._join(known.session, known.turns[-1])

    async def _start(self, prompt: BatchPrompt) -> SubmittedTurn:
        """Create the prompt's session and start its turn, or follow the turn if another process was faster."""
        session_id, turn_id, at = (
            self._services.ids.make(SESSION),
            self._services.ids.make(TURN),
            self._services.clock.now(),
        )

        def work(tx: Transaction) -> Admission:
            name = _alias(prompt)
            if (found := aliases.find(tx, name)) is not None:
                return Admission(sessions.get(tx, found), _list_turns(tx, found)[-1], repeated=True)
            sessions.create(tx, session_id, self._opened(prompt), at=at)
            aliases.add(tx, name, session_id, at=at)
            message = UserInput(turn_id=turn_id, parts=(Text(prompt.text),), caller=BATCH, key="1")
            return admit(tx, session_id, message, worker_id=self._services.worker_id, at=at)

        turn = await self._engine.submit(AdmitInTransaction(work), stream="live")
        assert turn is not None, "the session is found or created"
        if turn.admission.began:
            return turn
        turn.close()
        return await self._join(turn.admission.session, turn.admission.turn_id)

    def _opened(self, prompt: BatchPrompt) -> SessionOpened:
        return SessionOpened(
            source="batch",
            model=prompt.model,
            title=title_line(prompt.text) or None,
            system=prompt.system,
            mode=self._services.mode,
        )

    async def _join(self, session: Session, turn_id: str) -> SubmittedTurn:
        position = await self._services.database.read(turn_lookup.find, session.id, turn_id)
        assert position is not None, "an admitted turn is in the log"
        return await self._engine.submit(AdmittedTurn.at(session, position), stream="durable")

    async def _retry(self, prompt: BatchPrompt, known: StartedPrompt) -> SubmittedTurn:
        """Retry a failed prompt in the same session; the first attempt stays in the log and no longer counts."""
        session_id = known.session.id
        untouched = known.session.summary.turn_count == len(known.turns)
        rewind = await self._engine.rewinds.plan_turns(session_id, why="retry") if untouched else None
        key = str(len(known.turns) + 1)
        message = NewMessage(session_id, prompt.text, caller=BATCH, key=key, instead=rewind)
        admission = (await self._engine.submit(message)).admission
        return await self._join(admission.session, admission.turn_id)


def _alias(prompt: BatchPrompt) -> str:
    """The alias of a prompt's session."""
    return f"batch:{prompt.key}"


def _pages(prompts: Sequence[BatchPrompt]) -> Iterator[Sequence[BatchPrompt]]:
    for start in range(0, len(prompts), PAGE):
        yield prompts[start : start + PAGE]


def _find_all(tx: Transaction, prompts: Sequence[BatchPrompt], name: str) -> list[StartedPrompt | None]:
    return [_find(tx, prompt, name) for prompt in prompts]


def _list_turns(tx: Transaction, session_id: str) -> tuple[str, ...]:
    """The turns of the prompt's attempts. For an imported session they come from the log."""
    found = idempotency.list_turns(tx, session_id, BATCH)
    if not found:
        events = (entry.event for entry in log.read(tx, session_id))
        found = [event.turn_id for event in events if isinstance(event, TurnStarted)]
    if not found:
        raise Conflict(f"session {session_id} has the alias of a prompt but no turn; delete the session")
    return tuple(found)


def _find(tx: Transaction, prompt: BatchPrompt, name: str) -> StartedPrompt | None:
    """Look up a prompt in the store; None if it was never started."""
    session_id = aliases.find(tx, _alias(prompt))
    if session_id is None:
        return None
    session, turns = sessions.get(tx, session_id), _list_turns(tx, session_id)
    return StartedPrompt(session, turns, _result(tx, session, turns[-1], prompt, name))


def _result(tx: Transaction, session: Session, turn_id: str, prompt: BatchPrompt, name: str) -> PromptResult | None:
    """The result of the prompt's newest turn; None while it is open."""
    position = turn_lookup.find(tx, session.id, turn_id)
    assert position is not None, "an admitted turn is in the log"
    events = [entry.event for entry in turn_lookup.read_entries(tx, session.id, position)]
    replies = [event for event in events if isinstance(event, ModelSaid) and event.turn_id == turn_id]
    end = next((event for event in reversed(events) if isinstance(event, TurnEnded)), None)
    problem: PromptError | None = None
    if position.is_open or end is None:
        problem = _abandoned_reason(session)
        if problem is None:
            return None
    elif end.outcome != "done":
        problem = PromptError(end.code or end.outcome, end.reason or f"the turn was {end.outcome}")
    return PromptResult(
        line=prompt.line,
        id=prompt.id,
        batch=name,
        status="done" if problem is None else "failed",
        session_id=session.id,
        turn_id=turn_id,
        model=prompt.model,
        text=text_of(replies[-1].parts) if replies else "",
        usage=Usage() if end is None else end.usage,
        error=problem,
        meta=prompt.meta,
    )


def _abandoned_reason(session: Session) -> PromptError | None:
    """Why an open turn will never end; None if it will."""
    if session.summary.quarantined is not None:
        return PromptError(InQuarantine.code, session.summary.quarantined)
    if session.summary.trashed_at is not None:
        return PromptError(NotFound.code, f"session {session.id} is in the trash")
    return None
