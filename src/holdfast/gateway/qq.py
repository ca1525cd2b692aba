"""QQ, through qq-botpy: private and group messages come by its gateway, replies go by its HTTP API.

QQ brings a message again when it is not sure; it has the same id. When the connection is broken, or this program is restarted,
it goes on from the last event that was kept. A reply has a number within the message it answers, and QQ refuses
the same number twice: so it recognises what is sent again.
"""

import asyncio
import json
import logging
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from botpy import Intents
from botpy.api import BotAPI
from botpy.errors import AuthenticationFailedError, ForbiddenError, NotFoundError, SequenceNumberError, ServerError
from botpy.gateway import BotWebSocket
from botpy.http import BotHttp, Route
from botpy.robot import Token

from holdfast.engine.together import first_of, stop
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
from holdfast.model.errors import Unavailable
from holdfast.model.times import SECOND, Clock

NETWORK = (aiohttp.ClientError, TimeoutError, OSError)
KINDS = ("C2C_MESSAGE_CREATE", "GROUP_AT_MESSAGE_CREATE")
SEND_SECONDS = 15
REPEATED = ("去重", "duplicate")
"""What QQ says of a number that was used."""
TOO_LATE = ("过期", "expired", "msg_id")
"""What it says of a message that can no longer be answered; it can still be written to."""
GROUP = "group "
Json = dict[str, Any]


class OurToken(Token):  # type: ignore[misc] # the library has no types
    """The library's token, asked for where the settings say and by our clock."""

    def __init__(self, app_id: str, secret: str, url: str, clock: Clock) -> None:
        super().__init__(app_id, secret)
        self._url = url
        self._clock = clock

    async def update_access_token(self) -> None:
        asked = {"appId": self.app_id, "clientSecret": self.secret}
        limit = aiohttp.ClientTimeout(total=20)
        async with aiohttp.ClientSession(timeout=limit) as session, session.post(self._url, json=asked) as answer:
            found = await answer.json(content_type=None)
        if not isinstance(found, dict) or "access_token" not in found:
            raise Unavailable("QQ gives no token: are the app id and the secret right?")
        self.access_token = found["access_token"]
        self.expires_in = int(found["expires_in"]) + self._clock.now() // SECOND


logging.getLogger("botpy").setLevel(logging.WARNING)  # it talks a lot


class Http(BotHttp):  # type: ignore[misc] # the library has no types
    """The library's client, which checks whom it talks to."""

    async def check_session(self) -> None:
        known: aiohttp.ClientSession | None = self._session  # type: ignore[has-type] # the library has no types
        if known is None or known.closed:
            self._session = aiohttp.ClientSession()
        await super().check_session()


class Session(BotWebSocket):  # type: ignore[misc] # the library has no types
    """The library's gateway connection. It hands on every event as it came, and checks whom it talks to."""

    def __init__(self, session: Json, company: "_Company", note: Callable[[str], None]) -> None:
        super().__init__(session, company)
        self._note = note

    async def ws_connect(self) -> None:
        async with aiohttp.ClientSession() as client, client.ws_connect(self._session["url"], heartbeat=30) as socket:
            async for message in socket:
                if message.type == aiohttp.WSMsgType.TEXT:
                    await self.on_message(socket, message.data)
            if not self._can_reconnect:
                self._session["session_id"], self._session["last_seq"] = "", 0

    async def on_message(self, ws: object, message: str) -> None:
        try:
            given = json.loads(message)
            if not isinstance(given, dict):
                raise TypeError("an event is an object")  # it goes the way of all odd ones
            await super().on_message(ws, message)
        except (ValueError, KeyError, TypeError):
            self._note(message)
            return
        if given.get("t") in (*KINDS, "READY", "RESUMED"):
            self._note(message)
        if not self._can_reconnect:
            await self._conn.close()


class _Company:
    """What the library's connection wants around it: somebody who parses events, which we do ourselves, and a place for tasks."""

    def __init__(self) -> None:
        self.parser = _Ignoring()
        self.loop = self
        self.tasks: list[asyncio.Task[None]] = []

    def create_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self.tasks.append(task)
        return task

    def add(self, session: Json) -> None:
        """The library would begin the session anew; the gateway does."""


class _Ignoring(dict[str, Callable[[Json], None]]):
    def __missing__(self, event: str) -> Callable[[Json], None]:
        return lambda message: None


