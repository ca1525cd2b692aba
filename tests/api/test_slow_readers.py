"""A client that does not read delays nobody, uses little memory, and gets everything when it reads again."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from holdfast.engine.streaming.bus import MAX_UNREAD, MAX_UNREAD_TEXT, LiveText, Subscription
from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, Titled
from holdfast.model.message import Text
from tests.api import native_client
from tests.api.native_client import Pieces, begin, said
from tests.api.serving import KEY, Server

LONG = "x" * 100_000
TURNS = 30


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server whose models have a huge context window, so that nothing is compacted."""
    with Server(tmp_path / "home", context_window=10**8) as running:
        yield running


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with native_client.client(server) as opened:
        yield opened


def listen_without_reading(server: Server, session_id: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    head = [
        f"GET /v1/sessions/{session_id}/events HTTP/1.1",
        f"host: 127.0.0.1:{server.port}",
        f"authorization: Bearer {KEY}",
        "accept: text/event-stream",
    ]
    connection.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
    return connection


def test_a_client_that_does_not_read_delays_no_turn_and_misses_nothing(server: Server, http: httpx.Client) -> None:
    one = begin(http)
    with listen_without_reading(server, one) as connection:
        assert connection.recv(8) == b"HTTP/1.1"
        for n in range(TURNS):
            assert said(http, one, f"{n} {LONG}")["state"] == "done"
        with listen_without_reading(server, one), listen_without_reading(server, one):
            said(http, one, "the last words")
        seqs = read_on(connection, http.get(f"/v1/sessions/{one}").json()["seq"])

    assert seqs == list(range(1, seqs[-1] + 1)), "every event came, once and in order"


def read_on(connection: socket.socket, last: int) -> list[int]:
    """The numbers of all events of the stream, up to the last."""

    def lines() -> Iterator[str]:
        rest = b""
        while piece := connection.recv(1 << 20):
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line.decode() for line in whole if not is_frame(line))

    seqs = []
    for name, _, data in Pieces(lines()):
        if name == "message":
            seqs.append(data["seq"])
            if data["seq"] == last:
                return seqs
    raise AssertionError("the stream ended early")


def is_frame(line: bytes) -> bool:
    """Whether a line belongs to the chunked encoding and not to the content."""
    return line.endswith(b"\r")


def test_little_memory_is_used_for_a_client_that_does_not_read() -> None:
    unread = Subscription()
    for n in range(5 * MAX_UNREAD):
        unread.put(Entry(n + 1, 0, Titled(title="x")))
    for _ in range(100):
        unread.put(LiveText("t", "text", "y" * (MAX_UNREAD_TEXT // 10)))

    kept = []
    while (item := unread.take()) is not None:
        kept.append(item)

    assert len(kept) <= MAX_UNREAD
    assert sum(len(item.text) for item in kept if isinstance(item, LiveText)) <= 1.2 * MAX_UNREAD_TEXT


async def test_a_subscriber_that_fell_behind_reads_from_the_store_and_gets_the_next_reply_complete() -> None:
    behind = Subscription()
    for _ in range(20):
        behind.put(LiveText("t", "text", "y" * (MAX_UNREAD_TEXT // 10)))
    behind.put(LiveText("t", "text", "the rest of a reply whose beginning is gone"))

    assert await behind.wait() is True, "it must read the store"
    assert behind.take() is None
    behind.put(Entry(9, 0, ModelSaid(turn_id="t", parts=(Text("all of it"),))))
    behind.put(LiveText("t", "text", "anew"))
    assert isinstance(behind.take(), Entry)
    assert behind.take() == LiveText("t", "text", "anew")
