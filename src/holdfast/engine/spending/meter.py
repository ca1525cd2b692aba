"""Checks the budgets before each call of a model, and records what calls cost that are not part of a conversation.

Without limits there are no reservations, and a turn does nothing more than before. With limits, each call reserves its
estimated cost in a transaction before it begins, and the commit of its reply replaces the estimate by the cost. If the
worker dies in between, the estimate counts as spent.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from datetime import timedelta

import msgspec

from holdfast.engine.context.tokens import estimate_frame, estimate_messages
from holdfast.engine.notifications import TopicListener
from holdfast.engine.services import EngineServices
from holdfast.engine.spending.decide import decide
from holdfast.model.errors import BudgetExceeded, HoldfastError, PriceUnknown
from holdfast.model.event import ModelCalled
from holdfast.model.price import MILLION, FindPrice, Price, format_money, to_nano
from holdfast.model.provider import AskModel, FallbackAsked, ModelReply, ModelRequest, ReplyItem
from holdfast.model.times import moment
from holdfast.store.database import Transaction
from holdfast.store.repos import log
from holdfast.store.spending import budget, usage
from holdfast.store.spending.budget import LimitName, PlannedCall, SettingsLimit, Spent
from holdfast.store.spending.sums import day_of
from holdfast.tasks import run_to_completion

RECHECK_SECONDS = 2.0
"""How often a waiting call checks again without a notification: the worker of another call may have died."""
RECORD_DAYS = 30
"""How far back calls tell what a model without a listed price costs."""
RESERVATION = "call-"


class SpendingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits in nano-dollars."""

    session: int | None = None
    day: int | None = None
    user: int | None = None
    users: Mapping[str, int] = {}
    allows_unpriced: bool = False
    reply_tokens: int = 2000

    def of(self, call: PlannedCall, raised: int) -> list[tuple[SettingsLimit, int]]:
        """The limits that apply to the call."""
        session = None if self.session is None or not call.session_id else self.session + raised
        given: list[tuple[SettingsLimit, int | None]] = [
            ("session", session),
            ("user", self.users.get(call.user, self.user)),
            ("day", self.day),
        ]
        return [(name, limit) for name, limit in given if limit is not None]

    @property
    def are_set(self) -> bool:
        return bool(self.users) or not (self.session is self.day is self.user is None)


AppliedLimit = tuple[LimitName, int, Spent]
"""A limit of a call, in nano-dollars, and what is spent of it."""


def unknown_price(model: str) -> None:
    """For an engine without a price table."""


