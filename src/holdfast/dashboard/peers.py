"""Polls other servers for their activity. A server that does not answer is offline, with its last known state and its age.

The store keeps the last known state, so that it is available after a restart. It is saved once a minute, when a server goes
offline, and when this server stops.
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
from holdfast.safe_fetch import is_loopback
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import meta
from holdfast.supervisor import BackgroundTask, Completed, Finished, ignore_cycle
from holdfast.tasks import run_all

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger(__name__)
POLL_SECONDS = 5.0
TIMEOUT_SECONDS = 5.0
MAX_BYTES = 16 * 2**20
"""Largest response that is read: about 50,000 sessions."""
MAX_SESSIONS = 5_000
MAX_STORED_SESSIONS = 1_000
"""Sessions of a server that the store keeps: about 300 KB."""
META_PREFIX = "fleet_"
"""Prefix of the keys in the store; a digest of the server's URL follows."""


class PeerSession(msgspec.Struct, frozen=True):
    """A session in the `/v1/activity` of another server. Missing fields are empty."""

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


class PeerActivity(msgspec.Struct, frozen=True):
    at: str = ""
    workers: list[PeerWorker] = []
    sessions: list[PeerSession] = []
    counts: dict[str, Any] = {}


class Peer(msgspec.Struct, frozen=True):
    """The known state of a server. `contacted_at` is when it last answered; `fresh` whether that was since this server started."""

    name: str
    url: str
    activity: PeerActivity | None = None
    contacted_at: int | None = None
    error: str = ""
    fresh: bool = False

    @property
    def state(self) -> str:
        if self.error:
            return "offline"
        return "online" if self.fresh else "unknown"


class StoredPeer(msgspec.Struct, frozen=True):
    """The last known state of a server, in the store."""

    at: int
    activity: PeerActivity


class PeerPoller:
    """Polls the servers of `[fleet] peers`. The password in a URL is that server's API key.

    A server without a key is not contacted: sending it our own key would give it access to this server. Keys are sent over
    plain HTTP only to this machine, unless `allow_http` is set.
    """

    def __init__(
        self,
        urls: Sequence[str],
        clock: Clock,
        database: Database,
        *,
        allow_http: bool = False,
        seconds: float = POLL_SECONDS,
    ) -> None:
        self._clock = clock
        self._database = database
        self._saved_at: dict[str, int] = {}
        self._seconds = seconds
        self._keys = {_without_password(url): urlsplit(url).password or "" for url in urls}
        self._problems = {
            url: problem
            for url, key in self._keys.items()
            if (problem := _config_problem(url, key, allow_http=allow_http))
        }
        self.peers = {url: Peer(urlsplit(url).netloc, url, error=self._problems.get(url, "")) for url in self._keys}

    def as_task(self) -> BackgroundTask:
        return BackgroundTask(self.work, self._seconds)

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Poll all servers periodically, until cancelled. Raises Finished if there are none; other errors escape."""
        if not self.peers:
            raise Finished("no peers are configured")
        import httpx2

        for url, problem in self._problems.items():
            logger.warning("peer %s is not polled: %s", url, problem)
        try:
            await self._load()
            async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, follow_redirects=False) as client:
                while True:
                    await run_all(*(self._poll_peer(client, url) for url in self.peers if url not in self._problems))
                    await self._save(MINUTE)
                    completed()
                    await asyncio.sleep(self._seconds)
        finally:
            await self._save(0)

    async def _load(self) -> None:
        """Load the states that were stored before this server started."""
        try:
            loaded = await self._database.read(_load_peers, list(self.peers))
        except HoldfastError as e:
            logger.warning("cannot load the stored state of peers: %s", e)
            return
        for url, stored in loaded.items():
            self.peers[url] = msgspec.structs.replace(self.peers[url], activity=stored.activity, contacted_at=stored.at)

    async def _save(self, min_age: int) -> None:
        """Store the state of each server that was last stored more than `min_age` ago or is now offline."""
        for url, peer in self.peers.items():
            if not peer.fresh or peer.activity is None or peer.contacted_at is None:
                continue
            behind = peer.contacted_at - self._saved_at.get(url, 0)
            if behind > min_age or (behind and peer.error):
                kept = msgspec.structs.replace(peer.activity, sessions=peer.activity.sessions[:MAX_STORED_SESSIONS])
                try:
                    await self._database.write(_save_peer, url, StoredPeer(peer.contacted_at, kept))
                except HoldfastError as e:  # the next cycle tries again
                    logger.warning("cannot store the state of peer %s: %s", url, e)
                    return
                self._saved_at[url] = peer.contacted_at

    async def _poll_peer(self, client: "httpx2.AsyncClient", url: str) -> None:
        import httpx2

        before = self.peers[url]
        try:
            activity = await self._fetch(client, url)
        except (httpx2.HTTPError, msgspec.MsgspecError, UnicodeError, TimeoutError, _BadResponse) as e:
            error = str(e) or type(e).__name__
            if not before.error:
                logger.warning("peer %s is offline: %s", url, error)
            self.peers[url] = msgspec.structs.replace(before, error=error[:300])
            return
        self.peers[url] = Peer(before.name, url, activity, self._clock.now(), fresh=True)

    async def _fetch(self, client: "httpx2.AsyncClient", url: str) -> PeerActivity:
        headers = {"authorization": f"Bearer {self._keys[url]}"}
        body = bytearray()
        async with (
            asyncio.timeout(2 * TIMEOUT_SECONDS),
            client.stream("GET", f"{url}/v1/activity", headers=headers) as response,
        ):
            if response.status_code != 200:
                raise _BadResponse(f"the server returned status {response.status_code}")
            async with aclosing(response.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > MAX_BYTES:
                        raise _BadResponse(f"the response exceeds {MAX_BYTES:,} bytes")
        found = msgspec.json.decode(bytes(body), type=PeerActivity)
        return msgspec.structs.replace(found, sessions=found.sessions[:MAX_SESSIONS])


def _meta_key(url: str) -> str:
    return META_PREFIX + hashlib.sha256(url.encode()).hexdigest()[:16]


def _save_peer(tx: Transaction, url: str, state: StoredPeer) -> None:
    meta.put(tx, _meta_key(url), msgspec.json.encode(state).decode())


def _load_peers(tx: Transaction, urls: Sequence[str]) -> dict[str, StoredPeer]:
    found: dict[str, StoredPeer] = {}
    for url in urls:
        try:
            found[url] = msgspec.json.decode(meta.get(tx, _meta_key(url)) or "", type=StoredPeer)
        except msgspec.MsgspecError:  # nothing is stored, or another release wrote it
            continue
    return found


def _config_problem(url: str, key: str, *, allow_http: bool) -> str:
    """Why a server cannot be polled; empty if it can."""
    if not key:
        return "no API key: add it as the password of the address in [fleet] peers, such as https://:KEY@host"
    if urlsplit(url).scheme == "http" and not allow_http and not is_loopback(urlsplit(url).hostname or ""):
        return "the key would be sent unencrypted: use https, or set [fleet] allow_http = true"
    return ""


class _BadResponse(Exception):
    """A response that cannot be used."""


def _without_password(url: str) -> str:
    """The URL without the key and without a trailing slash."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
