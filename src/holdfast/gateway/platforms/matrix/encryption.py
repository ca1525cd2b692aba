"""End-to-end encryption of rooms: what arrives is decrypted before it is stored, what leaves is encrypted for the members.

One request for keys runs at a time, and the keys themselves are used in one thread. A room that was encrypted once counts as
encrypted for ever, whatever the server says later.
"""

import asyncio
import fcntl
import functools
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

import peewee

from holdfast.gateway.platforms.matrix import identity
from holdfast.gateway.platforms.matrix.device_keys import DeviceKeys, RoomKeyShare
from holdfast.gateway.platforms.matrix.homeserver import Homeserver, Json, make_path
from holdfast.gateway.platforms.matrix.rooms import find_changes
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import Clock

T = TypeVar("T")
LOCK_FILE = "lock"
ASK_AGAIN_SECONDS = 60
KEYS_ONLY = '{"room":{"rooms":[]},"presence":{"types":[]},"account_data":{"types":[]}}'
"""A filter for a sync that brings only what concerns the keys of this device."""


class RoomEncryption:
    """Decrypts and encrypts for one device, with the keys in a folder."""

    def __init__(self, server: Homeserver, user: str, device: str, run: "KeyThread", clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._user = user
        self._device = device
        self._run = run
        self._lock = asyncio.Lock()
        self._current: set[str] = set()
        """Users whose devices are known and have not changed since."""
        self._unanswered: dict[str, float] = {}
        """Users whose server did not answer, and when to ask again."""
        self._members: dict[str, list[str]] = {}

    async def start(self, folder: Path, password: str) -> None:
        """Make our keys known to the server, and take the messages that wait for this device."""
        async with self._lock:
            await self._refuse_foreign_device()
            await self._upload()
            await identity.sign_device(self._server, self._run.keys, folder, (self._user, self._device), password)
        waiting = await self._server.request("GET", self._sync_path(self._run.keys.token))
        await self.absorb(waiting)

    def _sync_path(self, since: str) -> str:
        query = {"filter": KEYS_ONLY, "timeout": "0"} | ({"since": since} if since else {})
        return f"{make_path('sync')}?{urlencode(query)}"

    async def _refuse_foreign_device(self) -> None:
        """Raise Invalid if the device has other keys on the server: replacing them would break the client that made them."""
        found = await self._server.post("keys", "query", body={"device_keys": {self._user: []}})
        keys = found.get("device_keys", {}).get(self._user, {}).get(self._device, {}).get("keys", {})
        known = keys.get(f"ed25519:{self._device}")
        if known is not None and known != self._run.keys.identity_keys["ed25519"]:
            raise Invalid(
                f"the device {self._device} of {self._user} has encryption keys that are not in this home: use the password "
                "instead of the token, or a new token, or set encryption = false"
            )

    async def absorb(self, synced: Json) -> None:
        """Take what a sync says about keys, members and encryption. Raises Unavailable."""
        members, encrypted = find_changes(synced)
        lists, counts = synced.get("device_lists", {}), synced.get("device_one_time_keys_count", {})
        messages, token = synced.get("to_device", {}).get("events", []), str(synced.get("next_batch", ""))
        async with self._lock:
            count = counts.get("signed_curve25519", 0) if counts else None
            await self._run(lambda keys: keys.absorb(messages, count, encrypted, token))
            for user in (*lists.get("changed", ()), *lists.get("left", ())):
                self._current.discard(user)
                self._unanswered.pop(user, None)
            for room_id in members:
                self._members.pop(room_id, None)
            if members:
                await self._run(lambda keys: keys.forget_room_keys(members))
            await self._upload()
            if self._run.keys.has_broken_sessions:
                await self._claim([])
            await self._send_outgoing()

    @property
    def encrypted_rooms(self) -> frozenset[str]:
        return frozenset(self._run.keys.encrypted_rooms)

    @property
    def fingerprint(self) -> str:
        """The public key by which people can verify our device."""
        return self._run.keys.identity_keys["ed25519"]

    def was_encrypted(self, room_id: str) -> bool:
        return room_id in self._run.keys.encrypted_rooms

    async def note_encrypted(self, room_id: str) -> None:
        await self._run(lambda keys: keys.note_encrypted(room_id))

    async def decrypt(self, room_id: str, event: Json) -> Json:
        """Raises KeyMissing, Undecryptable or Unavailable."""
        async with self._lock:
            await self._refresh([str(event.get("sender", ""))])
            return await self._run(lambda keys: keys.decrypt(room_id, event))

    async def encrypt(self, room_id: str, kind: str, content: Json) -> Json:
        """Raises Unavailable or ServerRefusal."""
        async with self._lock:
            users = await self._list_members(room_id)
            await self._refresh(users)
            await self._share(room_id, users)
            return await self._run(lambda keys: keys.encrypt(room_id, kind, content))

    async def _share(self, room_id: str, users: list[str]) -> None:
        """Give the current key of the room to the devices of these users, unless they have it."""
        if not await self._run(lambda keys: keys.must_share(room_id)):
            return
        await self._claim(users)
        shares: list[RoomKeyShare] = await self._run(lambda keys: keys.make_shares(room_id, users))
        for share in shares:
            await self._server.put("sendToDevice", "m.room.encrypted", uuid.uuid4().hex, body=share.messages)
        await self._run(lambda keys: keys.record_shared(room_id, shares))

    async def _list_members(self, room_id: str) -> list[str]:
        if room_id not in self._members:
            found = await self._server.get("rooms", room_id, "joined_members")
            self._members[room_id] = sorted(found.get("joined", {}))
        return self._members[room_id]

    async def _refresh(self, users: Iterable[str]) -> None:
        """Learn the devices of users that may have changed."""
        now = self._clock.monotonic()
        stale = {user for user in users if user and self._unanswered.get(user, 0) <= now} - self._current
        if not stale:
            return
        found = await self._server.post("keys", "query", body={"device_keys": {user: [] for user in sorted(stale)}})
        await self._run(lambda keys: keys.record_query(found))
        answered = stale & set(found.get("device_keys", ()))
        self._current |= answered
        self._unanswered |= dict.fromkeys(stale - answered, now + ASK_AGAIN_SECONDS)

    async def _claim(self, users: list[str]) -> None:
        missing = await self._run(lambda keys: keys.list_missing_sessions(users))
        if not missing:
            return
        wanted = {user: dict.fromkeys(devices, "signed_curve25519") for user, devices in missing.items()}
        found = await self._server.post("keys", "claim", body={"one_time_keys": wanted})
        await self._run(lambda keys: keys.record_claim(found))

    async def _upload(self) -> None:
        upload = await self._run(lambda keys: keys.make_upload())
        if upload is not None:
            response = await self._server.post("keys", "upload", body=upload)
            await self._run(lambda keys: keys.record_upload(response))

    async def _send_outgoing(self) -> None:
        for message in await self._run(lambda keys: keys.list_outgoing()):
            await self._server.put("sendToDevice", message.type, uuid.uuid4().hex, body=message.as_dict())
            await self._run(functools.partial(DeviceKeys.record_sent, message=message))


class KeyThread:
    """Runs what uses the keys in one thread. An error of their database ends the connection: the keys are loaded again."""

    def __init__(self, thread: ThreadPoolExecutor, keys: DeviceKeys) -> None:
        self._thread = thread
        self.keys = keys

    async def __call__(self, work: Callable[[DeviceKeys], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, self.keys)
        except peewee.PeeweeException as e:
            raise Unavailable(f"the encryption keys cannot be saved: {e}") from e


@asynccontextmanager
async def open_encryption(
    server: Homeserver, user: str, device: str, folder: Path, trusted: frozenset[str], clock: Clock
) -> AsyncIterator[RoomEncryption]:
    with _locked(folder), ThreadPoolExecutor(1, thread_name_prefix="matrix-keys") as thread:
        loop = asyncio.get_running_loop()
        try:
            keys = await loop.run_in_executor(thread, DeviceKeys, folder, user, device, trusted)
        except peewee.PeeweeException as e:
            raise Unavailable(f"the encryption keys in {folder} cannot be read: {e}") from e
        try:
            yield RoomEncryption(server, user, device, KeyThread(thread, keys), clock)
        finally:
            thread.submit(keys.close)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two processes must never use the same keys. The lock ends with its process."""
    with (folder / LOCK_FILE).open("wb") as file:
        (folder / LOCK_FILE).chmod(0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise Unavailable(f"another process uses the encryption keys in {folder}") from e
        yield