class QQ:
    def __init__(self, http: BotHttp, token: Token) -> None:
        self._http = http
        self._api = BotAPI(http)
        self._token = token
        self.limits = Limits(text=2000, keyed=True)

    async def receive(self, inlet: Inlet, position: str) -> None:
        known = json.loads(position or "{}")
        arrived: asyncio.Queue[str] = asyncio.Queue()
        company = _Company()
        try:
            place = await self._api.get_ws_url()
            if not isinstance(place, dict):
                raise Unavailable("QQ does not say where to connect")
            session: Json = {
                "session_id": known.get("session_id", ""),
                "last_seq": known.get("seq", 0),
                "intent": Intents(public_messages=True).value,
                "token": self._token,
                "url": place["url"],
                "shards": {"shard_id": 0, "shard_count": 1},
            }
            socket = Session(session, company, arrived.put_nowait)
            try:
                await first_of(self._pass_on(inlet, session, arrived), socket.ws_connect())
            finally:
                await stop(*company.tasks)
            if not session["session_id"]:
                await inlet.take([], "{}")
        except (RuntimeError, *NETWORK) as e:
            raise Unavailable(f"QQ does not answer: {reason(e)}") from e
        raise Unavailable("QQ has closed the connection")

    async def _pass_on(self, inlet: Inlet, session: Json, arrived: "asyncio.Queue[str]") -> None:
        """Keep what comes, together with the place to go on from."""
        while True:
            raw = await arrived.get()
            kind, number = _place(raw)
            if kind in ("READY", "RESUMED"):
                await inlet.connected()
            position = {"session_id": session["session_id"], "seq": number or session["last_seq"]}
            await inlet.take([raw] if kind not in ("READY", "RESUMED") else [], json.dumps(position))

    def read(self, payload: str) -> Incoming:
        given = json.loads(payload)
        message, group = given["d"], given["t"] == "GROUP_AT_MESSAGE_CREATE"
        author = message["author"]
        person = str(author.get("member_openid") or author.get("user_openid") or author["id"])
        return Incoming(
            chat=f"{GROUP}{message['group_openid']}" if group else person,
            message=str(message["id"]),
            person=person,
            text=str(message.get("content", "")).strip(),
            attachments=web.attachments(message.get("attachments")),
            private=not group,
        )

    async def send(self, message: Outgoing) -> Fate:
        text = message.text if message.file is None else f"{message.text} (files cannot be sent here)"
        number = zlib.crc32(message.key.encode()) & 0x7FFFFFFF
        fate = await self._post(message.chat, text, message.reply_to or None, number)
        if isinstance(fate, Never) and message.reply_to and any(word in fate.reason for word in TOO_LATE):
            return await self._post(message.chat, text, None, number)
        return fate

    async def _post(self, chat: str, text: str, reply_to: str | None, number: int) -> Fate:
        given: Json = {"msg_type": 0, "content": text, "msg_id": reply_to, "msg_seq": number}
        try:
            if chat.startswith(GROUP):
                answer = await self._api.post_group_message(chat.removeprefix(GROUP), **given)
            else:
                answer = await self._api.post_c2c_message(chat, **given)
        except RuntimeError as e:
            return _fate(e)
        except aiohttp.ClientConnectorError as e:
            return Later(reason(e), everywhere=True)
        except (Unavailable, *NETWORK) as e:
            return Unsure(reason(e))
        if not isinstance(answer, dict):  # the library says nothing of a time limit that was reached
            return Unsure("QQ did not answer in time")
        return Sent(str(answer.get("id", "")))

    async def edit(self, chat: str, remote: str, text: str) -> Fate:
        return Never("QQ's messages cannot be changed")

    async def typing(self, chat: str) -> None:
        """QQ shows nobody that a program is typing."""

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        await web.fetch(_address(attachment.ref), target, max_bytes)


def _place(raw: str) -> tuple[str, int]:
    """The kind and the number of an event; nothing of what is no event."""
    try:
        given = json.loads(raw)
        return str(given.get("t", "")), int(given.get("s") or 0)
    except (ValueError, TypeError, AttributeError):
        return "", 0


def _address(url: str) -> str:
    return url if urlsplit(url).scheme else f"https://{url.lstrip('/')}"


def _fate(error: RuntimeError) -> Fate:
    """What a refusal means; the library tells it by the class of its error."""
    said = reason(error)
    if any(word in said for word in REPEATED):
        return Sent("")
    match error:
        case SequenceNumberError():
            return Later(said, 5.0)
        case AuthenticationFailedError():
            return Later(said, everywhere=True)
        case ForbiddenError() | NotFoundError():
            return Never(said)
        case ServerError() if any(word in said for word in TOO_LATE):
            return Never(said)
    return Unsure(said)


@asynccontextmanager
async def connect(options: Options, clock: Clock) -> AsyncIterator[Platform]:
    url = urlsplit(options.text("api_url", "https://api.sgroup.qq.com"))
    sandbox = options.flag("sandbox", default=False)
    Route.SCHEME = url.scheme
    if not sandbox:
        Route.DOMAIN = url.netloc
    token = OurToken(
        options.text("app_id"),
        options.text("secret"),
        options.text("token_url", "https://bots.qq.com/app/getAppAccessToken"),
        clock,
    )
    http = Http(timeout=SEND_SECONDS, is_sandbox=sandbox)
    try:
        await _log_in(http, token)
        yield QQ(http, token)
    finally:
        await http.close()


async def _log_in(http: BotHttp, token: Token) -> None:
    try:
        who = await http.login(token)
    except (RuntimeError, *NETWORK) as e:
        raise Unavailable(f"QQ does not answer: {reason(e)}") from e
    if not isinstance(who, dict):
        raise Unavailable("QQ does not say who we are")
