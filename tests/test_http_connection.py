"""What is written to a connection in one iteration of the event loop is sent together."""

import asyncio
from typing import cast

from holdfast.http_connection import MAX_JOINED_BYTES, JoiningTransport


class RecordingTransport:
    """Records what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str) -> str:
        return f"the {name}"


def join() -> tuple[RecordingTransport, JoiningTransport]:
    recording = RecordingTransport()
    return recording, JoiningTransport(cast("asyncio.Transport", recording), asyncio.get_running_loop())


async def test_writes_of_one_iteration_are_sent_together_and_in_order() -> None:
    recording, joining = join()
    for piece in (b"head ", b"chunk ", b"end"):
        joining.write(piece)
    assert recording.sent == []
    await asyncio.sleep(0)
    joining.write(b"next")
    await asyncio.sleep(0)

    assert recording.sent == [b"head chunk end", b"next"]


async def test_much_is_sent_at_once_so_that_a_slow_client_can_pause_the_writer() -> None:
    recording, joining = join()
    joining.write(b"small ")
    joining.write(b"x" * MAX_JOINED_BYTES)

    assert [len(data) for data in recording.sent] == [MAX_JOINED_BYTES + 6]
    await asyncio.sleep(0)
    assert len(recording.sent) == 1


async def test_what_was_written_is_sent_before_the_connection_is_closed() -> None:
    recording, joining = join()
    joining.write(b"the end")
    joining.close()
    await asyncio.sleep(0)

    assert recording.sent == [b"the end"]
    assert recording.closed


async def test_nothing_is_sent_when_the_client_has_left() -> None:
    recording, joining = join()
    joining.write(b"too late")
    recording.closed = True
    await asyncio.sleep(0)

    assert recording.sent == []


async def test_it_is_a_transport_in_every_other_respect() -> None:
    _, joining = join()

    assert joining.get_extra_info("socket") == "the socket"
    assert not joining.is_closing()
