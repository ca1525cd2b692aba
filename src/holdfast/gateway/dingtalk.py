"""DingTalk, through dingtalk-stream: callbacks come by its stream, replies go by the robot's API.

A callback is acknowledged when it is kept; DingTalk sends it again otherwise. The library's own loop is not used: it would
take several callbacks at once, out of order, and could not be stopped.
"""

import asyncio
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
    reason,
)
from holdfast.gateway.split import utf8
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import Clock

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger(__name__)
NETWORK = (OSError, TimeoutError, websockets.WebSocketException)
OPEN_PATH = "/v1.0/gateway/connections/open"
SEND_SECONDS = 15.0
TOKEN_SLACK = 300.0
GROUP = "2"
"""The conversation type of a group; anything else is a private chat."""
REFUSED = {"Forbidden", "invalidParameter", "staffId.notExisted", "robot.notExist"}
Json = dict[str, Any]


class DingTalk:
    def __init__(self, options: Options, clock: Clock, client: "httpx2.AsyncClient") -> None:
        self._clock = clock
        self._client = client
        self._robot = options.text("client_id")
        self._secret = options.text("client_secret")
        self._url = options.text("open_url", "https://api.dingtalk.com").rstrip("/")
        self._token = ""
        self._token_until = 0.0
        self.limits = Limits(text=15_000, measure=utf8)

    async def receive(self, inlet: Inlet, position: str) -> None:
        stream = DingTalkStreamClient(Credential(self._robot, self._secret), logger)
        stream.register_callback_handler(ChatbotMessage.TOPIC, _Nothing())
        try:
            place = await self._open(stream)
            async with websockets.connect(f"{place['endpoint']}?ticket={quote_plus(place['ticket'])}") as socket:
                await inlet.connected()
                async for raw in socket:
                    await self._frame(inlet, socket, stream, raw if isinstance(raw, str) else raw.decode())
        except NETWORK as e:
            raise Unavailable(f"DingTalk does not answer: {reason(e)}") from e

    async def _open(self, stream: DingTalkStreamClient) -> Json:
        """Ask where to connect; the library does so without letting go of its thread."""
        DingTalkStreamClient.OPEN_CONNECTION_API = self._url + OPEN_PATH
        place = await asyncio.to_thread(stream.open_connection)
        if not isinstance(place, dict) or "endpoint" not in place:
            raise Unavailable("DingTalk does not say where to connect: is the secret right?")
        return place

    async def _frame(self, inlet: Inlet, socket: Any, stream: DingTalkStreamClient, raw: str) -> None:
        """Keep a callback, then acknowledge it; anything else is the library's business."""
        try:
            frame = json.loads(raw)
        except ValueError:
            await inlet.take([raw])
            return
        if not isinstance(frame, dict) or frame.get("type") == CallbackMessage.TYPE:
            await inlet.take([raw])
            headers = frame.get("headers") if isinstance(frame, dict) else None
            if isinstance(headers, dict) and headers.get("messageId"):
                await socket.send(json.dumps(_acknowledgement(str(headers["messageId"])).to_dict()))
            return
        stream.websocket = socket
        if await stream.route_message(frame) == DingTalkStreamClient.TAG_DISCONNECT:
            raise Unavailable("DingTalk asks to connect anew")

    def read(self, payload: str) -> Incoming:
        frame = json.loads(payload)
        data = frame["data"]
        if isinstance(data, str):
            data = _unfolded(data)
        group = str(data.get("conversationType", "")) == GROUP
        text, files = _words(data)
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

    async def send(self, message: Outgoing) -> Fate:
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
                return Later("DingTalk gives no token: is the secret right?", everywhere=True)
            answer = await self._client.post(
                self._url + path, json=body, headers={"x-acs-dingtalk-access-token": token}
            )
        except httpx2.HTTPError as e:
            return web.fate_of_error(e)
        return self._fate(answer)

    def _fate(self, answer: "httpx2.Response") -> Fate:
        found = _json(answer)
        if answer.is_success:
            refused = found.get("invalidStaffIdList") or found.get("flowControlledStaffIdList")
            if refused:
                flow = bool(found.get("flowControlledStaffIdList"))
                return Later("too many messages", 60.0) if flow else Never("DingTalk does not know that person")
            return Sent(str(found.get("processQueryKey", "")))
        code = str(found.get("code", ""))
        if answer.status_code == 401 or "Token" in code or "InvalidAuthentication" in code:
            self._token = ""
            return Later(code or "not authorised")
        if "Throttling" in code or "QpsLimit" in code:
            return Later(code, 1.0)
        return web.fate_of_status(answer, "")

    async def _access_token(self) -> str:
        """The token that messages are sent with, renewed before it is too old."""
        now = self._clock.monotonic()
        if not self._token or now > self._token_until:
            asked = {"appKey": self._robot, "appSecret": self._secret}
            answer = await self._client.post(f"{self._url}/v1.0/oauth2/accessToken", json=asked)
            found = _json(answer)
            self._token = str(found.get("accessToken", ""))
            self._token_until = now + float(found.get("expireIn", 0)) - TOKEN_SLACK
        return self._token

    async def edit(self, chat: str, remote: str, text: str) -> Fate:
        return Never("DingTalk's messages cannot be changed")

    async def typing(self, chat: str) -> None:
        """DingTalk shows nobody that a program is typing."""

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        import httpx2

        asked = {"downloadCode": attachment.ref, "robotCode": self._robot}
        try:
            headers = {"x-acs-dingtalk-access-token": await self._access_token()}
            url = f"{self._url}/v1.0/robot/messageFiles/download"
            found = _json(await self._client.post(url, json=asked, headers=headers))
        except httpx2.HTTPError as e:
            raise Unavailable(f"DingTalk does not give it: {reason(e)}") from e
        if "downloadUrl" not in found:
            raise Unavailable(f"DingTalk does not give it: {found.get('code', 'no address')}")
        await web.download(self._client, str(found["downloadUrl"]), target, max_bytes)


