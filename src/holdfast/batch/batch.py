"""Plays the prompts of a batch, a few at a time, each in a session of its own.

One transaction makes the session of a prompt, gives it the prompt's key as another name, and admits the words; the turn's end and
the session's are one transaction too, written by whoever plays it. So a batch that was killed finds each prompt as it was
left: not begun, under way, or finished. What is under way is taken up, what is finished is never asked again.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec

from holdfast.batch.prompts import Prompt
from holdfast.batch.results import Problem, Result, ResultFile
from holdfast.engine.admit import Admission, Words, admit
from holdfast.engine.arrive import Arrived
from holdfast.engine.engine import Engine, Received
from holdfast.engine.replies import BATCH
from holdfast.engine.together import all_of
from holdfast.model.errors import Conflict, InQuarantine, NotFound
from holdfast.model.event import ModelSaid, SessionOpened, TurnEnded, TurnStarted, Usage
from holdfast.model.ids import SESSION, TURN
from holdfast.model.message import Text, text_of
from holdfast.model.session import Session, title_line
from holdfast.store import aliases, keys, log, sessions, turns
from holdfast.store.database import Transaction

PAGE = 200
"""Prompts that are looked up at once."""
Progress = Callable[[int, int, int, int], None]
"""Told how many prompts are finished, how many of them failed, how many there are, and how many were finished before."""


class Known(msgspec.Struct, frozen=True):
    """A prompt that was begun: its session, the turns it was asked in, and its result once it has one."""

    session: Session
    asked: tuple[str, ...]
    result: Result | None


class Batch:
    def __init__(self, engine: Engine, name: str, prompts: Sequence[Prompt], *, workdir: Path, retries: bool) -> None:
        self._engine = engine
        self._ground = engine.ground
        self._name = name
        self._prompts = prompts
        self._workdir = workdir
        self._retries = retries
        self.before = 0
        """How many were finished when this run began."""
        self.finished = 0
        self.failed: list[Result] = []

    async def play(self, file: ResultFile, at_once: int, on_progress: Progress) -> None:
        """Play what is not finished, `at_once` prompts at a time, and leave a result of every prompt in the file.

        A prompt that fails is a result. Raises what keeps all of them from being played: NotSaved, Unavailable, Conflict.
        """
        finished, left = await self._survey()
        await asyncio.to_thread(file.begin, finished)
        self.before = self.finished = len(finished)
        self.failed = [result for result in finished if result.status == "failed"]
        on_progress(self.finished, len(self.failed), len(self._prompts), self.before)
        todo = iter(left)

        async def work() -> None:
            for prompt in todo:
                result = await self._play(prompt)
                file.add(result)
                self.finished += 1
                self.failed += [result] * (result.status == "failed")
                on_progress(self.finished, len(self.failed), len(self._prompts), self.before)

        await all_of(*(work() for _ in range(min(at_once, len(left)))))
        await asyncio.to_thread(file.finish)

    async def _survey(self) -> tuple[list[Result], list[Prompt]]:
        """The results that there are, and the prompts that have none: those that were begun come first."""
        finished: list[Result] = []
        begun: list[Prompt] = []
        fresh: list[Prompt] = []
        for page in _pages(self._prompts):
            for prompt, known in zip(page, await self._ground.database.read(_find_all, page, self._name), strict=True):
                if known is None:
                    fresh.append(prompt)
                elif known.result is None or (self._retries and known.result.status == "failed"):
                    begun.append(prompt)
                else:
                    finished.append(known.result)
        return finished, [*begun, *fresh]

    async def _play(self, prompt: Prompt) -> Result:
        """See to it that the prompt is finished, whoever plays it."""
        received = await self._take_up(prompt)
        try:
            async with aclosing(received.follow()) as news:
                async for _ in news:
                    pass
        except InQuarantine:
            pass  # its session says why, and so will the result
        finally:
            received.close()
        [known] = await self._ground.database.read(_find_all, [prompt], self._name)
        if known is None or known.result is None:
            raise NotFound(f"the session of line {prompt.line} was deleted while it was played")
        return known.result

    async def _take_up(self, prompt: Prompt) -> Received:
        [known] = await self._ground.database.read(_find_all, [prompt], self._name)
        if known is None:
            return await self._begin(prompt)
        if known.result is not None and known.result.status == "failed" and self._retries:
            return await self._ask_again(prompt, known)
        return await self._join(known.session, known.asked[-1])

    async def _begin(self, prompt: Prompt) -> Received:
        """Make the prompt's session and begin its turn, or follow the turn if somebody else was faster."""
        session_id, turn_id, at = self._ground.ids.make(SESSION), self._ground.ids.make(TURN), self._ground.clock.now()

        def work(tx: Transaction) -> Admission:
            name = _alias(prompt)
            if (found := aliases.find(tx, name)) is not None:
                return Admission(sessions.get(tx, found), _asked(tx, found)[-1], repeated=True)
            sessions.create(tx, session_id, self._opened(prompt), at=at)
            aliases.add(tx, name, session_id, at=at)
            words = Words(turn_id=turn_id, parts=(Text(prompt.text),), caller=BATCH, key="1")
            return admit(tx, session_id, words, worker_id=self._ground.worker_id, at=at)

        subscription = self._ground.bus.subscribe(session_id)
        try:
            admission = await self._engine.admit_by(work)
        except BaseException:
            self._ground.bus.unsubscribe(session_id, subscription)
            raise
        assert admission is not None, "it is found or made"
        if admission.began:
            return Received(self._engine, Arrived(admission, prompt.model), subscription)
        self._ground.bus.unsubscribe(session_id, subscription)
        return await self._join(admission.session, admission.turn_id)

    def _opened(self, prompt: Prompt) -> SessionOpened:
        return SessionOpened(
            source="batch",
            model=prompt.model,
            title=title_line(prompt.text) or None,
            system=prompt.system,
            workdir=str(self._workdir),
        )

    async def _join(self, session: Session, turn_id: str) -> Received:
        place = await self._ground.database.read(turns.find, session.id, turn_id)
        assert place is not None, "what was asked is in the log"
        return await self._engine.join(session, place)

    async def _ask_again(self, prompt: Prompt, known: Known) -> Received:
        """Another attempt at a prompt that failed, in the same session; the first one stays in the log and no longer counts."""
        session_id, at = known.session.id, self._ground.clock.now()
        if known.session.summary.quarantined is not None:
            await self._engine.change(
                session_id, lambda tx: sessions.reopen(tx, session_id, at=at, reason="tried again")
            )
            return await self._join(known.session, known.asked[-1])
        alone = known.session.summary.turn_count == len(known.asked)
        back = await self._engine.look_back(session_id, why="retry") if alone else None
        key = str(len(known.asked) + 1)
        admission = await self._engine.admit(session_id, prompt.text, caller=BATCH, key=key, instead=back)
        return await self._join(admission.session, admission.turn_id)


