"""What the tests of the chat read from the store afterwards."""

from typing import Any

from tests.cli.conftest import Holdfast


def newest(holdfast: Holdfast) -> dict[str, Any]:
    """The session used last, with its messages."""
    session_id = holdfast("sessions", "list", "--json").json["sessions"][0]["id"]
    shown: dict[str, Any] = holdfast("sessions", "show", session_id, "--json").json
    return shown


def said(session: dict[str, Any], role: str) -> list[str]:
    return [message["content"] for message in session["messages"] if message["role"] == role]


def events(holdfast: Holdfast, session_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = holdfast("sessions", "show", session_id, "--events", "--json").json["events"]
    return found
