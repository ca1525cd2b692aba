"""Other servers, asked now and then what goes on there. One that is away is shown as away, with its last state and its age.

What was heard last is kept in the store, so that it is known after a restart too: once a minute, when a server goes away, and
when we leave.
"""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from holdfast.model.errors import HoldfastError
from holdfast.model.times import MINUTE, Clock
from holdfast.store import meta
from holdfast.store.database import Database, Transaction

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger(__name__)
SECONDS = 5.0
LIMIT_SECONDS = 5.0
MAX_BYTES = 16 * 2**20
"""Of an answer: some 50,000 sessions."""
MAX_SESSIONS = 5_000
KEPT_SESSIONS = 1_000
"""Sessions of a server that are remembered over a restart: some 300 KB."""
KEPT = "fleet_"
"""Where the store keeps what was heard: behind this comes a digest of the address."""


class PeerSession(msgspec.Struct, frozen=True):
    """A session of another server, as its `/v1/activity` tells it. What it does not tell is empty."""

    id: str
    title: str | None = None
    source: str | None = ""
    state: str | None = ""
    worker_id: str | None = None
    last_heartbeat_at: str | None = None
    last_event_at: str | None = None
    doing: str | None = None


class PeerWorker(msgspec.Struct, frozen=True):
    id: str
    kind: str | None = ""
    host: str | None = ""
    state: str | None = ""


class Activity(msgspec.Struct, frozen=True):
    at: str = ""
    workers: list[PeerWorker] = []
    sessions: list[PeerSession] = []
    counts: dict[str, Any] = {}


class Peer(msgspec.Struct, frozen=True):
    """What is known of a server. `heard_at` is when it last answered; `fresh` whether that was since we started."""

    name: str
    url: str
    activity: Activity | None = None
    heard_at: int | None = None
    error: str = ""
    fresh: bool = False

    @property
    def state(self) -> str:
        if self.error:
            return "away"
        return "here" if self.fresh else "unknown"


class Heard(msgspec.Struct, frozen=True):
    """What the store keeps of a server."""

    at: int
    activity: Activity


class Fleet:
    """The servers of `[fleet] peers`. The password of an address is that server's key; without one, it is ours."""

    def __init__(
        self, urls: Sequence[str], key: str, clock: Clock, database: Database, seconds: float = SECONDS
    ) -> None:
        self._clock = clock
        self._database = database
        self._kept_at: dict[str, int] = {}
        self._seconds = seconds
        self._keys = {_bare(url): urlsplit(url).password or key for url in urls}
        self.peers = {url: Peer(urlsplit(url).netloc, url) for url in self._keys}

    async def work(self) -> None:
        """Ask them all now and then, until cancelled."""
        if not self.peers:
            return
        import httpx2

        try:
            await self._recall()
            async with httpx2.AsyncClient(timeout=LIMIT_SECONDS, follow_redirects=False) as client:
                while True:
                    await asyncio.gather(*(self._ask(client, url) for url in self.peers))
                    await self._keep(MINUTE)
                    await asyncio.sleep(self._seconds)
        finally:
            await self._keep(0)

    async def _recall(self) -> None:
        """What was heard of them before this server was started."""
        try:
            remembered = await self._database.read(_remembered, list(self.peers))
        except HoldfastError as e:
            logger.warning("what was heard of other servers cannot be read: %s", e)
            return
        for url, heard in remembered.items():
            self.peers[url] = msgspec.structs.replace(self.peers[url], activity=heard.activity, heard_at=heard.at)

    async def _keep(self, older: int) -> None:
        """Write down what was heard of each server, unless what is written is not yet so much older."""
        for url, peer in self.peers.items():
            if not peer.fresh or peer.activity is None or peer.heard_at is None:
                continue
            behind = peer.heard_at - self._kept_at.get(url, 0)
            if behind > older or (behind and peer.error):
                kept = msgspec.structs.replace(peer.activity, sessions=peer.activity.sessions[:KEPT_SESSIONS])
                try:
                    await self._database.write(_remember, url, Heard(peer.heard_at, kept))
                except HoldfastError as e:  # a store that is away is written to later
                    logger.warning("what %s told is not kept: %s", url, e)
                    return
                self._kept_at[url] = peer.heard_at

    async def _ask(self, client: "httpx2.AsyncClient", url: str) -> None:
        import httpx2

        before = self.peers[url]
        try:
            activity = await self._fetch(client, url)
        except (httpx2.HTTPError, msgspec.MsgspecError, UnicodeError, TimeoutError, _Odd) as e:
            error = str(e) or type(e).__name__
            if not before.error:
                logger.warning("the server at %s is away: %s", url, error)
            self.peers[url] = msgspec.structs.replace(before, error=error[:300])
            return
        self.peers[url] = Peer(before.name, url, activity, self._clock.now(), fresh=True)

    async def _fetch(self, client: "httpx2.AsyncClient", url: str) -> Activity:
        headers = {"authorization": f"Bearer {self._keys[url]}"}
        body = bytearray()
        async with (
            asyncio.timeout(2 * LIMIT_SECONDS),
            client.stream("GET", f"{url}/v1/activity", headers=headers) as answer,
        ):
            if answer.status_code != 200:
                raise _Odd(f"it answered with {answer.status_code}")
            async with aclosing(answer.aiter_bytes()) as pieces:
                async for piece in pieces:
                    body += piece
                    if len(body) > MAX_BYTES:
                        raise _Odd(f"its answer is over {MAX_BYTES:,} bytes")
        found = msgspec.json.decode(bytes(body), type=Activity)
        return msgspec.structs.replace(found, sessions=found.sessions[:MAX_SESSIONS])


def _place(url: str) -> str:
    return KEPT + hashlib.sha256(url.encode()).hexdigest()[:16]


def _remember(tx: Transaction, url: str, heard: Heard) -> None:
    meta.put(tx, _place(url), msgspec.json.encode(heard).decode())


def _remembered(tx: Transaction, urls: Sequence[str]) -> dict[str, Heard]:
    found: dict[str, Heard] = {}
    for url in urls:
        try:
            found[url] = msgspec.json.decode(meta.get(tx, _place(url)) or "", type=Heard)
        except msgspec.MsgspecError:  # nothing is kept, or something that another release wrote
            continue
    return found


class _Odd(Exception):
    """An answer that is none."""


def _bare(url: str) -> str:
    """The address without the key, and without a slash at its end."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