class Meter:
    """One per worker."""

    def __init__(
        self,
        services: EngineServices,
        limits: SpendingLimits | None = None,
        find_price: FindPrice = unknown_price,
    ) -> None:
        self._services = services
        self.limits = limits or SpendingLimits()
        self._find_price = find_price
        self._running: set[str] = set()
        """The reservations of calls that this worker makes at the moment."""

    async def reserve(self, session_id: str, request: ModelRequest, *, has_goal: bool = False) -> str:
        """Reserve what the request may cost; returns the id of the reservation, empty without limits. Call `end` after the call.

        `has_goal` tells whether the session, or one that delegated to it, may have an active goal, which may have a limit, too.

        Waits while other calls hold what is left. Raises BudgetExceeded, or PriceUnknown for a model whose cost nobody knows.
        """
        price = self._find_price(request.model)
        if not (self.limits.are_set or has_goal) or (price is not None and price.is_free):
            return ""
        if not self.limits.are_set and not await self._services.database.read(budget.list_goals, session_id):
            return ""
        estimate = None if price is None else self._estimate(request, price)
        services = self._services
        with TopicListener(services.database, budget.TOPIC) as listener:
            while True:
                await usage.catch_up(services.database, at_least=usage.BATCH)
                reservation = services.ids.make(RESERVATION)
                call = PlannedCall(
                    reservation=reservation,
                    session_id=session_id,
                    root_id="",
                    user="",
                    model=request.model,
                    day=day_of(services.clock.now()),
                    worker_id=services.worker_id,
                    at=services.clock.now(),
                    amount=estimate,
                )
                if await self._try_to_reserve(call):
                    return reservation
                await listener.wait(RECHECK_SECONDS)

    async def _try_to_reserve(self, call: PlannedCall) -> bool:
        """Reserve the call's estimate, or nothing if it has to wait or is cancelled."""
        self._running.add(call.reservation)
        reserved = False
        try:
            reserved = await run_to_completion(self._services.database.write(self._reserve, call))
        except asyncio.CancelledError:
            await self.end_unanswered(call.reservation, has_output=False)
            raise
        finally:
            if not reserved:
                self.end(call.reservation)
        return reserved

    def end(self, reservation: str) -> None:
        """The call is over. If its cost could not be saved, its estimate counts as spent once another call has to wait."""
        self._running.discard(reservation)

    def _estimate(self, request: ModelRequest, price: Price) -> int:
        """What the request may cost in nano-dollars."""
        tokens = estimate_frame(request.system, request.tools) + estimate_messages(request.messages)
        reply = min(request.max_tokens or self.limits.reply_tokens, self.limits.reply_tokens)
        return to_nano((tokens * price.input + reply * price.output) / MILLION)

    def _reserve(self, tx: Transaction, call: PlannedCall) -> bool:
        """Reserve the call's estimate if it fits into every limit; False if it has to wait."""
        usage.catch_up_some(tx)  # names the key: from here on, no other reservation is made until the commit
        user = usage.find_sender(tx, call.session_id) if call.session_id else ""
        root = budget.find_root(tx, call.session_id) if call.session_id else ""
        call = msgspec.structs.replace(call, user=user, root_id=root, amount=self._known_amount(tx, call))
        raised = budget.get_raise(tx, root) if root else 0
        for name, limit, spent in [*self._limits(tx, call, raised), *_goal_limits(tx, call)]:
            decision = decide(limit, spent, call.amount)
            if decision == "stop":
                facts, advice = _refusal(name, limit, spent.spent, call)
                raise BudgetExceeded(facts, advice, raised=raised if name == "session" else None)
            if decision == "wait":
                budget.lose_unsaved(tx, call.worker_id, running=frozenset(self._running))
                return False
        budget.reserve(tx, call)
        return True

    def _limits(self, tx: Transaction, call: PlannedCall, raised: int) -> list[AppliedLimit]:
        limits = self.limits.of(call, raised)
        return [(name, limit, budget.get_spent(tx, name, call)) for name, limit in limits]

    def _known_amount(self, tx: Transaction, call: PlannedCall) -> int | None:
        """The estimate; of a model that is not in the price table, the average of its last calls."""
        if call.amount is not None:
            return call.amount
        since = (moment(call.at).date() - timedelta(days=RECORD_DAYS)).isoformat()
        record = budget.get_price_record(tx, call.model, since=since)
        if record.average is not None:
            return record.average
        if record.unpriced and not self.limits.allows_unpriced:
            raise PriceUnknown(
                f"the price of {call.model} is unknown, so the budget cannot be checked. Add "
                f'[prices."{call.model}"] to config.toml, or set [budget] unpriced = "allow"'
            )
        return 0 if self.limits.allows_unpriced else None

    def settle(self, reservation: str, cost: float | None) -> Callable[[Transaction], None]:
        """Work for the transaction that commits the reply."""

        def work(tx: Transaction) -> None:
            if reservation:
                budget.settle(tx, reservation, cost)

        return work

    async def end_unanswered(self, reservation: str, *, has_output: bool) -> None:
        """A call has ended without a reply. If the model had begun to answer, its estimate counts as spent."""
        if reservation:
            end = budget.lose if has_output else budget.release
            await run_to_completion(self._services.database.write(end, reservation))

    def recording(
        self, ask: AskModel, session_id: str, purpose: str, turn_id: str = "", *, has_goal: bool = False
    ) -> AskModel:
        """The same model for calls beside the conversation: each is checked before, and recorded in the session's log."""

        def metered(
            request: ModelRequest,
        ) -> AsyncIterator[ReplyItem]:
            called = ModelCalled(purpose=purpose, turn_id=turn_id)
            return self._record(ask, request, session_id, called, has_goal=has_goal)

        return metered

    async def _record(
        self, ask: AskModel, request: ModelRequest, session_id: str, called: ModelCalled, *, has_goal: bool
    ) -> AsyncIterator[ReplyItem]:
        reservation = await self.reserve(session_id, request, has_goal=has_goal)
        has_output, is_recorded = False, False
        try:
            async with aclosing(ask(request)) as items:  # type: ignore[type-var] # every provider's stream is an async generator
                async for item in items:
                    has_output = has_output or not isinstance(item, FallbackAsked)
                    if isinstance(item, ModelReply):
                        called = msgspec.structs.replace(
                            called, model=item.called or request.model, usage=item.usage, reservation=reservation
                        )
                        await self._commit(session_id, called)
                        is_recorded = True
                    yield item
        except BaseException as e:
            if not is_recorded:
                await self.end_unanswered(reservation, has_output=has_output or not isinstance(e, HoldfastError))
            raise
        finally:
            self.end(reservation)

    async def _commit(self, session_id: str, called: ModelCalled) -> None:
        at = self._services.clock.now()

        def work(tx: Transaction) -> None:
            log.annotate(tx, session_id, called, at=at)
            if called.reservation:
                budget.settle(tx, called.reservation, called.usage.cost)

        await run_to_completion(self._services.database.write(work))


def _goal_limits(tx: Transaction, call: PlannedCall) -> list[AppliedLimit]:
    """What the session, or one that delegated to it, may cost while it works towards a goal, if that has a limit."""
    found = budget.list_goals(tx, call.session_id) if call.session_id else []
    return [("goal", goal.cost_before + (goal.max_cost or 0), budget.get_tree_cost(tx, of)) for of, goal in found]


def _refusal(name: LimitName, limit: int, spent: int, call: PlannedCall) -> tuple[str, str]:
    """Which limit is used up and how much it is, and what allows more."""
    amount, tomorrow = f"{format_money(spent)} of {format_money(limit)} is spent", "It starts again at 00:00 UTC"
    match name:
        case "session":
            whose = "this session" if call.root_id == call.session_id else f"session {call.root_id} and its sub-agents"
            return f"the budget of {whose} is used up: {amount}", "/cost raise AMOUNT raises it for that session"
        case "goal":
            facts = f"the budget of this goal is used up: the session has cost {format_money(spent)}"
            return facts, "/goal resume allows as much again"
        case "user":
            who = f"user {call.user}" if call.user else "the local user"
            return f"the budget of {who} for {call.day} is used up: {amount}", tomorrow
        case "day":
            return f"the budget for {call.day} is used up: {amount}", tomorrow
