"""Calls of models reserve what they may cost, one after another, whoever makes them: no two pass a limit that only one fits into."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.engine.services import EngineServices
from holdfast.engine.spending.meter import Meter, SpendingLimits
from holdfast.engine.spending.report import raise_session_limit, report_session
from holdfast.engine.streaming.bus import Bus
from holdfast.model.errors import BudgetExceeded, PriceUnknown
from holdfast.model.event import BudgetRaised, Delegation, GoalSet, ModelCalled, ModelSaid, Usage, UserSaid
from holdfast.model.ids import Ids
from holdfast.model.message import Message, Text
from holdfast.model.price import NANO, Price
from holdfast.model.provider import AskModel, Delta, ModelReply, ModelRequest
from holdfast.model.session import Session
from holdfast.model.times import DAY, SECOND
from holdfast.process_lookup import current_identity
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import delegations, leases, log, workers
from holdfast.store.spending import usage
from tests.conftest import NewWorker
from tests.contract.conftest import NewSession
from tests.fakes.clock import FakeClock

ONE_DOLLAR = Price(input=0, output=1_000_000)
"""A reply of one token costs a dollar."""
AT = 1_800_000_000 * SECOND
"""When the fake clock starts."""
REQUEST = ModelRequest(model="openai:dear", system="", messages=(Message(1, "user", (Text("Hi"),), 0),), max_tokens=1)


def priced(model: str) -> Price | None:
    return ONE_DOLLAR if model == "openai:dear" else None


def meter(database: Database, worker_id: str, clock: FakeClock, limits: SpendingLimits) -> Meter:
    services = EngineServices(database, clock, Ids(clock.now), Bus(), worker_id, current_identity())
    return Meter(services, limits, priced)


async def call(
    database: Database, worker_id: str, one: Meter, session: Session, request: ModelRequest = REQUEST
) -> None:
    """A whole call: reserve, then commit a reply that costs one dollar."""
    reservation = await one.reserve(session.id, request)
    await asyncio.sleep(0)
    await reply(database, worker_id, one, session, reservation, request.model)


async def reply(
    database: Database,
    worker_id: str,
    one: Meter,
    session: Session,
    reservation: str,
    model: str = "openai:dear",
    cost: float | None = 1.0,
) -> None:
    spent = Usage(tokens_in=5, tokens_out=1, cost=cost)
    said = ModelSaid(turn_id="t", parts=(Text("Hi"),), called=model, usage=spent, reservation=reservation)
    settle = one.settle(reservation, cost)
    lease = await database.write(leases.take, session.id, worker_id)

    def work(tx: Transaction) -> None:
        log.append(tx, lease, [said], at=AT)
        settle(tx)

    await database.write(work)
    await database.write(leases.release, lease)


async def spent(database: Database) -> int:
    await usage.catch_up(database)
    return sum(row.sum.cost for row in await database.read(usage.list_days))


@pytest.mark.parametrize("limits", [SpendingLimits(day=10 * NANO), SpendingLimits(user=10 * NANO)], ids=["day", "user"])
async def test_promise_31_parallel_sessions_of_several_workers_stay_within_a_limit(
    database: Database,
    another: Database,
    new_worker: NewWorker,
    new_session: NewSession,
    clock: FakeClock,
    limits: SpendingLimits,
) -> None:
    first, second = await new_worker(), await new_worker()
    places = [(database, first), (another, second)]
    meters = [meter(*place, clock, limits) for place in places]
    sessions = [await new_session() for _ in range(24)]

    done = await asyncio.gather(
        *(call(*places[n % 2], meters[n % 2], session) for n, session in enumerate(sessions)),
        return_exceptions=True,
    )

    refused = [one for one in done if isinstance(one, BudgetExceeded)]
    assert [one for one in done if one is not None and one not in refused] == []
    assert (len(done) - len(refused), len(refused)) == (10, 14)
    assert await spent(database) == 10 * NANO


async def test_promise_31_the_limit_of_a_session_names_what_is_spent_and_can_be_raised(
    database: Database, worker: str, session: Session, new_session: NewSession, clock: FakeClock
) -> None:
    one = meter(database, worker, clock, SpendingLimits(session=2 * NANO))
    await call(database, worker, one, session)
    await call(database, worker, one, session)

    with pytest.raises(BudgetExceeded, match=r"the budget of this session is used up: \$2.00 of \$2.00 is spent"):
        await one.reserve(session.id, REQUEST)
    await call(database, worker, one, await new_session())

    report = await raise_session_limit(database, one, session.id, 1.0, by="local", at=9)
    assert [(item.limit, item.spent.spent) for item in report.limits] == [(3 * NANO, 2 * NANO)]
    await call(database, worker, one, session)
    with pytest.raises(BudgetExceeded):
        await one.reserve(session.id, REQUEST)
    entries = await database.read(log.read, session.id)
    assert [entry.event for entry in entries if isinstance(entry.event, BudgetRaised)] == [
        BudgetRaised(amount=1.0, by="local")
    ]


async def new_child(database: Database, parent: Session, new_session: NewSession) -> Session:
    child = await new_session()
    link = Delegation(parent_id=parent.id, turn_id="t", call_id=child.id)
    await database.write(
        delegations.add, child.id, link, task_turn="t", title="count", delivery="wake", at=1, deadline=2
    )
    return child


async def test_promise_31_sub_agents_share_the_limit_of_the_session_at_the_top(
    database: Database, worker: str, session: Session, new_session: NewSession, clock: FakeClock
) -> None:
    one = meter(database, worker, clock, SpendingLimits(session=3 * NANO))
    child = await new_child(database, session, new_session)
    grandchild = await new_child(database, child, new_session)
    for caller in (session, child, grandchild):
        await call(database, worker, one, caller)

    refused = f"the budget of session {session.id} and its sub-agents is used up: \\$3.00 of \\$3.00 is spent"
    with pytest.raises(BudgetExceeded, match=refused):
        await one.reserve(grandchild.id, REQUEST)
    with pytest.raises(BudgetExceeded, match="the budget of this session is used up"):
        await one.reserve(session.id, REQUEST)
    await call(database, worker, one, await new_session())

    report = await raise_session_limit(database, one, child.id, 1.0, by="local", at=9)
    assert (report.total.cost, report.sub_agents.cost) == (NANO, NANO)
    assert [(item.limit, item.spent.spent) for item in report.limits] == [(4 * NANO, 3 * NANO)]
    assert (await report_session(database, one, session.id, at=9)).sub_agents.cost == 2 * NANO
    await call(database, worker, one, grandchild)
    with pytest.raises(BudgetExceeded):
        await one.reserve(child.id, REQUEST)
    entries = await database.read(log.read, session.id)
    assert BudgetRaised(amount=1.0, by="local") in [entry.event for entry in entries]


async def test_promise_31_sub_agents_share_the_limit_of_the_goal_that_they_work_for(
    database: Database, worker: str, session: Session, new_session: NewSession, clock: FakeClock
) -> None:
    one = meter(database, worker, clock, SpendingLimits())
    child = await new_child(database, session, new_session)
    goal = GoalSet(goal_id="goal-1", text="count", deadline_at=1, max_turns=5, max_cost=2 * NANO, cost_before=NANO)
    lease = await database.write(leases.take, session.id, worker)
    await database.write(log.append, lease, [goal], at=1)
    await database.write(leases.release, lease)

    for _ in range(3):
        reservation = await one.reserve(child.id, REQUEST, has_goal=True)
        await reply(database, worker, one, child, reservation)
    with pytest.raises(BudgetExceeded, match="the budget of this goal is used up"):
        await one.reserve(child.id, REQUEST, has_goal=True)
    assert await one.reserve((await new_session()).id, REQUEST, has_goal=True) == ""


async def test_promise_31_a_new_day_starts_again_and_a_clock_that_goes_back_finds_its_day_used_up(
    database: Database, worker: str, session: Session, clock: FakeClock
) -> None:
    one = meter(database, worker, clock, SpendingLimits(day=NANO))
    today = await one.reserve(session.id, REQUEST)
    await database.write(one.settle(today, 1.0))
    with pytest.raises(BudgetExceeded, match="starts again at 00:00 UTC"):
        await one.reserve(session.id, REQUEST)

    clock.set_by(DAY / SECOND)
    await one.reserve(session.id, REQUEST)
    clock.set_by(-DAY / SECOND)
    with pytest.raises(BudgetExceeded):
        await one.reserve(session.id, REQUEST)


async def test_a_user_has_an_own_limit(
    database: Database, worker: str, new_session: NewSession, clock: FakeClock
) -> None:
    one = meter(database, worker, clock, SpendingLimits(user=0, users={"telegram:1": NANO}))
    lease_of = {}
    for sender in ("telegram:1", "telegram:2"):
        session = await new_session()
        lease = await database.write(leases.take, session.id, worker)
        said = UserSaid(turn_id="t", parts=(Text("Hi"),), sender=sender)
        await database.write(log.append, lease, [said], at=1)
        await database.write(leases.release, lease)
        lease_of[sender] = session

    await call(database, worker, one, lease_of["telegram:1"])
    for sender, session in lease_of.items():
        with pytest.raises(BudgetExceeded, match=f"the budget of user {sender} for"):
            await one.reserve(session.id, REQUEST)


async def test_promise_31_a_call_whose_worker_died_counts_with_its_estimate(
    database: Database, new_worker: NewWorker, session: Session, clock: FakeClock
) -> None:
    dead, alive = await new_worker(), await new_worker()
    limits = SpendingLimits(session=NANO)
    await meter(database, dead, clock, limits).reserve(session.id, REQUEST)
    waiting = asyncio.ensure_future(meter(database, alive, clock, limits).reserve(session.id, REQUEST))
    await database.write(workers.mark_dead, dead, "killed", at=2)

    with pytest.raises(BudgetExceeded, match=r"\$1.00 of \$1.00"):
        await waiting


async def test_a_call_that_was_refused_by_its_provider_costs_nothing_and_one_that_broke_off_its_estimate(
    database: Database, worker: str, session: Session, clock: FakeClock
) -> None:
    one = meter(database, worker, clock, SpendingLimits(session=NANO))
    await one.end_unanswered(await one.reserve(session.id, REQUEST), has_output=False)
    await one.end_unanswered(await one.reserve(session.id, REQUEST), has_output=True)

    with pytest.raises(BudgetExceeded):
        await one.reserve(session.id, REQUEST)


async def test_promise_31_a_model_whose_price_nobody_knows_is_called_once_and_then_refused(
    database: Database, worker: str, session: Session, clock: FakeClock
) -> None:
    limits = SpendingLimits(session=NANO)
    one = meter(database, worker, clock, limits)
    strange = ModelRequest(model="openai:strange", system="", messages=())
    reservation = await one.reserve(session.id, strange)
    await reply(database, worker, one, session, reservation, "openai:strange", cost=None)

    with pytest.raises(PriceUnknown, match="the price of openai:strange is unknown"):
        await one.reserve(session.id, strange)
    report = await report_session(database, one, session.id, at=1)
    assert (report.total.unpriced, report.total.cost) == (1, 0)
    allowing = meter(database, worker, clock, SpendingLimits(session=NANO, allows_unpriced=True))
    assert await allowing.reserve(session.id, strange)


async def test_an_interrupted_call_does_not_show_that_a_model_has_no_price(
    database: Database, worker: str, session: Session, clock: FakeClock
) -> None:
    one = meter(database, worker, clock, SpendingLimits(session=NANO))
    strange = ModelRequest(model="openai:strange", system="", messages=())
    await one.end_unanswered(await one.reserve(session.id, strange), has_output=True)
    cut = ModelSaid(turn_id="turn-1", parts=(Text("Hel"),), partial=True, called="openai:strange")
    lease = await database.write(leases.take, session.id, worker)
    await database.write(log.append, lease, [cut], at=1)

    assert await one.reserve(session.id, strange)


async def test_promise_31_a_model_that_reports_its_price_is_limited_by_it(
    database: Database, new_worker: NewWorker, new_session: NewSession, clock: FakeClock
) -> None:
    """The first call goes alone, because nobody knows what it costs; from then on its cost is the estimate."""
    worker = await new_worker()
    one = meter(database, worker, clock, SpendingLimits(day=3 * NANO))
    routed = ModelRequest(model="openai:routed", system="", messages=())
    sessions = [await new_session() for _ in range(8)]

    done = await asyncio.gather(
        *(call(database, worker, one, session, routed) for session in sessions), return_exceptions=True
    )

    assert sum(isinstance(item, BudgetExceeded) for item in done) == 5
    assert await spent(database) == 3 * NANO


async def test_without_limits_nothing_is_reserved_and_a_free_model_needs_no_budget(
    database: Database, worker: str, session: Session, clock: FakeClock
) -> None:
    assert await meter(database, worker, clock, SpendingLimits()).reserve(session.id, REQUEST) == ""

    services = EngineServices(database, clock, Ids(clock.now), Bus(), worker, current_identity())
    free = Meter(services, SpendingLimits(day=0), lambda model: Price(input=0, output=0))
    assert await free.reserve(session.id, REQUEST) == ""


async def test_a_call_beside_the_conversation_is_checked_and_recorded(
    database: Database, worker: str, session: Session, clock: FakeClock
) -> None:
    one = meter(database, worker, clock, SpendingLimits(session=NANO))

    async def answer(request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
        spent = Usage(tokens_in=3, tokens_out=1, cost=1.0)
        yield ModelReply(parts=(Text("A title"),), model="dear", finish="stop", usage=spent, called="openai:dear")

    asking: AskModel = one.recording(answer, session.id, "title", "t")
    assert [item async for item in asking(REQUEST)]
    with pytest.raises(BudgetExceeded):
        assert [item async for item in asking(REQUEST)]

    entries = await database.read(log.read, session.id)
    [called] = [entry.event for entry in entries if isinstance(entry.event, ModelCalled)]
    assert (called.purpose, called.model, called.usage.cost, called.turn_id) == ("title", "openai:dear", 1.0, "t")
    assert (await report_session(database, one, session.id, at=1)).total.cost == NANO
