"""Usage and cost."""

import asyncio

from starlette.responses import Response

from holdfast.api.context import API_USER
from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall, load_session
from holdfast.engine.spending import report
from holdfast.engine.spending.report import GroupBy, UsageGroup, UsageRange
from holdfast.interop.documents.usage import SessionUsageResponse, UsageResponse, as_csv


async def get_usage(call: EndpointCall) -> UsageResponse:
    """Get what was used and spent over a range of days, by day, model, source or user."""
    return UsageResponse.from_groups(*await _read(call))


async def get_usage_csv(call: EndpointCall) -> Response:
    """Get the same as CSV."""
    _, by, groups = await _read(call)
    return Response(await asyncio.to_thread(as_csv, by, groups), media_type="text/csv; charset=utf-8")


async def _read(call: EndpointCall) -> tuple[UsageRange, tuple[GroupBy, ...], list[UsageGroup]]:
    query: request_models.UsageRequest = call.query
    days = report.parse_range(query.first, query.last, at=call.context.engine.services.clock.now())
    by = report.parse_groups(query.by)
    return days, by, await report.read_groups(call.context.database, days, by)


async def get_session_usage(call: EndpointCall) -> SessionUsageResponse:
    """Get what the session has used and spent, by model, and its budgets."""
    session, engine = await load_session(call), call.context.engine
    found = await report.report_session(call.context.database, engine.meter, session.id, at=engine.services.clock.now())
    return SessionUsageResponse.from_spending(found)


async def raise_budget(call: EndpointCall) -> SessionUsageResponse:
    """Raise the budget of the session, in US dollars."""
    body: request_models.RaiseBudgetRequest = call.body
    session, engine = await load_session(call, trashed=False), call.context.engine
    found = await report.raise_session_limit(
        call.context.database, engine.meter, session.id, body.amount, by=API_USER, at=engine.services.clock.now()
    )
    return SessionUsageResponse.from_spending(found)