def _alias(prompt: Prompt) -> str:
    """The name under which the store knows the session of a prompt."""
    return f"batch:{prompt.key}"


def _pages(prompts: Sequence[Prompt]) -> Iterator[Sequence[Prompt]]:
    for start in range(0, len(prompts), PAGE):
        yield prompts[start : start + PAGE]


def _find_all(tx: Transaction, prompts: Sequence[Prompt], name: str) -> list[Known | None]:
    return [_find(tx, prompt, name) for prompt in prompts]


def _asked(tx: Transaction, session_id: str) -> tuple[str, ...]:
    """The turns in which the prompt was asked. A session that was imported from elsewhere has only its log to tell them."""
    found = keys.asked(tx, session_id, BATCH)
    if not found:
        events = (entry.event for entry in log.read(tx, session_id))
        found = [event.turn_id for event in events if isinstance(event, TurnStarted)]
    if not found:
        raise Conflict(
            f"session {session_id} has the name of a prompt, but nothing was asked in it; delete or rename it"
        )
    return tuple(found)


def _find(tx: Transaction, prompt: Prompt, name: str) -> Known | None:
    """What the store knows of a prompt."""
    session_id = aliases.find(tx, _alias(prompt))
    if session_id is None:
        return None
    session, asked = sessions.get(tx, session_id), _asked(tx, session_id)
    return Known(session, asked, _result(tx, session, asked[-1], prompt, name))


def _result(tx: Transaction, session: Session, turn_id: str, prompt: Prompt, name: str) -> Result | None:
    """What came of the prompt's newest turn; None while it is open."""
    place = turns.find(tx, session.id, turn_id)
    assert place is not None, "what was asked is in the log"
    events = [entry.event for entry in turns.entries(tx, session.id, place)]
    said = [event for event in events if isinstance(event, ModelSaid) and event.turn_id == turn_id]
    end = next((event for event in reversed(events) if isinstance(event, TurnEnded)), None)
    problem: Problem | None = None
    if place.is_open or end is None:
        problem = _hopeless(session)
        if problem is None:
            return None
    elif end.outcome != "done":
        problem = Problem(end.code or end.outcome, end.reason or f"the turn was {end.outcome}")
    return Result(
        line=prompt.line,
        id=prompt.id,
        batch=name,
        status="done" if problem is None else "failed",
        session_id=session.id,
        turn_id=turn_id,
        model=prompt.model,
        text=text_of(said[-1].parts) if said else "",
        usage=Usage() if end is None else end.usage,
        error=problem,
        meta=prompt.meta,
    )


def _hopeless(session: Session) -> Problem | None:
    """Why an open turn will not be played."""
    if session.summary.quarantined is not None:
        return Problem(InQuarantine.code, session.summary.quarantined)
    if session.summary.trashed_at is not None:
        return Problem(NotFound.code, f"session {session.id} is in the trash")
    return None
