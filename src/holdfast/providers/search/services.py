"""The search services: Brave Search, Tavily and SearXNG, each by its public HTTP API."""

import re

import msgspec

from holdfast.model.web_search import SearchResult
from holdfast.providers.search.request import SearchServiceRequest, fetch_json

BRAVE_URL = "https://api.search.brave.com/res/v1"
TAVILY_URL = "https://api.tavily.com"
MARKUP = re.compile(r"</?(?:strong|b|em|i)>")


class _Item(msgspec.Struct, frozen=True):
    title: str | None = None
    url: str | None = None
    content: str | None = None
    description: str | None = None


class _Results(msgspec.Struct, frozen=True):
    results: list[_Item] = []


class _BraveReply(msgspec.Struct, frozen=True):
    web: _Results | None = None
    """Missing if there are no results."""


class BraveSearch:
    """https://api-dashboard.search.brave.com/api-reference/web/search/get"""

    name = "Brave Search"

    def __init__(self, api_key: str, base_url: str | None = None, *, timeout_seconds: float = 30.0) -> None:
        self._api_key = api_key
        self._url = (base_url or BRAVE_URL).rstrip("/") + "/web/search"
        self._timeout = timeout_seconds

    async def search(self, query: str, count: int) -> list[SearchResult]:
        params = {"q": query, "count": str(count), "text_decorations": "false"}
        headers = {"X-Subscription-Token": self._api_key}
        request = SearchServiceRequest(service=self.name, url=self._url, params=params, headers=headers)
        reply = await fetch_json(request, _BraveReply, self._timeout)
        return _results(reply.web or _Results())


class TavilySearch:
    """https://docs.tavily.com/documentation/api-reference/endpoint/search"""

    name = "Tavily"

    def __init__(self, api_key: str, base_url: str | None = None, *, timeout_seconds: float = 30.0) -> None:
        self._api_key = api_key
        self._url = (base_url or TAVILY_URL).rstrip("/") + "/search"
        self._timeout = timeout_seconds

    async def search(self, query: str, count: int) -> list[SearchResult]:
        headers = {"Authorization": f"Bearer {self._api_key}"}
        body = {"query": query, "max_results": count}
        request = SearchServiceRequest(service=self.name, url=self._url, headers=headers, body=body)
        return _results(await fetch_json(request, _Results, self._timeout))


class SearxngSearch:
    """https://docs.searxng.org/dev/search_api.html; the instance must allow the format `json`."""

    name = "SearXNG"

    def __init__(self, base_url: str, api_key: str = "", *, timeout_seconds: float = 30.0) -> None:
        self._url = base_url.rstrip("/") + "/search"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = timeout_seconds

    async def search(self, query: str, count: int) -> list[SearchResult]:
        request = SearchServiceRequest(
            service=self.name,
            url=self._url,
            params={"q": query, "format": "json"},
            headers=self._headers,
            refused_hint="the instance must list json under search.formats in its settings.yml",
        )
        return _results(await fetch_json(request, _Results, self._timeout))[:count]


def _results(reply: _Results) -> list[SearchResult]:
    """The results that have an address."""
    return [
        SearchResult(_plain(item.title), item.url, _plain(item.content or item.description))
        for item in reply.results
        if item.url and item.url.startswith(("http://", "https://"))
    ]


def _plain(text: str | None) -> str:
    import html  # its table of entities loads slowly, and most turns search nothing

    return html.unescape(MARKUP.sub("", text or ""))
