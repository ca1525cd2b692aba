"""Remembered facts: list, search, add, correct and forget them."""

from holdfast.api.context import API_USER
from holdfast.api.errors import ApiError
from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall
from holdfast.interop.documents.memory import FactDetailResponse, FactItem, FactListResponse, ForgottenResponse
from holdfast.model.errors import NotFound
from holdfast.model.memory.fact import NewFact, parse_fact_id
from holdfast.model.memory.owner import MemoryPlace
from holdfast.store.database import Transaction
from holdfast.store.repos import memory
from holdfast.store.repos.memory import NEWEST, FactFilter


async def list_(call: EndpointCall) -> FactListResponse:
    """List facts, newest first; with `q` those that share words with it, the best first."""
    query: request_models.ListFactsRequest = call.query
    wanted = FactFilter(owner=query.owner, scope=query.scope, project=query.project or "", history=query.history)
    database = call.context.database
    if query.q.strip():
        found = await database.read(memory.search, wanted, query.q, limit=query.limit)
        return FactListResponse.from_page(found)
    before = NEWEST if query.cursor is None else _number(query.cursor)
    found = await database.read(memory.list_page, wanted, before=before, limit=query.limit + 1)
    return FactListResponse.from_page(found[: query.limit], has_more=len(found) > query.limit)


async def add(call: EndpointCall) -> FactItem:
    """Save a fact."""
    body: request_models.NewFactRequest = call.body
    place = MemoryPlace(body.owner, body.project if body.scope == "project" else "")
    new = NewFact(place=place, scope=body.scope, text=body.text, author=API_USER)
    at = call.context.engine.services.clock.now()
    return FactItem.from_fact(await call.context.database.write(memory.add, new, seq=0, at=at))


async def get(call: EndpointCall) -> FactDetailResponse:
    """Get a fact with all its versions."""
    number = _number(call.path_param("id"))

    def work(tx: Transaction) -> FactDetailResponse:
        return FactDetailResponse.from_versions(number, memory.list_versions(tx, memory.require(tx, number).first))

    return await call.context.database.read(work)


async def correct(call: EndpointCall) -> FactItem:
    """Replace a fact by a new version."""
    body: request_models.CorrectFactRequest = call.body
    number, at = _number(call.path_param("id")), call.context.engine.services.clock.now()
    return FactItem.from_fact(await call.context.database.write(memory.correct, number, body.text, by=API_USER, at=at))


async def forget(call: EndpointCall) -> ForgottenResponse:
    """Remove the text of a fact in all its versions."""
    number, at = _number(call.path_param("id")), call.context.engine.services.clock.now()
    return ForgottenResponse(
        f"fact-{number}", await call.context.database.write(memory.forget, number, by=API_USER, at=at)
    )


def _number(ref: str) -> int:
    try:
        return parse_fact_id(ref)
    except NotFound as e:
        raise ApiError(404, "not_found", str(e)) from e
