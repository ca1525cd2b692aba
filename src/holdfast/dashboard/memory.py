"""The page of remembered facts."""

from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import templating
from holdfast.dashboard.context import ACTOR, get_context
from holdfast.dashboard.forms import action_response, get_fields, require_field
from holdfast.interop.documents.memory import describe_owned_place, describe_source
from holdfast.model.memory.fact import NewFact, parse_fact_id
from holdfast.model.memory.owner import LOCAL_OWNER, MemoryPlace
from holdfast.model.text import counted
from holdfast.store.repos import memory
from holdfast.store.repos.memory import FactFilter

SHOWN = 200
MAX_QUERY = 500
PAGE = "/ui/memory"


async def show_memory(request: Request) -> Response:
    """The newest facts of all people, or those that match a search, the best first."""
    context, query = get_context(request), request.query_params.get("q", "")[:MAX_QUERY].strip()
    wanted = FactFilter()
    if query:
        found = await context.database.read(memory.search, wanted, query, limit=SHOWN)
    else:
        found = await context.database.read(memory.list_page, wanted, limit=SHOWN + 1)
    return templating.page_response(
        request,
        "memory.html",
        facts=[(fact, describe_owned_place(fact), describe_source(fact)) for fact in found[:SHOWN]],
        has_more=len(found) > SHOWN,
        query=query,
        now=context.now,
    )


async def add_fact(request: Request) -> Response:
    context, text = get_context(request), require_field(request, "text")
    new = NewFact(place=MemoryPlace(LOCAL_OWNER), scope="user", text=text, author=ACTOR)
    fact = await context.database.write(memory.add, new, seq=0, at=context.now)
    return action_response(request, f"Saved as {fact.id}", PAGE)


async def correct_fact(request: Request) -> Response:
    context, text = get_context(request), get_fields(request).get("text", "")
    number = parse_fact_id(request.path_params["id"])
    fact = await context.database.write(memory.correct, number, text, by=ACTOR, at=context.now)
    return action_response(request, f"{fact.id} replaces fact-{number}", PAGE)


async def forget_fact(request: Request) -> Response:
    context, number = get_context(request), parse_fact_id(request.path_params["id"])
    count = await context.database.write(memory.forget, number, by=ACTOR, at=context.now)
    return action_response(request, f"Forgot fact-{number} ({counted(count, 'version')})", PAGE)