class _Nothing:
    """Stands for our handler, so that the library asks for callbacks of robots."""

    dingtalk_client: object = None

    def pre_start(self) -> None:
        pass


def _acknowledgement(message_id: str) -> AckMessage:
    ack = AckMessage()
    ack.code = AckMessage.STATUS_OK
    ack.headers.message_id = message_id
    ack.headers.content_type = Headers.CONTENT_TYPE_APPLICATION_JSON
    ack.data = {"response": "kept"}
    return ack


def _json(answer: "httpx2.Response") -> Json:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _unfolded(data: str) -> Json:
    """The data of a callback: an object in a string, or for some files a string of XML, escaped or not."""
    for _ in range(3):
        try:
            found = json.loads(data)
        except ValueError:
            return _of_xml(data)
        if isinstance(found, dict):
            return found
        if not isinstance(found, str):
            raise Invalid("the data of the callback is neither an object nor a text")
        data = found
    raise Invalid("the data of the callback is folded too often")


def _of_xml(data: str) -> Json:
    """Fields of an XML document, by their names. It has no document type, so that nothing can be made to grow in it."""
    import html

    text = html.unescape(data) if data.lstrip().startswith("&lt;") else data
    if "<!DOCTYPE" in text.upper() or "<!ENTITY" in text.upper():
        raise Invalid("XML with a document type is not read")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 # without a document type there are no entities to expand
    except ElementTree.ParseError as e:
        raise Invalid(f"the data of the callback is neither JSON nor XML: {e}") from e
    found: Json = {child.tag: (child.text or "") for child in root.iter() if len(child) == 0}
    if "content" in found and "msgtype" not in found:
        found |= {"msgtype": "text", "text": {"content": found["content"]}}
    return found


def _words(data: Json) -> tuple[str, tuple[Attachment, ...]]:
    """The text of a message, and what comes with it."""
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
            return str(content.get("recognition", "")), tuple(_file(kind, content))
        case "richText" if isinstance(content, dict):
            pieces = [piece for piece in content.get("richText") or () if isinstance(piece, dict)]
            files = [file for piece in pieces if "downloadCode" in piece for file in _file("picture", piece)]
            return "".join(str(piece.get("text", "")) for piece in pieces), tuple(files)
        case _:
            return f"[{kind}]", ()


def _file(kind: str, content: Json) -> list[Attachment]:
    code = content.get("downloadCode")
    media = {"picture": "image/jpeg", "audio": "audio/amr"}.get(kind, "")
    name = str(content.get("fileName") or (f"{kind}.jpg" if kind == "picture" else kind))
    return [Attachment(ref=str(code), name=name, media_type=media)] if code else []


@asynccontextmanager
async def connect(options: Options, clock: Clock) -> AsyncIterator[Platform]:
    import httpx2

    async with httpx2.AsyncClient(timeout=SEND_SECONDS) as client:
        yield DingTalk(options, clock, client)
