"""A conversation that is compacted three times, and a check that all of it can still be recalled."""

import json
import secrets
import subprocess
import sys
from typing import Any

from tests.api.serving import Server

TURNS = 30
AT_ONCE = 5
"""Markers to search for in one turn."""
FILLER = "words " * 260


class Conversation:
    """The messages: thirty turns with a marker each, then turns in which the model searches its session for them."""

    def __init__(self, filler: str = FILLER) -> None:
        self.markers = [f"p{n:02}={secrets.token_hex(3)}" for n in range(TURNS)]
        self.lines = [f"{marker} {filler}".strip() for marker in self.markers]
        # Written with an escape, so that the question itself is not among what is found.
        looks = [f'use tool recall {{"query": "p{n:02}\\u003d"}}' for n in range(TURNS)]
        self.questions = ["\n".join(looks[n : n + AT_ONCE]) for n in range(0, TURNS, AT_ONCE)]

    @property
    def all(self) -> list[str]:
        return [*self.lines, *self.questions]

    def _begins(self, session: dict[str, Any]) -> bool:
        return str(session["preview"]).startswith(self.markers[0])

    def check(self, server: Server, replies: list[str], known: set[str] | None = None) -> None:
        """Every reply fits its turn, there was one session with three compactions, and every marker can be recalled.

        The session is the one that begins with the first marker, or the one that is not among those `known` before.
        """
        assert len(replies) == len(self.all)
        for marker, reply in zip(self.markers, replies, strict=False):
            assert marker in reply, reply
        [session] = [
            one for one in listed(server) if (one["id"] not in known if known is not None else self._begins(one))
        ]
        assert session["turn_count"] == len(self.all)
        assert session["epoch"] >= 3, "the conversation was long enough to be compacted three times"
        found = " ".join(replies[TURNS:])
        assert [marker for marker in self.markers if marker not in found] == []


def listed(server: Server) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "holdfast", "--home", str(server.home), "sessions", "list", "--all", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)["sessions"]
    return found
