"""Requests to `/v1/messages`, and what became of them."""

from typing import Any

import httpx

VERSION = {"anthropic-version": "2023-06-01"}


def post(http: httpx.Client, *messages: Any, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
    """Send a request; messages without a role alternate between user and assistant."""
    roles = ("user", "assistant")
    given = [m if isinstance(m, dict) else {"role": roles[n % 2], "content": m} for n, m in enumerate(messages)]
    body = {"model": "holdfast", "max_tokens": 1024, "messages": given, **more}
    return http.post("/v1/messages", json=body, headers=VERSION | (headers or {}))


def listed(http: httpx.Client, **filters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get("/v1/sessions", params={"limit": 1000, **filters}).json()["sessions"]
    return found


def logged(http: httpx.Client, session_id: str) -> list[tuple[str, str]]:
    """The role and text of each message in the log."""
    messages = http.get(f"/v1/sessions/{session_id}/messages").json()["messages"]
    return [(one["role"], one["content"]) for one in messages]
