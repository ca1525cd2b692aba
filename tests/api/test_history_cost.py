"""What a server reads for one turn does not grow with the conversation."""

from pathlib import Path

import httpx

from tests.api.serving import Server, ask, text

MESSAGES = 2_001
LONG_TEXT = "word " * 200
"""With it the long conversation has 2 MB."""
TURNS = 5
ALLOWANCE = 200_000
"""Bytes that background tasks may read during one turn."""


def test_promise_32_a_turn_reads_no_more_behind_a_long_history(tmp_path: Path) -> None:
    with Server(tmp_path / "home", context_window=10_000_000) as server, server.http() as http:
        _begin(http, "short", ["hello"])
        _begin(http, "long", [f"{number} {LONG_TEXT}" for number in range(MESSAGES)])

        server.kill()
        server.restart()

        first = _bytes_of_one(server, http, "long", "the first after a restart")
        short, long = _bytes_of_a_turn(server, http, "short"), _bytes_of_a_turn(server, http, "long")

    print(f"{short:,} bytes behind few messages, {long:,} behind {MESSAGES:,}; {first:,} to load them")
    assert long < short + ALLOWANCE
    assert first > MESSAGES * len(LONG_TEXT) / 2, "reading the history is seen by this measurement"


def _begin(http: httpx.Client, name: str, messages: list[str]) -> None:
    assert text(ask(http, *messages, headers={"x-session-key": name}))


def _bytes_of_a_turn(server: Server, http: httpx.Client, name: str) -> int:
    """The bytes that the server process reads for a turn; the lowest of several."""
    return min(_bytes_of_one(server, http, name, f"message {number}") for number in range(TURNS))


def _bytes_of_one(server: Server, http: httpx.Client, name: str, words: str) -> int:
    before = _bytes_read(server.process.pid)
    assert words in text(ask(http, words, headers={"x-session-key": name}))
    return _bytes_read(server.process.pid) - before


def _bytes_read(pid: int) -> int:
    """Everything that a process has read with system calls: files, sockets and pipes."""
    counters = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(counters["rchar"])
