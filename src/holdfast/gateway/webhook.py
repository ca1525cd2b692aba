"""The webhook bridge: any platform, by way of a small program that posts signed JSON here and takes signed JSON there.

`docs/bridge.md` describes both sides. Whoever has the secret can speak for every person of the platform.
"""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.gateway import listen, web
from holdfast.gateway.port import Attachment, Fate, Incoming, Inlet, Limits, Options, Outgoing, Platform
from holdfast.model.entry import dumps
from holdfast.model.errors import Invalid
from holdfast.model.times import SECOND, Clock

if TYPE_CHECKING:
    import httpx2

SIGNATURE = "x-holdfast-signature"
TIMESTAMP = "x-holdfast-timestamp"
SECONDS = 300
"""How old a signature may be. One that is used again is harmless: the message is recognised."""
SEND_SECONDS = 15.0
SHORTEST_SECRET = 16


class Sending(msgspec.Struct, frozen=True):
    """An attachment as a bridge names it: an address, or the content itself."""

    name: str = "file"
    url: str = ""
    data: str = ""
    media_type: str = ""
    size: int | None = None


class Payload(msgspec.Struct, frozen=True):
    """What a bridge posts."""

    chat: str
    message: str
    person: str
    name: str = ""
    text: str = ""
    private: bool = True
    addressed: bool = True
    attachments: tuple[Sending, ...] = ()
    pressed: str = ""
    about: str = ""


def sign(secret: bytes, timestamp: str, body: bytes) -> str:
    """`v1=` and the HMAC-SHA256 of the timestamp, a full stop and the body."""
    return "v1=" + hmac.new(secret, timestamp.encode("ascii", "replace") + b"." + body, hashlib.sha256).hexdigest()


def is_signed(secret: bytes, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    timestamp, given = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
    fresh = timestamp.isascii() and timestamp.isdecimal() and abs(now - int(timestamp)) <= SECONDS
    return hmac.compare_digest(given.encode(), sign(secret, timestamp, body).encode()) and fresh


class Webhook:
    def __init__(self, options: Options, clock: Clock, client: "httpx2.AsyncClient") -> None:
        self._clock = clock
        self._where = listen.address(options)
        self._url = options.text("url")
        self._secret = options.text("secret").encode()
        if len(self._secret) < SHORTEST_SECRET:
            raise Invalid(f"the secret of a bridge needs at least {SHORTEST_SECRET} characters")
        self._client = client
        self.limits = Limits(
            text=int(options.number("max_text", 4000)),
            keyed=options.flag("keyed", default=True),
            edits=options.flag("edits", default=False),
            typing_seconds=5.0 if options.flag("typing", default=False) else None,
        )

    async def receive(self, inlet: Inlet, position: str) -> None:
        async def answer(headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
            if not is_signed(self._secret, headers, body, self._now()):
                return 401, b'{"error":"the signature is missing, wrong or too old"}'
            await inlet.take([body])
            return 200, b'{"kept":true}'

        server = asyncio.ensure_future(listen.serve(self._where, answer))
        try:
            await inlet.connected()
            await server
        finally:
            server.cancel()
            await asyncio.wait({server})

    def _now(self) -> float:
        """The wall clock, which both sides of a bridge share. It decides only whether a signature is fresh."""
        return self._clock.now() / SECOND

    def read(self, payload: str) -> Incoming:
        found = msgspec.json.decode(payload, type=Payload)
        return Incoming(
            chat=found.chat,
            message=found.message,
            person=found.person,
            name=found.name,
            text=found.text,
            private=found.private,
            addressed=found.addressed,
            attachments=tuple(
                Attachment(ref=one.url or f"data:{one.data}", name=one.name, media_type=one.media_type, size=_size(one))
                for one in found.attachments
            ),
            pressed=found.pressed,
            about=found.about,
        )

    async def send(self, message: Outgoing) -> Fate:
        body: dict[str, object] = {"type": "message", "chat": message.chat, "text": message.text, "key": message.key}
        if message.reply_to:
            body["reply_to"] = message.reply_to
        if message.choices:
            body |= {"choices": msgspec.to_builtins(message.choices), "about": message.about}
        if message.file is not None:
            data = base64.b64encode(message.file.read_bytes()).decode("ascii")
            body["file"] = {"name": message.file.name, "data": data}
        return await self._post(body, message.key)

    async def edit(self, chat: str, remote: str, text: str) -> Fate:
        return await self._post({"type": "edit", "chat": chat, "id": remote, "text": text}, remote)

    async def typing(self, chat: str) -> None:
        await self._post({"type": "typing", "chat": chat}, "")

    async def _post(self, message: dict[str, object], key: str) -> Fate:
        import httpx2

        body, timestamp = dumps(message).encode("ascii"), str(int(self._now()))
        headers = {
            "content-type": "application/json",
            "idempotency-key": key,
            TIMESTAMP: timestamp,
            SIGNATURE: sign(self._secret, timestamp, body),
        }
        try:
            answer = await self._client.post(self._url, content=body, headers=headers)
        except httpx2.HTTPError as e:
            return web.fate_of_error(e)
        return web.fate_of_status(answer, _id_in(answer) or key)

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        if attachment.ref.startswith("data:"):
            web.save(base64.b64decode(attachment.ref[5:]), target, max_bytes)
            return
        await web.download(self._client, attachment.ref, target, max_bytes)


def _size(sending: Sending) -> int | None:
    return len(sending.data) * 3 // 4 if sending.data else sending.size


def _id_in(answer: "httpx2.Response") -> str:
    """The name that the bridge gave to the message, if it did."""
    try:
        found = msgspec.json.decode(answer.content, type=dict[str, object]).get("id")
    except msgspec.MsgspecError:
        return ""
    return found if isinstance(found, str) else ""


@asynccontextmanager
async def connect(options: Options, clock: Clock) -> AsyncIterator[Platform]:
    import httpx2

    async with httpx2.AsyncClient(timeout=SEND_SECONDS) as client:
        yield Webhook(options, clock, client)
