"""The webhook bridge: connects any platform through a small program that posts and receives signed JSON.

`docs/bridge.md` describes both sides. Anyone who has the secret can write in the name of every person of the platform.
"""

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.clock import both_times
from holdfast.gateway.platforms import http, webhook_server
from holdfast.gateway.port import (
    Attachment,
    DeliveryResult,
    InboundPort,
    Incoming,
    Outgoing,
    Platform,
    PlatformLimits,
    PlatformOptions,
)
from holdfast.model.entry import dumps
from holdfast.model.errors import Invalid
from holdfast.model.text import parse_decimal
from holdfast.model.times import SECOND, Clock
from holdfast.tasks import running

if TYPE_CHECKING:
    import httpx2

SIGNATURE = "x-holdfast-signature"
TIMESTAMP = "x-holdfast-timestamp"
MAX_SIGNATURE_AGE = 300
"""The maximum age of a signature in seconds. A replayed request is harmless: the message is a known duplicate."""
SEND_SECONDS = 15.0
MIN_SECRET_CHARS = 16


class BridgeAttachment(msgspec.Struct, frozen=True):
    """An attachment that a bridge posts: a URL or the content."""

    name: str = "file"
    url: str = ""
    data: str = ""
    media_type: str = ""
    size: int | None = None


class BridgePayload(msgspec.Struct, frozen=True):
    """A message that a bridge posts."""

    chat: str
    message: str
    person: str
    name: str = ""
    text: str = ""
    private: bool = True
    addressed: bool = True
    attachments: tuple[BridgeAttachment, ...] = ()
    pressed: str = ""
    about: str = ""


def sign(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return `v1=` and the HMAC-SHA256 of the timestamp, a full stop and the body."""
    return "v1=" + hmac.new(secret, timestamp.encode("ascii", "replace") + b"." + body, hashlib.sha256).hexdigest()


def is_signed(secret: bytes, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    timestamp, given = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
    if not hmac.compare_digest(given.encode(), sign(secret, timestamp, body).encode()):
        return False
    signed_at = parse_decimal(timestamp)
    return signed_at is not None and abs(now - signed_at) <= MAX_SIGNATURE_AGE


class Webhook:
    def __init__(self, options: PlatformOptions, clock: Clock, client: "httpx2.AsyncClient") -> None:
        self._clock = clock
        self._listen_address = webhook_server.listen_address(options)
        self._url = options.text("url")
        self._secret = options.text("secret").encode()
        if len(self._secret) < MIN_SECRET_CHARS:
            raise Invalid(f"the secret of a bridge needs at least {MIN_SECRET_CHARS} characters")
        self._client = client
        self._files = http.make_fetcher(options)
        self.limits = PlatformLimits(
            text=int(options.number("max_text", 4000)),
            keyed=options.flag("keyed", default=True),
            edits=options.flag("edits", default=False),
            typing_seconds=5.0 if options.flag("typing", default=False) else None,
        )

    async def receive(self, intake: InboundPort, position: str) -> None:
        async def handle(headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
            times = both_times(self._clock)
            if not any(is_signed(self._secret, headers, body, at / SECOND) for at in times):
                return 401, b'{"error":"the signature is missing, wrong or too old"}'
            await intake.take([body])
            return 200, b'{"kept":true}'

        async with running(webhook_server.serve(self._listen_address, handle)) as (server,):
            await intake.report_connected()
            await server

    def _now(self) -> float:
        """Wall-clock time in seconds. Both sides of a bridge share it; it only decides whether a signature is too old."""
        return self._clock.now() / SECOND

    def read(self, payload: str) -> Incoming:
        found = msgspec.json.decode(payload, type=BridgePayload)
        return Incoming(
            chat=found.chat,
            message=found.message,
            person=found.person,
            name=found.name,
            text=found.text,
            private=found.private,
            addressed=found.addressed,
            attachments=tuple(
                Attachment(
                    ref=one.url or f"data:{one.data}",
                    name=one.name,
                    media_type=one.media_type,
                    size=_attachment_size(one),
                )
                for one in found.attachments
            ),
            pressed=found.pressed,
            about=found.about,
        )

    async def send(self, message: Outgoing) -> DeliveryResult:
        body: dict[str, object] = {"type": "message", "chat": message.chat, "text": message.text, "key": message.key}
        if message.reply_to:
            body["reply_to"] = message.reply_to
        if message.choices:
            body |= {"choices": msgspec.to_builtins(message.choices), "about": message.about}
        if message.literal:
            body["literal"] = True
        if message.file is not None:
            data = base64.b64encode(message.file.read_bytes()).decode("ascii")
            body["file"] = {"name": message.file.name, "data": data}
        return await self._post(body, message.key)

    async def edit(self, chat: str, remote: str, text: str) -> DeliveryResult:
        return await self._post({"type": "edit", "chat": chat, "id": remote, "text": text}, remote)

    async def typing(self, chat: str) -> None:
        await self._post({"type": "typing", "chat": chat}, "")

    async def _post(self, message: dict[str, object], key: str) -> DeliveryResult:
        import httpx2

        body, timestamp = dumps(message).encode("ascii"), str(int(self._now()))
        headers = {
            "content-type": "application/json",
            "idempotency-key": key,
            TIMESTAMP: timestamp,
            SIGNATURE: sign(self._secret, timestamp, body),
        }
        try:
            response = await self._client.post(self._url, content=body, headers=headers)
        except httpx2.HTTPError as e:
            return http.result_of_error(e)
        return http.result_of_status(response, _response_id(response) or key)

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        if attachment.ref.startswith("data:"):
            http.save_bytes(http.decode_base64(attachment.ref[5:]), target, max_bytes)
            return
        await self._files.save(attachment.ref, target, max_bytes)


def _attachment_size(attachment: BridgeAttachment) -> int | None:
    return len(attachment.data) * 3 // 4 if attachment.data else attachment.size


def _response_id(response: "httpx2.Response") -> str:
    """The id that the bridge gave to the message, if any."""
    try:
        found = msgspec.json.decode(response.content, type=dict[str, object]).get("id")
    except msgspec.MsgspecError:
        return ""
    return found if isinstance(found, str) else ""


@asynccontextmanager
async def connect(options: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
    import httpx2

    async with httpx2.AsyncClient(timeout=SEND_SECONDS) as client:
        yield Webhook(options, clock, client)
