"""The load driver: sends turns over many connections from one thread, with raw sockets.

HTTP client libraries stop at about 300 turns/s and would measure themselves. Each connection sends its next turn as soon as
the reply to the last one is complete. Every reply is checked.
"""

import json
import select
import socket
import statistics
import time
from contextlib import ExitStack

import msgspec

from bench.model_server import WORDS

SAID = "Are you there?"
FIRST = b"0000"
"""The number of a turn in what is said. The same words again would take the turn back, as a client does that regenerates."""
WORD = b"word"
LIMIT_SECONDS = 600.0
"""Without any byte from any connection: the server hangs."""
CHAT = "/v1/chat/completions"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where turns are sent, and in which form."""

    port: int
    key: str = "none"
    session_header: str = "x-session-key"
    path: str = CHAT
    stream: bool = True
    words: int = WORDS

    def request(self, session: str) -> bytes:
        """Return the first request of a session."""
        words = f"{SAID} #{FIRST.decode()}"
        said = {"messages": [{"role": "user", "content": words}]} if "chat" in self.path else {"input": words}
        body = json.dumps({"model": "m", "stream": self.stream, **said}).encode()
        head = (
            f"POST {self.path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self.key}\r\n"
            f"{self.session_header}: {session}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class Load(msgspec.Struct, frozen=True):
    """What a load gave: its duration, and the seconds of each turn and between two pieces of a reply, both sorted."""

    seconds: float
    turns: list[float]
    gaps: list[float]

    @property
    def per_second(self) -> float:
        return len(self.turns) / self.seconds

    @property
    def p50(self) -> float:
        return statistics.median(self.turns)

    @property
    def p99(self) -> float:
        return share(self.turns, 0.99)


def share(values: list[float], fraction: float) -> float:
    """The value below which this fraction of the sorted values is."""
    return values[int(fraction * (len(values) - 1))]


class BadReply(Exception):
    """A server refused a turn, or its reply is not the model's."""


class _Connection:
    """One connection with its sessions, each of at most `in_session` turns."""

    def __init__(self, endpoint: Endpoint, name: str, turns: int, in_session: int) -> None:
        self._endpoint, self._name = endpoint, name
        self._left, self._done, self._in_session = turns, 0, in_session
        self._reply = bytearray()
        self._size = 0
        self.took: list[float] = []
        self.gaps: list[float] = []
        self.socket = socket.create_connection(("127.0.0.1", endpoint.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self) -> bool:
        """Send the next turn; False if there is none."""
        if self._done == self._left:
            return False
        place = self._done % self._in_session
        if place == 0:
            self._request = self._endpoint.request(f"{self._name}-{self._done // self._in_session}")
        self._done += 1
        self._reply.clear()
        self._size = 0
        self._start = self._last = time.perf_counter()
        self.socket.sendall(self._request.replace(b"#" + FIRST, b"#%04d" % place))
        return True

    def receive(self) -> bool:
        """Read what has arrived; True if the reply is complete."""
        data = self.socket.recv(65_536)
        now = time.perf_counter()
        if not data:
            raise BadReply(f"The server closed a connection after {bytes(self._reply[:500])!r}")
        if self._reply:
            self.gaps.append(now - self._last)
        self._last = now
        self._reply += data
        if not self._is_complete():
            return False
        self.took.append(now - self._start)
        if not self._reply.startswith(b"HTTP/1.1 200") or self._reply.count(WORD) < self._endpoint.words:
            raise BadReply(f"Not the model's reply: {bytes(self._reply[-1500:])!r}")
        return True

    def _is_complete(self) -> bool:
        if not self._size:
            end = self._reply.find(b"\r\n\r\n")
            if end < 0:
                return False
            length = bytes(self._reply[:end]).lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self._size = end + 4 + int(length) if length else -1
        return len(self._reply) >= self._size if self._size > 0 else self._reply.endswith(b"\r\n0\r\n\r\n")


def drive(endpoint: Endpoint, name: str, *, sessions: int, turns: int, in_session: int = 20) -> Load:
    """Play `turns` turns on each of `sessions` connections at once. Raises BadReply."""
    with ExitStack() as stack:
        connections = [_Connection(endpoint, f"{name}-{place}", turns, in_session) for place in range(sessions)]
        for connection in connections:
            stack.enter_context(connection.socket)
        seconds = _play(connections)
    turns_took = sorted(took for connection in connections for took in connection.took)
    return Load(seconds, turns_took, sorted(gap for connection in connections for gap in connection.gaps))


def _play(connections: list[_Connection]) -> float:
    """Play all turns; return the seconds from the first request to the last reply."""
    by_number = {connection.socket.fileno(): connection for connection in connections}
    with select.epoll() as poll:
        start = time.perf_counter()
        for number, connection in by_number.items():
            poll.register(number, select.EPOLLIN)
            connection.send()
        running = len(connections)
        while running:
            ready = poll.poll(LIMIT_SECONDS)
            if not ready:
                raise BadReply(f"No byte in {LIMIT_SECONDS:.0f} s")
            for number, _ in ready:
                connection = by_number[number]
                if connection.receive() and not connection.send():
                    poll.unregister(number)
                    running -= 1
        return time.perf_counter() - start
