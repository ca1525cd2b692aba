"""Fakes of Brave Search, Tavily and SearXNG on a loopback port, written from their public references; they validate requests."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

KEY = "key-1"
FOUND = [
    {"title": "Garden <strong>tools</strong> &amp; more", "url": "https://a.test/1", "text": "Spades\n and rakes"},
    {"title": "", "url": "https://b.test/2", "text": ""},
    {"title": "No address", "url": "javascript:alert(1)", "text": "x"},
]


@dataclass
class SearchServer:
    url: str = ""
    queries: list[str] = field(default_factory=list)
    status: int = 200
    raw: bytes | None = None
    found: list[dict[str, str]] = field(default_factory=lambda: list(FOUND))

    def items(self, text_field: str) -> list[dict[str, Any]]:
        return [{"title": one["title"], "url": one["url"], text_field: one["text"], "score": 0.5} for one in self.found]

    def respond(self, query: str, document: dict[str, Any]) -> web.Response:
        self.queries.append(query)
        if self.raw is not None:
            return web.Response(body=self.raw, content_type="application/json")
        if self.status != 200:
            return web.json_response({"detail": "no"}, status=self.status)
        return web.json_response(document)

    async def brave(self, request: web.Request) -> web.Response:
        if request.headers.get("X-Subscription-Token") != KEY:
            return web.json_response({"type": "ErrorResponse"}, status=401)
        assert 1 <= int(request.query["count"]) <= 20
        results = {"web": {"type": "search", "results": self.items("description")}} if self.found else {}
        return self.respond(request.query["q"], {"type": "search", "query": {}, **results})

    async def tavily(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response({"detail": {"error": "Unauthorized"}}, status=401)
        body = json.loads(await request.read())
        assert 0 <= body["max_results"] <= 20
        return self.respond(body["query"], {"query": body["query"], "answer": None, "results": self.items("content")})

    async def searxng(self, request: web.Request) -> web.Response:
        if request.query.get("format") != "json":
            return web.Response(status=403)
        return self.respond(request.query["q"], {"query": request.query["q"], "results": self.items("content")})


@asynccontextmanager
async def serving() -> AsyncIterator[SearchServer]:
    server, application = SearchServer(), web.Application()
    application.router.add_get("/res/v1/web/search", server.brave)
    application.router.add_post("/tavily/search", server.tavily)
    application.router.add_get("/searxng/search", server.searxng)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()
