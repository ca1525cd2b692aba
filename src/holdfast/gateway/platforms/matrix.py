"""Matrix, through matrix-nio: sync, send with transaction ids, edits, typing, files. Encrypted rooms are not supported.

This module parses the sync response itself, so that one malformed event cannot hide the others. The sync token is stored
with the events. Transaction ids let the server recognise duplicates.
"""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import aiohttp
from nio import (
    Api,
    AsyncClient,
    AsyncClientConfig,
    ErrorResponse,
    JoinedMembersResponse,
    JoinError,
    LoginError,
    RoomSendResponse,
    UploadResponse,
    WhoamiResponse,
)

from holdfast.gateway.platforms import http
from holdfast.gateway.port import (
    Attachment,
    DeliveryResult,
    DeliveryUnknown,
    InboundPort,
    Incoming,
    Outgoing,
    Platform,
    PlatformLimits,
    PlatformOptions,
    Rejected,
    RetryLater,
    Sent,
    describe_error,
)
from holdfast.gateway.split import utf8_length
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import Clock
from holdfast.safe_fetch import SafeFetcher

SYNC_SECONDS = 30
PAGE_SIZE = 100
EVENT_TYPES = ("m.room.message", "m.sticker", "m.room.encrypted")
MEDIA_TYPES = ("m.image", "m.file", "m.audio", "m.video")
NETWORK = (aiohttp.ClientError, TimeoutError, OSError)
DEVICE = "HOLDFAST"
MEDIA_PATH = "/_matrix/client/v1/media/download"
FILTER = {
    "room": {"timeline": {"limit": PAGE_SIZE}, "ephemeral": {"types": []}, "account_data": {"types": []}},
    "presence": {"types": []},
    "account_data": {"types": []},
}
Json = dict[str, Any]


class Matrix:
    def __init__(self, client: AsyncClient, files: SafeFetcher) -> None:
        self._client = client
        self._files = files
        self._me = client.user_id
        self._member_counts: dict[str, int] = {}
        """The number of members of each known room."""
        # The server rejects events above 64 KB, and the envelope takes part of that.
        self.limits = PlatformLimits(text=30_000, measure=utf8_length, keyed=True, edits=True, typing_seconds=20.0)

    async def receive(self, intake: InboundPort, position: str) -> None:
        wait = 0  # the first sync only checks that the server responds
        while True:
            synced = await self._sync(position, wait)
            wait = SYNC_SECONDS
            await intake.report_connected()
            rooms = synced.get("rooms", {})
            for room_id in rooms.get("invite", {}):
                joined = await self._client.join(room_id)
                if isinstance(joined, JoinError):
                    await intake.report_down(f"cannot join {room_id}: {joined.message}")
            payloads: list[str] = []
            # The agent does not get messages from before the first sync of this account.
            for room_id, room in rooms.get("join", {}).items() if position else ():
                payloads += await self._events(room_id, room, position)
            await intake.take(payloads, synced["next_batch"])
            position = synced["next_batch"]

    async def _sync(self, position: str, wait: int) -> Json:
        token = self._client.access_token
        method, path = Api.sync(token, since=position or None, timeout=wait * 1000, filter=FILTER)
        response = await self._get(method, path, SYNC_SECONDS + 15)
        if "next_batch" not in response:
            raise Unavailable(f"the server answered a sync with {str(response)[:200]}")
        return response

    async def _get(self, method: str, path: str, seconds: float) -> Json:
        headers = {"Authorization": f"Bearer {self._client.access_token}"}
        try:
            response = await self._client.send(method, _without_token(path), headers=headers, timeout=seconds)
            body = json.loads(await response.text())
        except (*NETWORK, ValueError) as e:
            raise Unavailable(f"the server does not answer: {describe_error(e)}") from e
        if not isinstance(body, dict):
            raise Unavailable("the server's response is not a JSON object")
        return body

    async def _events(self, room_id: str, room: Json, position: str) -> list[str]:
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
        size = await self._count_members(room_id) if messages else 0
        return [json.dumps({"room": room_id, "people": size, "me": self._me, "event": event}) for event in messages]

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
            method, path = Api.room_messages(self._client.access_token, room_id, start, end, limit=PAGE_SIZE)
            page = await self._get(method, path, SYNC_SECONDS)
            chunk = page.get("chunk", [])
            found += chunk
            start = page.get("end", "") if chunk and not self._since_invited(chunk) else ""
        return found[::-1]

    async def _count_members(self, room_id: str) -> int:
        if room_id not in self._member_counts:
            answer = await self._client.joined_members(room_id)
            if isinstance(answer, JoinedMembersResponse):
                self._member_counts[room_id] = len(answer.members)
        return self._member_counts.get(room_id, 3)

    def read(self, payload: str) -> Incoming:
        given = json.loads(payload)
        event, me = given["event"], given["me"]
        content = event["content"]
        relates = content.get("m.relates_to") or {}
        thread = relates.get("event_id", "") if relates.get("rel_type") == "m.thread" else ""
        text, files = _parse_content(event["type"], content)
        mentioned = me in (content.get("m.mentions") or {}).get("user_ids", ()) or me in text
        return Incoming(
            chat=f"{given['room']}/{thread}" if thread else given["room"],
            message=event["event_id"],
            person=event["sender"],
            name=event["sender"],
            text=text,
            attachments=files,
            private=given["people"] <= 2,
            addressed=mentioned,
            ignored=_ignore_reason(event, content, me, str(relates.get("rel_type", ""))),
        )

    async def send(self, message: Outgoing) -> DeliveryResult:
        content: Json = {"msgtype": "m.text", "body": message.text}
        if message.file is not None:
            uploaded = await self._upload(message.file)
            if not isinstance(uploaded, str):
                return uploaded
            content = {"msgtype": "m.file", "body": message.file.name, "url": uploaded}
        room_id, _, thread = message.chat.partition("/")
        if thread:
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": thread}
        return await self._put(room_id, content, message.key)

    async def _put(self, room_id: str, content: Json, key: str | None) -> DeliveryResult:
        try:
            answer = await self._client.room_send(room_id, "m.room.message", content, tx_id=key)
        except aiohttp.ClientConnectorError as e:
            return RetryLater(describe_error(e), everywhere=True)
        except NETWORK as e:
            return DeliveryUnknown(describe_error(e))
        return Sent(answer.event_id) if isinstance(answer, RoomSendResponse) else _delivery_result(answer)

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

    async def _upload(self, path: Path) -> str | DeliveryResult:
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                answer, _ = await self._client.upload(file, filename=path.name, filesize=size)
        except NETWORK as e:
            return RetryLater(describe_error(e))
        return str(answer.content_uri) if isinstance(answer, UploadResponse) else _delivery_result(answer)

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        address = urlsplit(attachment.ref)
        if address.scheme != "mxc":
            raise Unavailable(f"{attachment.ref[:100]!r} is not an mxc URL")
        name = f"{quote(address.netloc, safe=':')}/{quote(address.path.strip('/'), safe='')}"
        headers = {"Authorization": f"Bearer {self._client.access_token}"}
        await self._files.save(f"{self._client.homeserver}{MEDIA_PATH}/{name}", target, max_bytes, headers)


