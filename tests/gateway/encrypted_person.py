"""A Matrix client with encryption, as matrix-nio's own client does it: the counterpart of ours."""

import asyncio
from pathlib import Path

from nio import (
    AsyncClient,
    AsyncClientConfig,
    EnableEncryptionBuilder,
    RoomEncryptedFile,
    RoomMessage,
    RoomMessageText,
    SyncResponse,
)
from nio.crypto import OlmDevice


class EncryptedPerson:
    """Creates encrypted rooms, and records what others say there."""

    def __init__(self, homeserver: str, name: str, folder: Path) -> None:
        folder.mkdir()
        config = AsyncClientConfig(request_timeout=60, encryption_enabled=True)
        self.client = AsyncClient(homeserver, name, store_path=str(folder), config=config)
        self.heard: dict[str, list[str]] = {}
        """The decrypted messages of others by room, without edits."""
        self.files: list[RoomEncryptedFile] = []
        self.readable: list[str] = []
        """Messages of others that were not encrypted."""
        self._since: str | None = None

    async def register(self) -> str:
        answer = await self.client.register(self.client.user, "a password")
        self.client.load_store()
        await self.client.keys_upload()
        return str(answer.user_id)

    async def log_in(self) -> None:
        """Use an account that exists, as another device."""
        await self.client.login("a password")
        await self.client.keys_upload()

    async def invite(self, *others: str) -> str:
        encrypted = [EnableEncryptionBuilder().as_dict()]
        answer = await self.client.room_create(invite=others, is_direct=True, initial_state=encrypted)
        return str(answer.room_id)

    async def joined(self, room_id: str, count: int = 2) -> None:
        """Wait until the room has that many members, and their devices are known."""
        async with asyncio.timeout(90):
            while len((await self.client.joined_members(room_id)).members) < count:
                await self.listen(0.5)
        await self.listen(0)

    async def say(self, room_id: str, text: str, key: str | None = None) -> str:
        content = {"msgtype": "m.text", "body": text}
        answer = await self.client.room_send(
            room_id, "m.room.message", content, tx_id=key, ignore_unverified_devices=True
        )
        return str(answer.event_id)

    async def listen(self, seconds: float) -> None:
        """Sync once."""
        filters = {"room": {"timeline": {"limit": 1000}}}
        answer = await self.client.sync(timeout=int(seconds * 1000), since=self._since, sync_filter=filters)
        assert isinstance(answer, SyncResponse), answer
        self._since = answer.next_batch
        if self.client.should_upload_keys:
            await self.client.keys_upload()
        if self.client.should_query_keys:
            await self.client.keys_query()
        for room_id, room in answer.rooms.join.items():
            for event in room.timeline.events:
                self._hear(room_id, event)

    def _hear(self, room_id: str, event: object) -> None:
        if not isinstance(event, RoomMessage) or event.sender == self.client.user_id:
            return
        if not event.decrypted:
            self.readable.append(event.event_id)
        relates = event.source.get("content", {}).get("m.relates_to") or {}
        if isinstance(event, RoomMessageText) and relates.get("rel_type") != "m.replace":
            self.heard.setdefault(room_id, []).append(event.body)
        if isinstance(event, RoomEncryptedFile):
            self.files.append(event)

    async def hear(self, room_id: str, count: int) -> list[str]:
        """Wait for that many messages of a room."""
        async with asyncio.timeout(60):
            while len(self.heard.get(room_id, ())) < count:
                await self.listen(0.5)
        return self.heard[room_id]

    async def device_of(self, user: str) -> OlmDevice:
        """The only device of somebody."""
        self.client.olm.users_for_key_query.add(user)
        await self.client.keys_query()
        [device] = self.client.device_store.active_user_devices(user)
        return device

    async def close(self) -> None:
        await self.client.close()
        self.client.store.database.close()
