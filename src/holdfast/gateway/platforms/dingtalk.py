"""DingTalk, through dingtalk-stream: receives callbacks from its stream, replies through the robot API.

A callback is acknowledged after it is stored; otherwise DingTalk sends it again. The library's own loop is not used: it
handles several callbacks at once, out of order, and cannot be stopped.
"""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus
from xml.etree import ElementTree

import websockets
from dingtalk_stream import AckMessage, CallbackMessage, ChatbotMessage, Credential, DingTalkStreamClient
from dingtalk_stream.frames import Headers

from holdfast.gateway.platforms import http
from holdfast.gateway.port import (
    Attachment,
    DeliveryResult,
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

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger(__name__)
NETWORK = (OSError, TimeoutError, websockets.WebSocketException)
OPEN_PATH = "/v1.0/gateway/connections/open"
SEND_SECONDS = 15.0
TOKEN_MARGIN_SECONDS = 300.0
GROUP = "2"
"""The conversation type of a group; anything else is a private chat."""
Json = dict[str, Any]


class DingTalk:
    def __init__(self, options: PlatformOptions, clock: Clock, client: "httpx2.AsyncClient") -> None:
        self._clock = clock
        self._client = client
        self._robot = options.text("client_id")
        self._secret = options.text("client_secret")
        self._url = options.text("open_url", "https://api.dingtalk.com").rstrip("/")
        self._files = http.make_fetcher(options, self._url)
        self._token = ""
        self._token_until = 0.0
        self.limits = PlatformLimits(text=15_000, measure=utf8_length)

    async def receive(self, intake: InboundPort, position: str) -> None:
        import httpx2

        stream = DingTalkStreamClient(Credential(self._robot, self._secret), logger)
        try:
            endpoint = await self._open_connection()
            async with websockets.connect(f"{endpoint['endpoint']}?ticket={quote_plus(endpoint['ticket'])}") as socket:
                await intake.report_connected()
                async for raw in socket:
                    await self._handle_frame(intake, socket, stream, raw if isinstance(raw, str) else raw.decode())
        except (httpx2.HTTPError, *NETWORK) as e:
            raise Unavailable(f"DingTalk does not answer: {describe_error(e)}") from e

    async def _open_connection(self) -> Json:
        """Request a WebSocket endpoint. Not through the library, which has one URL for all its clients."""
        body = {
            "clientId": self._robot,
            "clientSecret": self._secret,
            "subscriptions": [{"type": CallbackMessage.TYPE, "topic": ChatbotMessage.TOPIC}],
            "ua": "holdfast",
        }
        endpoint = _decode_object(await self._client.post(self._url + OPEN_PATH, json=body))
        if "endpoint" not in endpoint or "ticket" not in endpoint:
            raise Unavailable("DingTalk returned no endpoint; check client_id and client_secret")
        return endpoint

    async def _handle_frame(self, intake: InboundPort, socket: Any, stream: DingTalkStreamClient, raw: str) -> None:
        """Store a callback, then acknowledge it; pass any other frame to the library."""
        try:
            frame = json.loads(raw)
        except ValueError:
            await intake.take([raw])
            return
        if not isinstance(frame, dict) or frame.get("type") == CallbackMessage.TYPE:
            await intake.take([raw])
            headers = frame.get("headers") if isinstance(frame, dict) else None
            if isinstance(headers, dict) and headers.get("messageId"):
                await socket.send(json.dumps(_acknowledgement(str(headers["messageId"])).to_dict()))
            return
        stream.websocket = socket
        if await stream.route_message(frame) == DingTalkStreamClient.TAG_DISCONNECT:
            raise Unavailable("DingTalk asked for a new connection")

    def read(self, payload: str) -> Incoming:
        frame = json.loads(payload)
        data = frame["data"]
        if isinstance(data, str):
            data = _decode_callback(data)
        group = str(data.get("conversationType", "")) == GROUP
        text, files = _parse_content(data)
        person = str(data.get("senderStaffId") or data["senderId"])
        return Incoming(
            chat=f"group {data['conversationId']}" if group else person,
            message=str(data["msgId"]),
            person=person,
            name=str(data.get("senderNick", "")),
            text=text.strip(),
            attachments=files,
            private=not group,
            addressed=bool(data.get("isInAtList", True)),
        )

    async def send(self, message: Outgoing) -> DeliveryResult:
        import httpx2

        text = message.text if message.file is None else f"{message.text} (files cannot be sent here)"
        body: Json = {
            "robotCode": self._robot,
            "msgKey": "sampleText",
            "msgParam": json.dumps({"content": text}),
        }
        group = message.chat.startswith("group ")
        if group:
            body["openConversationId"] = message.chat.removeprefix("group ")
        else:
            body["userIds"] = [message.chat]
        path = "/v1.0/robot/groupMessages/send" if group else "/v1.0/robot/oToMessages/batchSend"
        try:
            token = await self._access_token()
            if not token:
                return RetryLater(
                    "DingTalk returned no access token; check client_id and client_secret", everywhere=True
                )
            response = await self._client.post(
                self._url + path, json=body, headers={"x-acs-dingtalk-access-token": token}
            )
        except httpx2.HTTPError as e:
            return http.result_of_error(e)
        return self._delivery_result(response)

    def _delivery_result(self, response: "httpx2.Response") -> DeliveryResult:
        found = _decode_object(response)
        if response.is_success:
            refused = found.get("invalidStaffIdList") or found.get("flowControlledStaffIdList")
            if refused:
                throttled = bool(found.get("flowControlledStaffIdList"))
                return (
                    RetryLater("too many messages", 60.0)
                    if throttled
                    else Rejected("DingTalk does not know that person")
                )
            return Sent(str(found.get("processQueryKey", "")))
        code = str(found.get("code", ""))
        if response.status_code == 401 or "Token" in code or "InvalidAuthentication" in code:
            self._token = ""
            return RetryLater(code or "not authorised")
        if "Throttling" in code or "QpsLimit" in code:
            return RetryLater(code, 1.0)
        return http.result_of_status(response, "")

    async def _access_token(self) -> str:
        """The access token, renewed before it expires."""
        now = self._clock.monotonic()
        if not self._token or now > self._token_until:
            body = {"appKey": self._robot, "appSecret": self._secret}
            found = _decode_object(await self._client.post(f"{self._url}/v1.0/oauth2/accessToken", json=body))
            self._token = str(found.get("accessToken", ""))
            self._token_until = now + float(found.get("expireIn", 0)) - TOKEN_MARGIN_SECONDS
        return self._token

    async def edit(self, chat: str, remote: str, text: str) -> DeliveryResult:
        return Rejected("DingTalk messages cannot be edited")

    async def typing(self, chat: str) -> None:
        """DingTalk has no typing indicator for bots."""

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        import httpx2

        body = {"downloadCode": attachment.ref, "robotCode": self._robot}
        try:
            headers = {"x-acs-dingtalk-access-token": await self._access_token()}
            url = f"{self._url}/v1.0/robot/messageFiles/download"
            found = _decode_object(await self._client.post(url, json=body, headers=headers))
        except httpx2.HTTPError as e:
            raise Unavailable(f"DingTalk did not provide the file: {describe_error(e)}") from e
        if "downloadUrl" not in found:
            raise Unavailable(f"DingTalk did not provide the file: {found.get('code', 'no URL')}")
        await self._files.save(str(found["downloadUrl"]), target, max_bytes)


def _acknowledgement(message_id: str) -> AckMessage:
    ack = AckMessage()
    ack.code = AckMessage.STATUS_OK
    ack.headers.message_id = message_id
    ack.headers.content_type = Headers.CONTENT_TYPE_APPLICATION_JSON
    ack.data = {"response": "kept"}
    return ack


def _decode_object(response: "httpx2.Response") -> Json:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _decode_callback(data: str) -> Json:
    """Decode the data of a callback: an object in a string or, for some files, a string of XML, escaped or not."""
    for _ in range(3):
        try:
            found = json.loads(data)
        except ValueError:
            return _decode_xml(data)
        if isinstance(found, dict):
            return found
        if not isinstance(found, str):
            raise Invalid("the callback data is neither an object nor a string")
        data = found
    raise Invalid("the callback data is nested too deeply")


def _decode_xml(data: str) -> Json:
    """The fields of an XML document by name. A document type is refused, so that entities cannot expand."""
    import html

    text = html.unescape(data) if data.lstrip().startswith("&lt;") else data
    if "<!DOCTYPE" in text.upper() or "<!ENTITY" in text.upper():
        raise Invalid("XML with a document type is not accepted")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 # without a document type there are no entities to expand
    except ElementTree.ParseError as e:
        raise Invalid(f"the callback data is neither JSON nor XML: {e}") from e
    found: Json = {child.tag: (child.text or "") for child in root.iter() if len(child) == 0}
    if "content" in found and "msgtype" not in found:
        found |= {"msgtype": "text", "text": {"content": found["content"]}}
    return found


def _parse_content(data: Json) -> tuple[str, tuple[Attachment, ...]]:
    """The text and the attachments of a message."""
    kind, content = str(data.get("msgtype", "text")), data.get("content")
    if isinstance(content, str) and kind != "text":
        try:
            content = json.loads(content)
        except ValueError:
            return f"[{kind}: {content}]", ()
    match kind:
        case "text":
            return str((data.get("text") or {}).get("content", "")), ()
        case "picture" | "file" | "audio" | "video" if isinstance(content, dict):
            return str(content.get("recognition", "")), tuple(_parse_file(kind, content))
        case "richText" if isinstance(content, dict):
            pieces = [piece for piece in content.get("richText") or () if isinstance(piece, dict)]
            files = [file for piece in pieces if "downloadCode" in piece for file in _parse_file("picture", piece)]
            return "".join(str(piece.get("text", "")) for piece in pieces), tuple(files)
        case _:
            return f"[{kind}]", ()


def _parse_file(kind: str, content: Json) -> list[Attachment]:
    code = content.get("downloadCode")
    media = {"picture": "image/jpeg", "audio": "audio/amr"}.get(kind, "")
    name = str(content.get("fileName") or (f"{kind}.jpg" if kind == "picture" else kind))
    return [Attachment(ref=str(code), name=name, media_type=media)] if code else []


@asynccontextmanager
async def connect(options: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
    import httpx2

    async with httpx2.AsyncClient(timeout=SEND_SECONDS) as client:
        yield DingTalk(options, clock, client)
