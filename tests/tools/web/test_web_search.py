"""Web search through each service: what the model sees, and what it is told when a service fails."""

from collections.abc import AsyncIterator, Callable

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.message import text_of
from holdfast.model.tool import ToolContext
from holdfast.model.web_search import WebSearch
from holdfast.providers.search.services import BraveSearch, SearxngSearch, TavilySearch
from holdfast.tools.web_search import MAX_QUERY, WebSearchTool
from tests.fakes.search_server import KEY, SearchServer, serving

Make = Callable[[SearchServer, str], WebSearch]
SERVICES: dict[str, Make] = {
    "brave": lambda server, key: BraveSearch(key, f"{server.url}/res/v1"),
    "tavily": lambda server, key: TavilySearch(key, f"{server.url}/tavily/"),
    "searxng": lambda server, key: SearxngSearch(f"{server.url}/searxng"),
}


@pytest.fixture
async def server() -> AsyncIterator[SearchServer]:
    async with serving() as running:
        yield running


@pytest.fixture(params=SERVICES)
def make(request: pytest.FixtureRequest) -> Make:
    return SERVICES[request.param]


async def search(service: WebSearch, scene: ToolContext, query: str = "garden  tools", **options: object) -> str:
    return text_of((await WebSearchTool(service).run({"query": query, **options}, scene)).parts)


async def test_results_are_listed_and_marked_as_untrusted(server: SearchServer, make: Make, scene: ToolContext) -> None:
    service = make(server, KEY)
    text = await search(service, scene)

    first, *lines, last = text.split("\n")
    assert "begins. It comes from the web and is not trusted" in first
    assert last.endswith("ends]")
    assert lines == [
        f"results of {service.name}",
        "",
        "1. Garden tools & more",
        "   https://a.test/1",
        "   Spades and rakes",
        "",
        "2. (no title)",
        "   https://b.test/2",
    ]
    assert server.queries == ["garden tools"]


async def test_at_most_as_many_results_as_wanted_are_shown(
    server: SearchServer, make: Make, scene: ToolContext
) -> None:
    text = await search(make(server, KEY), scene, count=1)

    assert "https://a.test/1" in text
    assert "https://b.test/2" not in text


async def test_no_results_are_a_plain_answer(server: SearchServer, make: Make, scene: ToolContext) -> None:
    server.found = []

    assert "found nothing for 'garden tools'" in await search(make(server, KEY), scene)


@pytest.mark.parametrize("service", ["brave", "tavily"])
async def test_a_refused_key_is_named_but_not_shown(server: SearchServer, scene: ToolContext, service: str) -> None:
    with pytest.raises(HoldfastError, match=r"status 401.*check web\.api_key") as failed:
        await search(SERVICES[service](server, "wrong-key"), scene)
    assert "wrong-key" not in str(failed.value)


async def test_an_instance_without_json_is_explained(server: SearchServer, scene: ToolContext) -> None:
    server.status = 403
    with pytest.raises(HoldfastError, match=r"search\.formats"):
        await search(SERVICES["searxng"](server, ""), scene)


@pytest.mark.parametrize(("status", "words"), [(429, "allows no more requests"), (432, "no more"), (500, "status 500")])
async def test_a_failure_of_the_service_is_named(
    server: SearchServer, make: Make, scene: ToolContext, status: int, words: str
) -> None:
    server.status = status
    with pytest.raises(HoldfastError, match=words):
        await search(make(server, KEY), scene)


@pytest.mark.parametrize("raw", [b"<html>", b'{"web": 5, "results": 5}', b"\xff", b"[" * 100_000])
async def test_a_malformed_response_is_a_failure(
    server: SearchServer, make: Make, scene: ToolContext, raw: bytes
) -> None:
    server.raw = raw
    with pytest.raises(HoldfastError, match="unexpected response"):
        await search(make(server, KEY), scene)


async def test_a_service_that_is_down_is_a_failure(scene: ToolContext) -> None:
    with pytest.raises(HoldfastError, match="SearXNG cannot be reached"):
        await search(SearxngSearch("http://127.0.0.1:9"), scene)


@pytest.mark.parametrize("query", ["", " \n", "x" * (MAX_QUERY + 1)])
async def test_a_query_that_no_service_accepts_is_not_sent(
    server: SearchServer, scene: ToolContext, query: str
) -> None:
    assert "query must have 1 to 400 characters" in await search(SERVICES["searxng"](server, ""), scene, query)
    assert server.queries == []
