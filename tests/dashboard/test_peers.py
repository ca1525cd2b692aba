"""Other servers are polled with their own key, and never with ours."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.dashboard.peers import PeerPoller
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.tasks import running
from tests.fakes.clock import FakeClock


class RecordingServer:
    """A server that records requests."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def recording_server() -> AsyncIterator[RecordingServer]:
    found = RecordingServer()
    listener = await asyncio.start_server(found.answer, "127.0.0.1", 0)
    found.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield found


async def poll(fleet: PeerPoller, *, rounds: int = 3) -> None:
    """Let the poller run a number of cycles."""
    asked = asyncio.Semaphore(0)
    async with running(fleet.work(asked.release)), asyncio.timeout(30):
        for _ in range(rounds):
            await asked.acquire()


async def test_a_peer_without_a_key_is_not_contacted(tmp_path: Path) -> None:
    database = await open_sqlite(tmp_path / "holdfast.db")
    async with recording_server() as other:
        fleet = PeerPoller([f"http://127.0.0.1:{other.port}"], FakeClock(), database, seconds=0.01)
        await poll(fleet)

    [peer] = fleet.peers.values()
    assert other.heard == []
    assert peer.state == "offline"
    assert "key" in peer.error
    await database.close()


async def test_a_peer_is_polled_with_its_own_key(tmp_path: Path) -> None:
    database = await open_sqlite(tmp_path / "holdfast.db")
    async with recording_server() as other:
        fleet = PeerPoller([f"http://:hfk-their-own-key@127.0.0.1:{other.port}"], FakeClock(), database, seconds=0.01)
        await poll(fleet)

    assert other.heard
    assert all("Bearer hfk-their-own-key\r\n" in one for one in other.heard)
    await database.close()


@pytest.mark.parametrize(
    ("url", "allow_http", "is_asked"),
    [
        ("http://:hfk-k@build.example:8420", False, False),
        ("http://:hfk-k@build.example:8420", True, True),
        ("https://:hfk-k@build.example", False, True),
        ("http://:hfk-k@127.0.0.1:8420", False, True),
        ("http://:hfk-k@[::1]:8420", False, True),
        ("http://:hfk-k@localhost:8420", False, True),
        ("http://:hfk-k@localhost.example:8420", False, False),
        ("https://build.example", True, False),
    ],
)
async def test_a_key_is_sent_unencrypted_only_to_this_machine_or_if_allowed(
    tmp_path: Path, url: str, allow_http: bool, is_asked: bool
) -> None:
    database = await open_sqlite(tmp_path / "holdfast.db")
    fleet = PeerPoller([url], FakeClock(), database, allow_http=allow_http)

    [peer] = fleet.peers.values()

    assert (peer.error == "") is is_asked
    assert "hfk-k" not in peer.error + peer.url + peer.name
    await database.close()
