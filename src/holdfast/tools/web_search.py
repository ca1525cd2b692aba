"""Searches the web through the configured service."""

import msgspec

from holdfast.model.finding import Finding
from holdfast.model.text import truncate
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.model.web_search import SearchResult, WebSearch
from holdfast.tools.spec import load_spec
from holdfast.tools.web.content_frame import frame

MAX_RESULTS = 10
MAX_QUERY = 400
"""Characters; the smallest limit of the services."""
MAX_SNIPPET = 600


class WebSearchArguments(msgspec.Struct, frozen=True):
    query: str
    count: int = 5


class WebSearchTool:
    repeatable = True
    spec = load_spec(
        "web_search",
        {
            "query": {"type": "string", "description": "What to search for."},
            "count": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "description": "How many results."},
        },
        ("query",),
    )

    def __init__(self, service: WebSearch) -> None:
        self._service = service

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return ()

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, WebSearchArguments)
        query = " ".join(parsed.query.split())
        if not query or len(query) > MAX_QUERY:
            return ToolOutput.say(f"query must have 1 to {MAX_QUERY} characters.", ok=False)
        results = await self._service.search(query, parsed.count)
        if not results:
            return ToolOutput.say(f"{self._service.name} found nothing for {query!r}.")
        listed = "\n\n".join(_describe(number, result) for number, result in enumerate(results[: parsed.count], 1))
        return ToolOutput.say(frame(f"results of {self._service.name}", listed))


def _describe(number: int, result: SearchResult) -> str:
    snippet = " ".join(result.snippet.split())
    shown = truncate(snippet, MAX_SNIPPET)
    lines = [f"{number}. {' '.join(result.title.split()) or '(no title)'}", f"   {' '.join(result.url.split())}"]
    return "\n".join([*lines, f"   {shown}"] if shown else lines)
