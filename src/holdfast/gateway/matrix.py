"""Matrix, through matrix-nio: sync, send with transaction ids, edits, typing, files. Rooms that are encrypted are not read.

The server's answer to a sync is read here and not by the library, so that one odd event cannot hide the others; the token
to go on from is kept together with the events. A transaction id makes the server recognise what is sent twice.
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

from holdfast.gateway import web
from holdfast.gateway.port import (
    Attachment,
    Fate,
    Incoming,
    Inlet,
    Later,
    Limits,
    Never,
    Options,
    Outgoing,
    Platform,
    Sent,
    Unsure,
    reason,
)
from holdfast.gateway.split import utf8
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import Clock

SYNC_SECONDS = 30
PAGE = 100
KINDS = ("m.room.message", "m.sticker", "m.room.encrypted")
MEDIA = ("m.image", "m.file", "m.audio", "m.video")
NETWORK = (aiohttp.ClientError, TimeoutError, OSError)
DEVICE = "HOLDFAST"
MEDIA_PATH = "/_matrix/client/v1/media/download"
FILTER = {
    "room": {"timeline": {"limit": PAGE}, "ephemeral": {"types": []}, "account_data": {"types": []}},
    "presence": {"types": []},
    "account_data": {"types": []},
}
Json = dict[str, Any]


class Matrix:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._me = client.user_id
        self._sizes: dict[str, int] = {}
        """How many people are in each room that was seen."""
        # A message of 64 KB is refused; what is around the text takes some of it.
        self.limits = Limits(text=30_000, measure=utf8, keyed=True, edits=True, typing_seconds=20.0)

    async def receive(self, inlet: Inlet, position: str) -> None:
        wait = 0  # at first we only want to know whether the server is there
        while True:
            synced = await self._sync(position, wait)
            wait = SYNC_SECONDS
            await inlet.connected()
            rooms = synced.get("rooms", {})
            for room_id in rooms.get("invite", {}):
                joined = await self._client.join(room_id)
                if isinstance(joined, JoinError):
                    await inlet.troubled(f"the invitation to {room_id} could not be followed: {joined.message}")
            payloads: list[str] = []
            # What was said before this account was first read is not for the agent.
            for room_id, room in rooms.get("join", {}).items() if position else ():
                payloads += await self._events(room_id, room, position)
            await inlet.take(payloads, synced["next_batch"])
            position = synced["next_batch"]

    async def _sync(self, position: str, wait: int) -> Json:
        token = self._client.access_token
        method, path = Api.sync(token, since=position or None, timeout=wait * 1000, filter=FILTER)
        answer = await self._get(method, path, SYNC_SECONDS + 15)
        if "next_batch" not in answer:
            raise Unavailable(f"the server answered a sync with {str(answer)[:200]}")
        return answer

    async def _get(self, method: str, path: str, seconds: float) -> Json:
        headers = {"Authorization": f"Bearer {self._client.access_token}"}
        try:
            response = await self._client.send(method, _without_token(path), headers=headers, timeout=seconds)
            answer = json.loads(await response.text())
        except (*NETWORK, ValueError) as e:
            raise Unavailable(f"the server does not answer: {reason(e)}") from e
        if not isinstance(answer, dict):
            raise Unavailable("the server's answer makes no sense")
        return answer

    async def _events(self, room_id: str, room: Json, position: str) -> list[str]:
        """What was said in a room, oldest first; where the server left something out, that is fetched."""
        count = room.get("summary", {}).get("m.joined_member_count")
        if isinstance(count, int):
            self._sizes[room_id] = count
        timeline = room.get("timeline", {})
        events = timeline.get("events", [])
        if timeline.get("limited") and not self._since_invited(events):
            events = await self._missed(room_id, timeline.get("prev_batch", ""), position) + events
        events = self._since_invited(events) or events
        said = [event for event in events if not isinstance(event, dict) or event.get("type") in KINDS]
        size = await self._size(room_id) if said else 0
        return [json.dumps({"room": room_id, "people": size, "me": self._me, "event": event}) for event in said]

    def _since_invited(self, events: list[Json]) -> list[Json]:
        """What came after we were asked into the room; nothing if that was not among these."""
        for place in reversed(range(len(events))):
            event = events[place]
            ours = isinstance(event, dict) and event.get("state_key") == self._me
            if ours and event.get("content", {}).get("membership") == "invite":
                return events[place:]
        return []

    async def _missed(self, room_id: str, start: str, end: str) -> list[Json]:
        """Events between two places of a room, oldest first."""
        found: list[Json] = []
        while start:
            method, path = Api.room_messages(self._client.access_token, room_id, start, end, limit=PAGE)
            page = await self._get(method, path, SYNC_SECONDS)
            chunk = page.get("chunk", [])
            found += chunk
            start = page.get("end", "") if chunk and not self._since_invited(chunk) else ""
        return found[::-1]

    async def _size(self, room_id: str) -> int:
        if room_id not in self._sizes:
            answer = await self._client.joined_members(room_id)
            if isinstance(answer, JoinedMembersResponse):
                self._sizes[room_id] = len(answer.members)
        return self._sizes.get(room_id, 3)

    def read(self, payload: str) -> Incoming:
        given = json.loads(payload)
        event, me = given["event"], given["me"]
        content = event["content"]
        relates = content.get("m.relates_to") or {}
        thread = relates.get("event_id", "") if relates.get("rel_type") == "m.thread" else ""
        text, files = _words(event["type"], content)
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
            ignored=_ignored(event, content, me, str(relates.get("rel_type", ""))),
        )

    async def send(self, message: Outgoing) -> Fate:
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

    async def _put(self, room_id: str, content: Json, key: str | None) -> Fate:
        try:
            answer = await self._client.room_send(room_id, "m.room.message", content, tx_id=key)
        except aiohttp.ClientConnectorError as e:
            return Later(reason(e), everywhere=True)
        except NETWORK as e:
            return Unsure(reason(e))
        return Sent(answer.event_id) if isinstance(answer, RoomSendResponse) else _fate(answer)

    async def edit(self, chat: str, remote: str, text: str) -> Fate:
        new = {"msgtype": "m.text", "body": text}
        relates = {"rel_type": "m.replace", "event_id": remote}
        content = {"msgtype": "m.text", "body": f"* {text}", "m.new_content": new, "m.relates_to": relates}
        fate = await self._put(chat.partition("/")[0], content, None)
        return Sent(remote) if isinstance(fate, Sent) else fate

    async def typing(self, chat: str) -> None:
        try:
            await self._client.room_typing(chat.partition("/")[0], timeout=30_000)
        except NETWORK:
            pass

    async def _upload(self, path: Path) -> str | Fate:
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                answer, _ = await self._client.upload(file, filename=path.name, filesize=size)
        except NETWORK as e:
            return Later(reason(e))
        return str(answer.content_uri) if isinstance(answer, UploadResponse) else _fate(answer)

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        address = urlsplit(attachment.ref)
        if address.scheme != "mxc":
            raise Unavailable(f"{attachment.ref[:100]!r} is no address of a file")
        name = f"{quote(address.netloc, safe=':')}/{quote(address.path.strip('/'), safe='')}"
        headers = {"Authorization": f"Bearer {self._client.access_token}"}
        await web.fetch(f"{self._client.homeserver}{MEDIA_PATH}/{name}", target, max_bytes, headers)


def _without_token(path: str) -> str:
    """The token goes into a header: servers refuse it in the address as well, where it would be logged."""
    address = urlsplit(path)
    query = [(name, value) for name, value in parse_qsl(address.query) if name != "access_token"]
    return urlunsplit(address._replace(query=urlencode(query)))


def _words(kind: str, content: Json) -> tuple[str, tuple[Attachment, ...]]:
    """The text of an event, and what comes with it."""
    body = str(content.get("body", ""))
    if kind == "m.sticker":
        return f"[sticker: {body}]", ()
    if content.get("msgtype") not in MEDIA or "url" not in content:
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


def _ignored(event: Json, content: Json, me: str, relation: str) -> str:
    if event["sender"] == me:
        return "our own words"
    if event["type"] == "m.room.encrypted":
        return "it is encrypted, which cannot be read here"
    if relation == "m.replace":
        return "an edit"
    if content.get("msgtype") == "m.notice":
        return "a notice of another program"
    if event["type"] == "m.room.message" and "msgtype" not in content:
        return "it was taken back"
    return ""


def _fate(answer: ErrorResponse) -> Fate:
    """What a refusal means."""
    said = f"{answer.status_code}: {answer.message}"
    if answer.status_code == "M_LIMIT_EXCEEDED":
        return Later(said, (answer.retry_after_ms or 1000) / 1000)
    if answer.status_code in ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"):
        return Later(said, everywhere=True)
    if answer.status_code is None or not str(answer.status_code).startswith("M_"):
        return Unsure(said)
    return Never(said)


@asynccontextmanager
async def connect(options: Options, clock: Clock) -> AsyncIterator[Platform]:
    config = AsyncClientConfig(max_limit_exceeded=0, max_timeouts=0, request_timeout=SYNC_SECONDS)
    homeserver, user = options.text("homeserver"), options.text("user")
    token, password = options.text("token", ""), options.text("password", "")
    if not token and not password:
        raise Invalid(f"[gateway.{options.name}] needs a token or a password")
    client = AsyncClient(homeserver, user, device_id=DEVICE, config=config)
    try:
        await _log_in(client, token, password)
        yield Matrix(client)
    finally:
        await client.close()


async def _log_in(client: AsyncClient, token: str, password: str) -> None:
    """Always as the same device: transaction ids are recognised per device."""
    try:
        if token:
            client.access_token = token
            who = await client.whoami()
            if not isinstance(who, WhoamiResponse):
                raise Unavailable(f"the server does not accept the token: {who}")
            client.user_id = who.user_id
            return
        answer = await client.login(password, device_name="Holdfast")
        if isinstance(answer, LoginError):
            raise Unavailable(f"the server does not accept the password: {answer.message}")
    except NETWORK as e:
        raise Unavailable(f"the server does not answer: {reason(e)}") from e