def _without_token(path: str) -> str:
    """Remove the access token from the URL, where servers reject it and log it; it goes into a header."""
    address = urlsplit(path)
    query = [(name, value) for name, value in parse_qsl(address.query) if name != "access_token"]
    return urlunsplit(address._replace(query=urlencode(query)))


def _parse_content(kind: str, content: Json) -> tuple[str, tuple[Attachment, ...]]:
    """The text and the attachments of an event."""
    body = str(content.get("body", ""))
    if kind == "m.sticker":
        return f"[sticker: {body}]", ()
    if content.get("msgtype") not in MEDIA_TYPES or "url" not in content:
        return body, ()
    info = content.get("info") or {}
    name, size = str(content.get("filename") or body or "file"), info.get("size")
    file = Attachment(
        ref=str(content["url"]),
        name=name,
        media_type=str(info.get("mimetype", "")),
        size=size if isinstance(size, int) else None,
    )
    return (body if body != name else ""), (file,)


def _ignore_reason(event: Json, content: Json, me: str, relation: str) -> str:
    if event["sender"] == me:
        return "our own message"
    if event["type"] == "m.room.encrypted":
        return "encrypted"
    if relation == "m.replace":
        return "an edit"
    if content.get("msgtype") == "m.notice":
        return "notice of another bot"
    if event["type"] == "m.room.message" and "msgtype" not in content:
        return "redacted"
    return ""


def _delivery_result(answer: ErrorResponse) -> DeliveryResult:
    """The delivery result of an error response."""
    reason = f"{answer.status_code}: {answer.message}"
    if answer.status_code == "M_LIMIT_EXCEEDED":
        return RetryLater(reason, (answer.retry_after_ms or 1000) / 1000)
    if answer.status_code in ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"):
        return RetryLater(reason, everywhere=True)
    if answer.status_code is None or not str(answer.status_code).startswith("M_"):
        return DeliveryUnknown(reason)
    return Rejected(reason)


@asynccontextmanager
async def connect(options: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
    config = AsyncClientConfig(max_limit_exceeded=0, max_timeouts=0, request_timeout=SYNC_SECONDS)
    homeserver, user = options.text("homeserver"), options.text("user")
    token, password = options.text("token", ""), options.text("password", "")
    if not token and not password:
        raise Invalid(f"[gateway.{options.name}] needs a token or a password")
    client = AsyncClient(homeserver, user, device_id=DEVICE, config=config)
    try:
        await _log_in(client, token, password)
        yield Matrix(client, http.make_fetcher(options, homeserver))
    finally:
        await client.close()


async def _log_in(client: AsyncClient, token: str, password: str) -> None:
    """Log in, always as the same device: servers recognise transaction ids per device."""
    try:
        if token:
            client.access_token = token
            who = await client.whoami()
            if not isinstance(who, WhoamiResponse):
                raise Unavailable(f"the server rejects the token: {who}")
            client.user_id = who.user_id
            return
        answer = await client.login(password, device_name="Holdfast")
        if isinstance(answer, LoginError):
            raise Unavailable(f"the server rejects the password: {answer.message}")
    except NETWORK as e:
        raise Unavailable(f"the server does not answer: {describe_error(e)}") from e
