"""The load driver against a real model server: it plays every turn, and accepts no other reply."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from bench import systems
from bench.load_driver import BadReply, Endpoint, drive, share
from bench.processes import cpu_seconds
from bench.systems import System

pytestmark = pytest.mark.process


@pytest.fixture
async def model() -> AsyncIterator[System]:
    async with systems.model() as found:
        yield found


@pytest.mark.parametrize("stream", [True, False])
async def test_every_turn_is_played(model: System, stream: bool):
    load = drive(msgspec.structs.replace(model.endpoint, stream=stream), "test", sessions=8, turns=5)

    assert len(load.turns) == 40
    assert 0 < load.p50 <= load.p99
    assert cpu_seconds(model.process) > 0


async def test_a_reply_that_lacks_words_is_no_reply(model: System):
    with pytest.raises(BadReply, match="Not the model's reply"):
        drive(msgspec.structs.replace(model.endpoint, words=1_000), "test", sessions=1, turns=1)


async def test_the_model_server_counts_what_it_receives(model: System):
    drive(model.endpoint, "test", sessions=1, turns=1)

    assert systems.ask_model(model.endpoint.port, "received") == len(_body(model.endpoint))
    assert systems.ask_model(model.endpoint.port, "received") == 0
    assert systems.ask_model(model.endpoint.port, "streams") == 0


def _body(endpoint: Endpoint) -> bytes:
    return endpoint.request("test").partition(b"\r\n\r\n")[2]


def test_a_share_of_sorted_values():
    assert share([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0
    assert share([1.0, 2.0, 3.0, 4.0], 1.0) == 4.0
