"""A proxy to a server that can drop or delay data, or break connections at a chosen byte or during a commit."""

import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

Address = tuple[str, int] | str
"""A port, or the path of a socket."""
OnData = Callable[[bytes], int | None]
"""Called with the data for the server: None lets it pass; a number breaks the connection after that many bytes of it."""


def _connect(target: Address) -> socket.socket:
    if isinstance(target, str):
        made = socket.socket(socket.AF_UNIX)
        made.connect(target)
        return made
    return socket.create_connection(target)


class FaultyProxy:
    """Listens at `address` and forwards everything to the target. Must be closed."""

    def __init__(self, target: Address, listen: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.target = target
        self._listener = socket.create_server(listen)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.on_data: OnData = lambda _: None
        self.held_up = 0
        """How many chunks for the server were held back."""
        self._lock = threading.Lock()
        self._clear = threading.Event()
        self._clear.set()
        self._open = threading.Event()
        self._open.set()
        self._closed = False
        self._lines: set[socket.socket] = set()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def port(self) -> int:
        return self.address[1]

    def hold_up(self) -> None:
        """From now on nothing is forwarded, without an error; data is held back."""
        self._clear.clear()

    def let_through(self) -> None:
        """Forward the data that was held back."""
        self._clear.set()

    def leave_new_unanswered(self) -> None:
        """Accept new connections and never answer them. Existing ones continue."""
        self._open.clear()

    def cut(self) -> None:
        """Break every connection. New ones can be made."""
        with self._lock:
            lines = list(self._lines)
        for line in lines:
            _shut(line)

    def close(self) -> None:
        self._closed = True
        self._clear.set()
        self._open.set()
        _shut(self._listener)
        self._listener.close()
        self.cut()

    def _serve(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        self._clear.wait()
        self._open.wait()
        try:
            server = _connect(self.target)
        except OSError:
            client.close()
            return
        with self._lock:
            self._lines |= {client, server}
        down = threading.Thread(target=self._down, args=(server, client), daemon=True)
        down.start()
        self._up(client, server)
        down.join()
        with self._lock:
            self._lines -= {client, server}
        client.close()
        server.close()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        while data := _receive(client):
            self.held_up += not self._clear.is_set()
            self._clear.wait()
            arrives = self.on_data(data)
            if arrives is not None:
                _shut(client)
            with suppress(OSError):
                server.sendall(data[:arrives])
            if arrives is not None:
                break
        _shut(client)
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        while data := _receive(server):
            self._clear.wait()
            with suppress(OSError):
                client.sendall(data)
        _shut(client)


def _receive(one: socket.socket) -> bytes:
    try:
        return one.recv(65_536)
    except OSError:
        return b""


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


class Breaker:
    """Breaks the connection after every nth chunk, at a random byte: nothing, a part or all of the chunk still arrives."""

    def __init__(self, seed: int, between: tuple[int, int], *, only_commits: bool = False) -> None:
        self._chance = random.Random(seed)
        self._between = between
        self._only_commits = only_commits
        self._lock = threading.Lock()
        self._left = self._chance.randint(*between)
        self.lost = self.torn = self.arrived = 0

    @property
    def breaks(self) -> int:
        return self.lost + self.torn + self.arrived

    def __call__(self, data: bytes) -> int | None:
        if self._only_commits and b"COMMIT" not in data:
            return None
        with self._lock:
            self._left -= 1
            if self._left > 0:
                return None
            self._left = self._chance.randint(*self._between)
            arrives = self._chance.choice((0, self._chance.randint(1, len(data)), len(data)))
            self.lost += arrives == 0
            self.arrived += arrives == len(data)
            self.torn += 0 < arrives < len(data)
            return arrives
