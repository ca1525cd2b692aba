"""A server that is killed repeatedly during a stream: the client resumes after its last event and gets the complete text."""

import os
import random
import signal

import httpx
import pytest

from tests.api import native_client
from tests.api.native_client import Listener, begin, say
from tests.api.serving import BRISKLY, Server
from tests.sampling import ROUNDS as WANTED

ROUNDS = WANTED or 6


@pytest.mark.crash
@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_a_server_killed_during_a_stream_loses_no_streamed_text(own: Server) -> None:
    chance = random.Random(7)
    killed = 0
    while killed < ROUNDS:
        with native_client.client(own) as http:
            listener = Listener(begin(http, model=own.model("brisk")))
            say(http, listener.session_id, "go")
        for _ in range(chance.choice((1, 1, 1, 1, 2))):
            if not listener.is_over:
                killed += _hear_until_killed(own, listener, chance.randrange(len(BRISKLY)))
                own.restart()
        _hear_the_rest(own, listener)

        assert listener.text == BRISKLY
        assert [event["seq"] for event in listener.events] == list(range(1, listener.last + 1))


def _hear_until_killed(own: Server, listener: Listener, length: int) -> bool:
    """Listen and kill the server after so many characters; return whether the stream was interrupted."""
    struck = in_midst = False
    try:
        with native_client.client(own) as http:
            for kind in listener.listen(http):
                if not struck and (listener.is_over or (kind == "delta" and len(listener.preview) > length)):
                    in_midst = not listener.is_over
                    os.kill(own.process.pid, signal.SIGKILL)
                    struck = True
    except httpx.TransportError:
        pass
    own.process.wait()
    return in_midst


def _hear_the_rest(own: Server, listener: Listener) -> None:
    with native_client.client(own) as http:
        for _ in () if listener.is_over else listener.listen(http):
            if listener.is_over:
                return
