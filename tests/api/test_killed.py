"""A server that is killed in mid-stream, again and again: the client reads on from its last event, and the text is whole."""

import os
import random
import signal

import httpx
import pytest

from tests.api import native
from tests.api.native import Listener, begin, say
from tests.api.serving import BRISKLY, Server
from tests.crash.effort import ROUNDS as WANTED

ROUNDS = WANTED or 25


@pytest.mark.crash
@pytest.mark.timeout(60 + 12 * ROUNDS)
def test_a_server_killed_in_mid_stream_leaves_no_text_behind(own: Server) -> None:
    chance = random.Random(7)
    kills = 0
    for number in range(ROUNDS):
        with native.client(own) as http:
            listener = Listener(begin(http, model=own.model("brisk"), title=f"Round {number}"))
            say(http, listener.session_id, "go")
        twice = chance.random() < 0.1
        for _ in range(2 if twice else 1):
            kills += _hear_until_killed(own, listener, chance.randrange(1, 70))
            own.restart()
        with native.client(own) as http:
            for kind in listener.listen(http):
                if kind == "turn_ended":
                    break

        assert listener.text == BRISKLY
        assert [event["seq"] for event in listener.events] == list(range(1, listener.last + 1))

    assert kills >= ROUNDS


def _hear_until_killed(own: Server, listener: Listener, deltas: int) -> int:
    """Listen, kill the server after so many pieces of live text, and hear the connection break."""
    heard, killed = listener.deltas, False
    try:
        with native.client(own) as http:
            for kind in listener.listen(http):
                if not killed and (listener.deltas >= heard + deltas or kind == "turn_ended"):
                    os.kill(own.process.pid, signal.SIGKILL)
                    killed = True
    except httpx.TransportError:
        pass
    own.process.wait()
    return int(killed)
