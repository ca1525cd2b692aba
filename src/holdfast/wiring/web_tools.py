"""Builds the tools for the web: fetching pages, and searching with the configured service."""

import holdfast
from holdfast.engine.context.tokens import BYTES_PER_TOKEN
from holdfast.model.tool import Tool
from holdfast.model.web_search import WebSearch
from holdfast.safe_fetch import SafeFetcher
from holdfast.settings import Settings, Terminal, WebSettings
from holdfast.tools.fetch_url import PAGE_CHARS, FetchUrlTool
from holdfast.tools.web_search import WebSearchTool


def make_web_tools(settings: Settings, window: int) -> list[Tool]:
    """The tools for the web that are configured. A page of text takes at most a fifth of the window."""
    web, tools = settings.web, list[Tool]()
    page_chars = min(PAGE_CHARS, window * BYTES_PER_TOKEN // 5)
    if web.fetch:
        fetcher = SafeFetcher(
            web.trusted_hosts, total_seconds=web.timeout_seconds, user_agent=f"holdfast/{holdfast.__version__}"
        )
        tools.append(FetchUrlTool(fetcher, page_chars=page_chars, offline=_offline_terminals(settings.terminal)))
    if (service := _make_search_service(web)) is not None:
        tools.append(WebSearchTool(service))
    return tools


def _offline_terminals(terminal: Terminal) -> frozenset[str]:
    """The terminal backends whose commands have no network."""
    offline = {"container"} if terminal.container.network == "none" else set()
    return frozenset(offline if terminal.bubblewrap.network else {*offline, "bubblewrap"})


def _make_search_service(web: WebSettings) -> WebSearch | None:
    """The configured search service; None without one, or if its key is not set."""
    if web.search_provider is None:
        return None
    from holdfast.providers.search.services import BraveSearch, SearxngSearch, TavilySearch

    key = web.api_key.reveal() if web.api_key else ""
    if web.search_provider == "searxng" and web.base_url:
        return SearxngSearch(web.base_url, key, timeout_seconds=web.timeout_seconds)
    if not key:
        return None
    service = BraveSearch if web.search_provider == "brave" else TavilySearch
    return service(key, web.base_url, timeout_seconds=web.timeout_seconds)
