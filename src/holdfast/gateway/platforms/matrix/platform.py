"""Matrix, through matrix-nio: sync, send with transaction ids, edits, typing, files, encrypted rooms.

This module parses the sync response itself, so that one malformed event cannot hide the others. The sync token is stored
with the events. Transaction ids let the server recognise duplicates, also of encrypted messages.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import msgspec
from nio import Api, AsyncClient, ErrorResponse, JoinError, RoomSendResponse

from holdfast.gateway.platforms.matrix import files
from holdfast.gateway.platforms.matrix.homeserver import NETWORK, Homeserver, Json, ServerRefusal
from holdfast.gateway.platforms.matrix.inbound import InboundDecryption, RoomEvent
from holdfast.gateway.platforms.matrix.parsing import parse_payload
from holdfast.gateway.platforms.matrix.rooms import find_changes, is_encrypted_on_server, is_encryption_event
from holdfast.gateway.port import (
    Attachment,
    DeliveryResult,
    DeliveryUnknown,
    InboundPort,
    Incoming,
    Outgoing,
    PlatformLimits,
    Rejected,
    RetryLater,
    Sent,
    describe_error,
)
from holdfast.gateway.split import utf8_length
from holdfast.model.errors import Unavailable
from holdfast.safe_fetch import SafeFetcher

if TYPE_CHECKING:
    from holdfast.gateway.platforms.matrix.encryption import RoomEncryption

SYNC_SECONDS = 30
PAGE_SIZE = 100
EVENT_TYPES = ("m.room.message", "m.sticker", "m.room.encrypted", "m.room.encryption")
LOST_LOGIN = ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN")
FILTER = {
    "room": {"timeline": {"limit": PAGE_SIZE}, "ephemeral": {"types": []}, "account_data": {"types": []}},
    "presence": {"types": []},
    "account_data": {"types": []},
}


class MatrixEncryption(msgspec.Struct, frozen=True):
    """Encryption for both directions."""

    rooms: "RoomEncryption"
    inbound: InboundDecryption


class Matrix:
    """`encryption` is None if it is off or not installed; then nothing is sent to encrypted rooms."""

    def __init__(
        self,
        client: AsyncClient,
        server: Homeserver,
        fetcher: SafeFetcher,
        encryption: MatrixEncryption | None = None,
    ) -> None:
        self._client = client
        self._server = server
        self._fetcher = fetcher
        self.encryption = encryption
        self._me = client.user_id
        self._member_counts: dict[str, int] = {}
        """The number of members of each known room."""
        self._plain_rooms: set[str] = set()
        """Rooms that the server said are not encrypted."""
        # The server rejects events above 64 KB. Base64 takes a third of that, and an edit has the text twice.
        self.limits = PlatformLimits(text=20_000, measure=utf8_length, keyed=True, edits=True, typing_seconds=20.0)

    async def receive(self, intake: InboundPort, position: str) -> None:
        wait = 0  # the first sync only checks that the server responds
        while True:
            synced = await self._sync(position, wait)
            wait = SYNC_SECONDS
            await intake.report_connected()
            await self._join_invited(intake, synced)
            try:
                payloads = await self._read_rooms(synced, position)
            except ServerRefusal as e:
                raise Unavailable(f"the server refuses a request: {e}") from e
            await intake.take(payloads, synced["next_batch"])
            if self.encryption is not None:
                await self.encryption.inbound.forget_late()
            position = synced["next_batch"]

    async def _join_invited(self, intake: InboundPort, synced: Json) -> None:
        for room_id in synced.get("rooms", {}).get("invite", {}):
            joined = await self._client.join(room_id)
            if isinstance(joined, JoinError):
                await intake.report_down(f"cannot join {room_id}: {joined.message}")

    async def _read_rooms(self, synced: Json, position: str) -> list[str]:
        """The messages of a sync. The agent does not get those from before the first sync of this account."""
        members, encrypted = find_changes(synced)
        self._plain_rooms -= encrypted
        for room_id in members:
            self._member_counts.pop(room_id, None)  # most servers do not send the new number
        before: frozenset[str] = frozenset()
        if self.encryption is not None:
            before = self.encryption.rooms.encrypted_rooms
            await self.encryption.rooms.absorb(synced)
        payloads: list[str] = []
        for room_id, room in synced.get("rooms", {}).get("join", {}).items() if position else ():
            payloads += await self._events(room_id, room, position, before)
        if self.encryption is not None:
            payloads += [await self._payload(one) for one in await self.encryption.inbound.open_late()]
            await self.encryption.inbound.save()
        return payloads

    async def _sync(self, position: str, wait: int) -> Json:
        method, path = Api.sync("", since=position or None, timeout=wait * 1000, filter=FILTER)
        try:
            response = await self._server.request(method, path, seconds=SYNC_SECONDS + 15)
        except ServerRefusal as e:
            raise Unavailable(f"the server refuses a sync: {e}") from e
        if "next_batch" not in response:
            raise Unavailable(f"the server answered a sync with {str(response)[:200]}")
        return response

    async def _events(self, room_id: str, room: Json, position: str, before: frozenset[str]) -> list[str]:
        """The new messages of a room, oldest first; if the server truncated the list, fetch the rest."""
        count = room.get("summary", {}).get("m.joined_member_count")
        if isinstance(count, int):
            self._member_counts[room_id] = count
        timeline = room.get("timeline", {})
        events = timeline.get("events", [])
        if timeline.get("limited") and not self._since_invited(events):
            events = await self._fetch_missed(room_id, timeline.get("prev_batch", ""), position) + events
        events = self._since_invited(events) or events
        messages = [event for event in events if not isinstance(event, dict) or event.get("type") in EVENT_TYPES]
        opened = [RoomEvent(room_id, event) for event in messages]
        if self.encryption is not None:
            opened = await self.encryption.inbound.open_all(room_id, messages, self._me, before)
        return [await self._payload(one) for one in opened if not is_encryption_event(one.event)]

    async def _payload(self, one: RoomEvent) -> str:
        people = await self._count_members(one.room)
        more = {"unreadable": one.unreadable} if one.unreadable else {}
        return json.dumps({"room": one.room, "people": people, "me": self._me, "event": one.event, **more})

    def _since_invited(self, events: list[Json]) -> list[Json]:
        """The events from our invitation on; none if it is not among these events."""
        for index in reversed(range(len(events))):
            event = events[index]
            ours = isinstance(event, dict) and event.get("state_key") == self._me
            if ours and event.get("content", {}).get("membership") == "invite":
                return events[index:]
        return []

    async def _fetch_missed(self, room_id: str, start: str, end: str) -> list[Json]:
        """Events between two sync tokens of a room, oldest first."""
        found: list[Json] = []
        while start:
            method, path = Api.room_messages("", room_id, start, end, limit=PAGE_SIZE)
            page = await self._server.request(method, path)
            chunk = page.get("chunk", [])
            found += chunk
            start = page.get("end", "") if chunk and not self._since_invited(chunk) else ""
        return found[::-1]

    async def _count_members(self, room_id: str) -> int:
        """The number of members; three, as in a group, if the server does not say."""
        if room_id not in self._member_counts:
            try:
                found = await self._server.get("rooms", room_id, "joined_members")
            except ServerRefusal:
                return 3
            self._member_counts[room_id] = len(found.get("joined", ()))
        return self._member_counts[room_id]

    def read(self, payload: str) -> Incoming:
        return parse_payload(payload)

    async def send(self, message: Outgoing) -> DeliveryResult:
        room_id, _, thread = message.chat.partition("/")
        content: Json = {"msgtype": "m.text", "body": message.text}
        if message.file is not None:
            uploaded = await self._upload(room_id, message.file)
            if not isinstance(uploaded, dict):
                return uploaded
            content = uploaded
        if thread:
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": thread}
        return await self._put(room_id, content, message.key)

    async def _put(self, room_id: str, content: Json, key: str | None) -> DeliveryResult:
        kind = "m.room.message"
        try:
            if await self._is_encrypted(room_id):
                if self.encryption is None:
                    return Rejected("the room is encrypted, and encryption is off or not installed")
                kind, content = "m.room.encrypted", await self.encryption.rooms.encrypt(room_id, kind, content)
        except (Unavailable, ServerRefusal) as e:
            return _result_of_preparation(e)
        try:
            answer = await self._client.room_send(room_id, kind, content, tx_id=key)
        except aiohttp.ClientConnectorError as e:
            return RetryLater(describe_error(e), everywhere=True)
        except NETWORK as e:
            return DeliveryUnknown(describe_error(e))
        return Sent(answer.event_id) if isinstance(answer, RoomSendResponse) else _delivery_result(answer)

    async def _is_encrypted(self, room_id: str) -> bool:
        """Whether messages to the room must be encrypted. Raises Unavailable or ServerRefusal."""
        if self.encryption is not None and self.encryption.rooms.was_encrypted(room_id):
            return True
        if room_id in self._plain_rooms:
            return False
        if not await is_encrypted_on_server(self._server, room_id):
            self._plain_rooms.add(room_id)
            return False
        if self.encryption is not None:
            await self.encryption.rooms.note_encrypted(room_id)
        return True

    async def edit(self, chat: str, remote: str, text: str) -> DeliveryResult:
        new = {"msgtype": "m.text", "body": text}
        relates = {"rel_type": "m.replace", "event_id": remote}
        content = {"msgtype": "m.text", "body": f"* {text}", "m.new_content": new, "m.relates_to": relates}
        result = await self._put(chat.partition("/")[0], content, None)
        return Sent(remote) if isinstance(result, Sent) else result

    async def typing(self, chat: str) -> None:
        try:
            await self._client.room_typing(chat.partition("/")[0], timeout=30_000)
        except NETWORK:
            pass

    async def _upload(self, room_id: str, path: Path) -> Json | DeliveryResult:
        try:
            encrypted = await self._is_encrypted(room_id)
            answer = await files.upload(self._client, path, encrypted=encrypted)
        except (Unavailable, ServerRefusal) as e:
            return _result_of_preparation(e)
        except NETWORK as e:
            return RetryLater(describe_error(e))
        return answer if isinstance(answer, dict) else _delivery_result(answer)

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        await files.download(self._client, self._fetcher, attachment, target, max_bytes)


def _result_of_preparation(error: Unavailable | ServerRefusal) -> DeliveryResult:
    """The delivery result of a failure before the message was handed over: it has certainly not arrived."""
    if isinstance(error, Unavailable):
        return RetryLater(str(error), everywhere=True)
    if error.code == "M_LIMIT_EXCEEDED":
        return RetryLater(str(error), error.retry_seconds)
    if error.code in LOST_LOGIN:
        return RetryLater(str(error), everywhere=True)
    return Rejected(str(error))


def _delivery_result(answer: ErrorResponse) -> DeliveryResult:
    """The delivery result of an error response."""
    reason = f"{answer.status_code}: {answer.message}"
    if answer.status_code == "M_LIMIT_EXCEEDED":
        return RetryLater(reason, (answer.retry_after_ms or 1000) / 1000)
    if answer.status_code in LOST_LOGIN:
        return RetryLater(reason, everywhere=True)
    if answer.status_code is None or not str(answer.status_code).startswith("M_"):
        return DeliveryUnknown(reason)
    return Rejected(reason)
