"""QQ, through qq-botpy: receives private and group messages from its gateway, replies through its HTTP API.

QQ repeats a message with the same id when it is not sure that it arrived. After a reconnect or a restart, it resumes after
the last stored event. A reply carries a number within the message it answers; QQ rejects the same number twice, so
duplicates are detected.
"""

import asyncio
import json
import logging
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import aiohttp
from botpy import Intents
from botpy.api import BotAPI
from botpy.errors import AuthenticationFailedError, ForbiddenError, NotFoundError, SequenceNumberError, ServerError
from botpy.gateway import BotWebSocket
from botpy.http import BotHttp, Route
from botpy.robot import Token

from holdfast.gateway.platforms import http as web
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
from holdfast.model.errors import Unavailable
from holdfast.model.times import SECOND, Clock
from holdfast.safe_fetch import SafeFetcher
from holdfast.tasks import Tasks, run_until_first

NETWORK = (aiohttp.ClientError, TimeoutError, OSError)
EVENT_TYPES = ("C2C_MESSAGE_CREATE", "GROUP_AT_MESSAGE_CREATE")
SEND_SECONDS = 15
REPEAT_MARKERS = ("去重", "duplicate")
"""Parts of QQ's error for a number that was used before."""
EXPIRED_MARKERS = ("过期", "expired", "msg_id")
"""Parts of QQ's error for a message that can no longer be answered; the chat still accepts messages."""
GROUP_PREFIX = "group "
Json = dict[str, Any]


class QqToken(Token):  # type: ignore[misc] # the library has no types
    """The library's token, with the URL from the settings and our clock."""

    def __init__(self, app_id: str, secret: str, url: str, clock: Clock) -> None:
        super().__init__(app_id, secret)
        self._url = url
        self._clock = clock

    async def update_access_token(self) -> None:
        body = {"appId": self.app_id, "clientSecret": self.secret}
        limit = aiohttp.ClientTimeout(total=20)
        async with aiohttp.ClientSession(timeout=limit) as session, session.post(self._url, json=body) as response:
            found = await response.json(content_type=None)
        if not isinstance(found, dict) or "access_token" not in found:
            raise Unavailable("QQ returned no access token; check app_id and secret")
        self.access_token = found["access_token"]
        self.expires_in = int(found["expires_in"]) + self._clock.now() // SECOND


logging.getLogger("botpy").setLevel(logging.WARNING)  # it logs too much


class QqHttp(BotHttp):  # type: ignore[misc] # the library has no types
    """The library's client, with verified TLS certificates and one URL per bot."""

    def __init__(self, url: SplitResult, *, sandbox: bool) -> None:
        super().__init__(timeout=SEND_SECONDS, is_sandbox=sandbox)
        self._url = url

    async def request(self, route: Route, retry_time: int = 0, **more: Any) -> Any:
        route.SCHEME = self._url.scheme
        if not self.is_sandbox:
            route.DOMAIN = self._url.netloc
        return await super().request(route, retry_time, **more)

    async def check_session(self) -> None:
        known: aiohttp.ClientSession | None = self._session  # type: ignore[has-type] # the library has no types
        if known is None or known.closed:
            self._session = aiohttp.ClientSession()
        await super().check_session()


class QqGatewaySession(BotWebSocket):  # type: ignore[misc] # the library has no types
    """The library's gateway connection, with verified TLS certificates. It passes on every event unparsed."""

    def __init__(self, session: Json, state: "_QqConnectionState", on_event: Callable[[str], None]) -> None:
        super().__init__(session, state)
        self._on_event = on_event

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
                raise TypeError("an event is an object")  # handled below, like every malformed event
            await super().on_message(ws, message)
        except (ValueError, KeyError, TypeError):
            self._on_event(message)
            return
        if given.get("t") in (*EVENT_TYPES, "READY", "RESUMED"):
            self._on_event(message)
        if not self._can_reconnect:
            await self._conn.close()


class _QqConnectionState:
    """The objects that the library's connection needs: a parser, which does nothing because we parse events, and a task group."""

    def __init__(self) -> None:
        self.parser = _IgnoringParser()
        self.loop = self
        self.tasks = Tasks()
        self.create_task = self.tasks.start

    def add(self, session: Json) -> None:
        """Called to restart the session; the gateway reconnects instead."""


class _IgnoringParser(dict[str, Callable[[Json], None]]):
    def __missing__(self, event: str) -> Callable[[Json], None]:
        return lambda message: None


