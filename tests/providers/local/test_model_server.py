"""The threads of the embedded model's process, with a library that fails in unexpected ways."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.providers.local.model_server import serve


class FailingLibrary:
    """Raises what a request names, or answers with one chunk."""

    errors = {
        "key": KeyError("slot"),
        "memory": MemoryError(),
        "value": ValueError("no"),
        "runtime": RuntimeError("out"),
    }

    def handle_chat_completions(self, request: dict[str, Any], tell: Callable[[object], bool]) -> None:
        if (error := self.errors.get(request.get("raise", ""))) is not None:
            raise error
        tell({"text": "hello"})


class OneSlot:
    """A process with one thread."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair()
        self._thread = threading.Thread(target=serve, args=(theirs, FailingLibrary(), ""))
        self._thread.start()
        self._theirs = theirs

    def ask(self, request: object) -> list[dict[str, Any]]:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                socket.send_fds(self.control, [b"."], [theirs.fileno()])
            ours.sendall(json.dumps(request).encode() + b"\n")
            with ours.makefile() as lines:
                return [json.loads(line) for line in lines]

    def close(self) -> None:
        self.control.close()
        self._thread.join()
        self._theirs.close()


@pytest.fixture
def slot() -> Iterator[OneSlot]:
    opened = OneSlot()
    yield opened
    opened.close()


ANSWER = [{"chunk": {"text": "hello"}}, {"end": True}]


@pytest.mark.parametrize(
    ("name", "failure", "text"),
    [
        ("key", "broken", "KeyError('slot')"),
        ("memory", "broken", "MemoryError()"),
        ("runtime", "broken", "out"),
        ("value", "refused", "no"),
    ],
)
def test_a_request_that_fails_in_any_way_is_answered_and_keeps_its_slot(
    slot: OneSlot, name: str, failure: str, text: str
) -> None:
    assert slot.ask({"raise": name}) == [{"failure": failure, "text": text}]
    assert slot.ask({}) == ANSWER


def test_a_request_whose_socket_could_not_be_received_keeps_its_slot(slot: OneSlot) -> None:
    """With too many open files, the byte arrives without the socket."""
    slot.control.send(b".")

    assert slot.ask({}) == ANSWER
