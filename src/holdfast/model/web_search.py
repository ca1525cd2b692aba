"""The port of web search services."""

from typing import Protocol

import msgspec


class SearchResult(msgspec.Struct, frozen=True):
    """One result. Its texts are plain text from strangers."""

    title: str
    url: str
    snippet: str = ""


class WebSearch(Protocol):
    name: str
    """The name of the service, for messages."""

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """At most `count` results, the best first. Raises Unavailable, or Invalid if the service refuses the key or the query."""