class QQ:
    def __init__(self, http: BotHttp, token: Token, files: SafeFetcher) -> None:
        self._http = http
        self._files = files
        self._api = BotAPI(http)
        self._token = token
        self.limits = PlatformLimits(text=2000, keyed=True)

    async def receive(self, intake: InboundPort, position: str) -> None:
        known = json.loads(position or "{}")
        events: asyncio.Queue[str] = asyncio.Queue()
        state = _QqConnectionState()
        try:
            gateway = await self._api.get_ws_url()
            if not isinstance(gateway, dict):
                raise Unavailable("QQ returned no gateway URL")
            session: Json = {
                "session_id": known.get("session_id", ""),
                "last_seq": known.get("seq", 0),
                "intent": Intents(public_messages=True).value,
                "token": self._token,
                "url": gateway["url"],
                "shards": {"shard_id": 0, "shard_count": 1},
            }
            socket = QqGatewaySession(session, state, events.put_nowait)
            try:
                await run_until_first(self._receive_events(intake, session, events), socket.ws_connect())
            finally:
                await state.tasks.close()
            if not session["session_id"]:
                await intake.take([], "{}")
        except (RuntimeError, *NETWORK) as e:
            raise Unavailable(f"QQ does not answer: {describe_error(e)}") from e
        raise Unavailable("QQ closed the connection")

    async def _receive_events(self, intake: InboundPort, session: Json, events: "asyncio.Queue[str]") -> None:
        """Store events together with the position to resume from."""
        while True:
            raw = await events.get()
            kind, number = _event_position(raw)
            if kind in ("READY", "RESUMED"):
                await intake.report_connected()
            position = {"session_id": session["session_id"], "seq": number or session["last_seq"]}
            await intake.take([raw] if kind not in ("READY", "RESUMED") else [], json.dumps(position))

    def read(self, payload: str) -> Incoming:
        given = json.loads(payload)
        message, group = given["d"], given["t"] == "GROUP_AT_MESSAGE_CREATE"
        author = message["author"]
        person = str(author.get("member_openid") or author.get("user_openid") or author["id"])
        return Incoming(
            chat=f"{GROUP_PREFIX}{message['group_openid']}" if group else person,
            message=str(message["id"]),
            person=person,
            text=str(message.get("content", "")).strip(),
            attachments=web.parse_attachments(message.get("attachments")),
            private=not group,
        )

    async def send(self, message: Outgoing) -> DeliveryResult:
        text = message.text if message.file is None else f"{message.text} (files cannot be sent here)"
        number = zlib.crc32(message.key.encode()) & 0x7FFFFFFF
        result = await self._post(message.chat, text, message.reply_to or None, number)
        if isinstance(result, Rejected) and message.reply_to and any(word in result.reason for word in EXPIRED_MARKERS):
            return await self._post(message.chat, text, None, number)
        return result

    async def _post(self, chat: str, text: str, reply_to: str | None, number: int) -> DeliveryResult:
        given: Json = {"msg_type": 0, "content": text, "msg_id": reply_to, "msg_seq": number}
        try:
            if chat.startswith(GROUP_PREFIX):
                response = await self._api.post_group_message(chat.removeprefix(GROUP_PREFIX), **given)
            else:
                response = await self._api.post_c2c_message(chat, **given)
        except RuntimeError as e:
            return _delivery_result(e)
        except aiohttp.ClientConnectorError as e:
            return RetryLater(describe_error(e), everywhere=True)
        except (Unavailable, *NETWORK) as e:
            return DeliveryUnknown(describe_error(e))
        if not isinstance(response, dict):  # the library hides a timeout
            return DeliveryUnknown("QQ did not respond in time")
        return Sent(str(response.get("id", "")))

    async def edit(self, chat: str, remote: str, text: str) -> DeliveryResult:
        return Rejected("QQ messages cannot be edited")

    async def typing(self, chat: str) -> None:
        """QQ has no typing indicator for bots."""

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        await self._files.save(_absolute_url(attachment.ref), target, max_bytes)


def _event_position(raw: str) -> tuple[str, int]:
    """The type and the number of an event; empty and 0 for anything else."""
    try:
        given = json.loads(raw)
        return str(given.get("t", "")), int(given.get("s") or 0)
    except (ValueError, TypeError, AttributeError):
        return "", 0


def _absolute_url(url: str) -> str:
    return url if urlsplit(url).scheme else f"https://{url.lstrip('/')}"


def _delivery_result(error: RuntimeError) -> DeliveryResult:
    """The delivery result of an error of the library."""
    reason = describe_error(error)
    if any(word in reason for word in REPEAT_MARKERS):
        return Sent("")
    match error:
        case SequenceNumberError():
            return RetryLater(reason, 5.0)
        case AuthenticationFailedError():
            return RetryLater(reason, everywhere=True)
        case ForbiddenError() | NotFoundError():
            return Rejected(reason)
        case ServerError() if any(word in reason for word in EXPIRED_MARKERS):
            return Rejected(reason)
    return DeliveryUnknown(reason)


@asynccontextmanager
async def connect(options: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
    url = urlsplit(options.text("api_url", "https://api.sgroup.qq.com"))
    sandbox = options.flag("sandbox", default=False)
    token = QqToken(
        options.text("app_id"),
        options.text("secret"),
        options.text("token_url", "https://bots.qq.com/app/getAppAccessToken"),
        clock,
    )
    http = QqHttp(url, sandbox=sandbox)
    try:
        await _log_in(http, token)
        yield QQ(http, token, web.make_fetcher(options, url.geturl()))
    finally:
        await http.close()


async def _log_in(http: BotHttp, token: Token) -> None:
    try:
        who = await http.login(token)
    except (RuntimeError, *NETWORK) as e:
        raise Unavailable(f"QQ does not answer: {describe_error(e)}") from e
    if not isinstance(who, dict):
        raise Unavailable("QQ returned no account data")
