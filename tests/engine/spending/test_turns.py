"""Budgets in whole turns: the turn that would exceed one ends with a reason, and every call is counted, whoever dies."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest

from holdfast.clock import SystemClock
from holdfast.engine.spending.meter import RESERVATION, SpendingLimits
from holdfast.engine.spending.report import raise_session_limit, report_session
from holdfast.model.answer import Answer
from holdfast.model.errors import DiskFull
from holdfast.model.event import BudgetRaised, ModelSaid, TurnEnded, Usage, UserSaid
from holdfast.model.ids import Ids
from holdfast.model.message import Text
from holdfast.model.price import NANO, Price
from holdfast.model.provider import Delta, ModelReply, ModelRequest, TextDelta
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, workers
from holdfast.store.repos.approvals import Approval
from holdfast.store.spending import budget
from holdfast.store.sqlite.driver import open_sqlite
from tests.engine.stage import Stage, set_up
from tests.engine.test_store_fails import FullAt
from tests.fakes.crashing import Crash, CrashingDatabase

DOLLAR = Price(input=0, output=1_000_000)
LIMITS = SpendingLimits(session=2 * NANO, reply_tokens=1)
COMMITS = 6
"""Worker, session, admission, reservation, end, beside the first three: counted by the test below."""


class DearModel:
    """Each reply costs a dollar, and the model says so or leaves it to the price table."""

    def __init__(self, cost: float | None = 1.0) -> None:
        self.calls = 0
        self._cost = cost

    async def ask(self, request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
        self.calls += 1
        yield TextDelta("Well.")
        spent = Usage(tokens_in=1, tokens_out=1, cost=self._cost)
        yield ModelReply(parts=(Text("Well."),), model="dear", finish="stop", usage=spent, called="test:dear")


async def stage_of(folder: Path, model: DearModel, **options: object) -> Stage:
    given = {"limits": LIMITS, "find_price": lambda name: DOLLAR, **options}
    return await set_up(folder, ask=model.ask, model="test:dear", **given)  # type: ignore[arg-type]


async def nano_spent(stage: Stage, session_id: str) -> int:
    report = await report_session(stage.database, stage.engine.meter, session_id, at=stage.engine.services.clock.now())
    return report.limits[0].spent.spent


async def test_promise_31_a_turn_that_would_exceed_the_budget_ends_with_the_reason_and_calls_no_model(
    tmp_path: Path,
) -> None:
    model = DearModel()
    stage = await stage_of(tmp_path, model)
    session = await stage.session()
    for _ in range(2):
        await stage.play(session.id, "Hello")
    ended = (await stage.play(session.id, "Once more"))[-1]

    assert isinstance(ended, TurnEnded)
    assert (ended.outcome, ended.code) == ("failed", "budget_exceeded")
    assert "$2.00 of $2.00 is spent" in ended.reason
    assert model.calls == 2

    services = stage.engine.services
    await raise_session_limit(services.database, stage.engine.meter, session.id, 1, by="local", at=1)
    ended = (await stage.play(session.id, "And now?"))[-1]
    assert isinstance(ended, TurnEnded)
    assert ended.outcome == "done"
    assert ended.usage.cost == 1.0
    await stage.database.close()


async def test_the_log_names_the_called_model_and_its_cost(tmp_path: Path) -> None:
    stage = await stage_of(tmp_path, DearModel())
    session = await stage.session()
    [said] = [event for event in await stage.play(session.id, "Hello") if isinstance(event, ModelSaid)]

    assert (said.called, said.usage.cost) == ("test:dear", 1.0)
    assert said.reservation
    await stage.database.close()


class NotedIds(Ids):
    """Tells when an id with a prefix was made."""

    def __init__(self, prefix: str) -> None:
        super().__init__(SystemClock().now)
        self.made = asyncio.Event()
        self._prefix = prefix

    def make(self, prefix: str) -> str:
        if prefix == self._prefix:
            self.made.set()
        return super().make(prefix)


async def test_a_call_that_is_stopped_while_it_reserves_its_cost_holds_nothing(tmp_path: Path) -> None:
    stage = await stage_of(tmp_path, DearModel())
    session, meter = await stage.session(), stage.engine.meter
    ids, writer = NotedIds(RESERVATION), threading.Event()
    object.__setattr__(stage.engine.services, "ids", ids)
    stage.database.submit_write(lambda tx: writer.wait(20))

    call = asyncio.create_task(meter.reserve(session.id, ModelRequest(model="test:dear", system="", messages=())))
    await ids.made.wait()
    call.cancel()
    writer.set()
    with pytest.raises(asyncio.CancelledError):
        await call

    spent = await stage.database.read(budget.get_tree_cost, session.id)
    assert (spent.held, spent.running) == (0, 0)
    await stage.database.close()


async def test_a_reply_that_cannot_be_saved_counts_and_holds_no_later_call_back(tmp_path: Path) -> None:
    model = DearModel()
    stage = await stage_of(tmp_path, model, limits=SpendingLimits(session=3 * NANO // 2, reply_tokens=1))
    session = await stage.session()
    object.__setattr__(stage.engine.services, "database", FullAt(stage.database, 3))
    with pytest.raises(DiskFull):
        await stage.play(session.id, "Hello")

    async with asyncio.timeout(20):
        events = await stage.play(session.id, "Are you there?")
    assert isinstance(events[-1], TurnEnded), "it waits for no call that is over"
    assert model.calls == 2
    assert await nano_spent(stage, session.id) == 2 * NANO
    await stage.database.close()


async def crashed(folder: Path, nth: int, when: Literal["before", "after"], model: DearModel) -> tuple[str | None, str]:
    """Run a turn until the nth commit kills the worker."""
    inner = await open_sqlite(folder / "holdfast.db")
    stage = await stage_of(folder, model, database=inner)
    object.__setattr__(stage.engine.services, "database", CrashingDatabase(inner, nth, when))
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    session_id = None
    try:
        session_id = (await stage.session()).id
        async with asyncio.timeout(20):
            await stage.play(session_id, "Hello")
    except Crash:
        pass
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await inner.close()
    return session_id, stage.worker_id


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, COMMITS))
async def test_promise_31_a_crash_at_any_commit_loses_no_spending(
    tmp_path: Path, nth: int, when: Literal["before", "after"]
) -> None:
    model = DearModel()
    session_id, dead = await crashed(tmp_path, nth, when, model)
    if session_id is None:
        return
    stage = await stage_of(tmp_path, model)
    await stage.database.write(workers.mark_dead, dead, "killed", at=1)
    for _ in range(4):
        await stage.play(session_id, "Are you there?")

    assert model.calls in (1, 2), "two calls, or one and a reservation whose call may have been made"
    assert await nano_spent(stage, session_id) == 2 * NANO
    await stage.engine.close()
    await stage.database.close()


async def asked(stage: Stage, session_id: str) -> Approval:
    """The open question of the session."""
    async for _ in stage.database.listen(session_id):
        found = await stage.questions(session_id)
        if found:
            return found[0]
    raise AssertionError("the store was closed")


async def test_promise_31_where_the_operator_is_the_session_asks_before_it_stops(tmp_path: Path) -> None:
    model = DearModel()
    stage = await stage_of(tmp_path, model, approval_seconds=None)
    session = await stage.session()
    for _ in range(2):
        await stage.play(session.id, "Hello")

    turn = asyncio.create_task(stage.play(session.id, "Once more"))
    question = await asked(stage, session.id)
    assert (
        "The budget of this session is used up: $2.00 of $2.00 is spent. May it spend $2.00 more?" in question.question
    )
    assert model.calls == 2
    await stage.engine.answer(question.call_key, Answer(allowed=True), by="ann")
    events = await turn

    assert isinstance(events[-1], TurnEnded) and events[-1].outcome == "done"
    assert [(e.amount, e.by) for e in await stage.log(session.id) if isinstance(e, BudgetRaised)] == [(2.0, "ann")]
    await stage.play(session.id, "Of the raised budget")
    turn = asyncio.create_task(stage.play(session.id, "Too much"))
    question = await asked(stage, session.id)
    await stage.engine.answer(question.call_key, Answer(allowed=False), by="ann")
    ended = (await turn)[-1]
    assert isinstance(ended, TurnEnded)
    assert (ended.outcome, ended.code, model.calls) == ("failed", "budget_exceeded", 4)
    assert await stage.questions(session.id) == []
    await stage.database.close()


async def test_the_limit_of_a_day_is_not_asked_about(tmp_path: Path) -> None:
    limits = SpendingLimits(day=NANO, reply_tokens=1)
    stage = await stage_of(tmp_path, DearModel(), limits=limits, approval_seconds=None)
    session = await stage.session()
    await stage.play(session.id, "Hello")

    ended = (await stage.play(session.id, "Once more"))[-1]

    assert isinstance(ended, TurnEnded)
    assert (ended.outcome, ended.code) == ("failed", "budget_exceeded")
    await stage.database.close()


async def test_stopping_the_turn_withdraws_the_question_about_its_budget(tmp_path: Path) -> None:
    stage = await stage_of(tmp_path, DearModel(), approval_seconds=None)
    session = await stage.session()
    for _ in range(2):
        await stage.play(session.id, "Hello")
    turn = asyncio.create_task(stage.play(session.id, "Once more"))
    await asked(stage, session.id)

    await stage.engine.interrupt(session.id)
    ended = (await turn)[-1]

    assert isinstance(ended, TurnEnded) and ended.outcome == "interrupted"
    assert await stage.questions(session.id) == []
    await stage.database.close()


@pytest.mark.parametrize("answers_first", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 4))
async def test_promise_31_one_answer_raises_the_budget_once_whoever_dies(
    tmp_path: Path, nth: int, when: Literal["before", "after"], *, answers_first: bool
) -> None:
    """The worker dies when it asks, when it raises the budget, or when it reserves the call."""
    model = DearModel()
    inner = await open_sqlite(tmp_path / "holdfast.db")
    first = await stage_of(tmp_path, model, database=inner, approval_seconds=None)
    session = await first.session()
    for _ in range(2):
        await first.play(session.id, "Hello")
    dying = CrashingDatabase(inner, nth + 1, when)  # the first commit begins the turn
    object.__setattr__(first.engine.services, "database", dying)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    turn = asyncio.create_task(first.play(session.id, "Once more"))
    while not (dying.dead or turn.done() or (open_now := await first.questions(session.id))):
        await asyncio.sleep(0.005)
    if answers_first and not dying.dead and not turn.done():
        await inner.write(answer_question, open_now[0].call_key)
        while not (dying.dead or turn.done()):
            await asyncio.sleep(0.005)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.wait({turn})
    await inner.close()

    database = await open_sqlite(tmp_path / "holdfast.db")
    second = await stage_of(tmp_path, model, database=database, approval_seconds=None)
    await database.write(workers.mark_dead, first.worker_id, "killed", at=1)
    await second.janitor().sweep()
    while not isinstance((await second.log(session.id))[-1], TurnEnded):
        for question in await second.questions(session.id):
            await second.engine.answer(question.call_key, Answer(allowed=True), by="ann")
        await asyncio.sleep(0.005)
    await second.engine.settled()

    log = await second.log(session.id)
    said = [event for event in log if isinstance(event, UserSaid)]
    raised = [event.amount for event in log if isinstance(event, BudgetRaised)]
    assert raised == [2.0] * (len(said) - 2), "once, if the message was acknowledged"
    await database.close()


def answer_question(tx: Transaction, call_key: tuple[str, str, str]) -> None:
    approvals.answer(tx, *call_key, answer=Answer(allowed=True), by="ann", at=1)
