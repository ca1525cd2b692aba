"""Discord's HTTP API and gateway, as their documentation describes the parts that we use. A fake, not the real service.

https://docs.discord.com/developers/events/gateway: hello, identify, ready, heartbeats, dispatches. Messages are created, changed
and listed by HTTP; with `enforce_nonce`, one with a nonce that was used within a few minutes is the one that was there.
"""

import asyncio
import contextlib
import itertools
import json
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

ME = {"id": "999", "username": "holdfast", "discriminator": "0", "avatar": None, "bot": True, "global_name": None}
PRIVATE = 0xE000
"""Where escaped characters are kept while markup is removed."""
ALICE = {"id": "1", "username": "alice", "discriminator": "0", "avatar": None, "global_name": "Alice"}
JSON = {"content-type": "application/json"}
Json = dict[str, Any]


class DiscordApi:
    def __init__(self) -> None:
        self.url = ""
        self.history: dict[str, list[Json]] = {}
        self.sent: list[Json] = []
        self.typed: list[str] = []
        self.uploads: list[tuple[str, bytes]] = []
        self.pressed: list[str] = []
        self.problems: list[tuple[int, Json] | str] = []
        self.files: dict[str, bytes] = {}
        self._nonces: dict[str, Json] = {}
        self._sockets: dict[web.WebSocketResponse, Any] = {}
        self._numbers = itertools.count(1000)
        self._sequence = itertools.count(1)

    # Actions of people.

    async def say(self, text: str, channel: str = "70", **more: Any) -> Json:
        message = self._message(channel, ALICE, text, **more)
        await self.put("MESSAGE_CREATE", message)
        return message

    def _message(self, channel: str, author: Json, text: str, **more: Any) -> Json:
        message = {
            "id": str(next(self._numbers)), "channel_id": channel, "author": author, "content": text, "type": 0,
            "timestamp": "2026-01-01T00:00:00+00:00", "edited_timestamp": None, "tts": False, "mention_everyone": False,
            "mentions": [], "mention_roles": [], "attachments": [], "embeds": [], "pinned": False, "flags": 0,
            "components": [], **more,
        }  # fmt: skip
        self.history.setdefault(channel, []).append(message)
        return message

    async def put(self, kind: str, data: Any) -> None:
        for socket in list(self._sockets):
            with contextlib.suppress(ConnectionError):
                await self._send(socket, {"op": 0, "t": kind, "s": next(self._sequence), "d": data})

    async def press(self, message: Json, place: int) -> None:
        button = message["components"][0]["components"][place]
        number = str(next(self._numbers))
        await self.put(
            "INTERACTION_CREATE",
            {
                "id": number, "application_id": "999", "type": 3, "token": "t", "version": 1, "channel_id": message["channel_id"],
                "user": ALICE, "data": {"custom_id": button["custom_id"], "component_type": 2},
                "message": message, "entitlements": [], "authorizing_integration_owners": {}, "attachment_size_limit": 1,
                "channel": {"id": message["channel_id"], "type": 1}, "locale": "en-US",
            },
        )  # fmt: skip

    # Responses to the program.

    async def _me(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bot token-1":
            return _answer({"message": "401: Unauthorized", "code": 0}, 401)
        return _answer(ME)

    async def _application(self, request: web.Request) -> web.Response:
        return _answer({"id": "999", "name": "holdfast", "icon": None, "description": "", "bot_public": True,
                        "bot_require_code_grant": False, "verify_key": "", "flags": 0, "owner": ME, "team": None})  # fmt: skip

    async def _gateway(self, request: web.Request) -> web.Response:
        limit = {"total": 1000, "remaining": 1000, "reset_after": 0, "max_concurrency": 1}
        return _answer({"url": self.url.replace("http", "ws") + "/gateway", "shards": 1, "session_start_limit": limit})

    async def _create(self, request: web.Request) -> web.StreamResponse:
        channel = request.match_info["channel"]
        given = await self._given(request)
        problem = self.problems.pop(0) if self.problems else None
        if isinstance(problem, tuple):
            return _answer(problem[1], problem[0])
        if channel == "404":
            return _answer({"message": "Unknown Channel", "code": 10003}, 404)
        nonce = str(given.get("nonce"))
        if given.get("enforce_nonce") and nonce in self._nonces:
            return _answer(self._nonces[nonce])
        more = {"nonce": nonce, "components": given.get("components", [])}
        message = self._message(channel, ME, given["content"], **more)
        if given.get("message_reference"):
            message["message_reference"] = given["message_reference"]
        self._nonces[nonce] = message
        self.sent.append(message)
        if problem == "lose":
            assert request.transport is not None
            request.transport.close()
        await self.put("MESSAGE_CREATE", message)
        return _answer(message)

    async def _given(self, request: web.Request) -> Json:
        """The request body: JSON or, with files, a form that contains JSON."""
        if request.content_type != "multipart/form-data":
            return dict(await request.json())
        form = await request.post()
        self.uploads += [(one.filename, one.file.read()) for one in form.values() if not isinstance(one, str)]
        return dict(json.loads(str(form["payload_json"])))

    async def _edit(self, request: web.Request) -> web.Response:
        for message in self.sent:
            if message["id"] == request.match_info["message"]:
                message["content"] = (await request.json())["content"]
                return _answer(message)
        return _answer({"message": "Unknown Message", "code": 10008}, 404)

    async def _list(self, request: web.Request) -> web.Response:
        after, limit = int(request.query.get("after", 0)), int(request.query.get("limit", 50))
        found = [one for one in self.history.get(request.match_info["channel"], []) if int(one["id"]) > after]
        return _answer(found[:limit][::-1])

    async def _typing(self, request: web.Request) -> web.Response:
        self.typed.append(request.match_info["channel"])
        return web.Response(status=204)

    async def _callback(self, request: web.Request) -> web.Response:
        self.pressed.append(request.match_info["id"])
        return web.Response(status=204)

    async def _file(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["name"]])

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        compress = request.query.get("compress") == "zlib-stream"
        packer = zlib.compressobj() if compress else None
        await _pack(socket, packer, {"op": 10, "d": {"heartbeat_interval": 41250}})
        async for message in socket:
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                continue
            given = json.loads(message.data)
            if given["op"] == 1:
                await _pack(socket, packer, {"op": 11})
            elif given["op"] == 2:
                self._sockets[socket] = packer
                ready = {
                    "v": 10, "user": ME, "guilds": [], "session_id": "s1", "resume_gateway_url": self.url.replace("http", "ws") + "/gateway",
                    "application": {"id": "999", "flags": 0}, "private_channels": [],
                }  # fmt: skip
                await self._send(socket, {"op": 0, "t": "READY", "s": next(self._sequence), "d": ready})
            elif given["op"] == 6:
                await _pack(socket, packer, {"op": 9, "d": False})
        self._sockets.pop(socket, None)
        return socket

    async def _send(self, socket: web.WebSocketResponse, event: Json) -> None:
        await _pack(socket, self._sockets[socket], event)

    @property
    def connected(self) -> bool:
        return bool(self._sockets)

    async def close(self) -> None:
        for socket in list(self._sockets):
            await socket.close()

    @property
    def texts(self) -> list[str]:
        return [displayed(message["content"]) for message in self.sent]


def displayed(content: str) -> str:
    """What a person reads: without markup, and with only the labels of links."""
    hidden = re.sub(r"\\([^0-9A-Za-z\s])", lambda escaped: chr(PRIVATE + ord(escaped[1])), content)
    hidden = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", hidden)
    for mark in ("***", "**", "*", "__", "_", "~~", "||", "`"):
        hidden = re.sub(f"{re.escape(mark)}(.+?){re.escape(mark)}", r"\1", hidden)
    hidden = re.sub(r"^(> |#{1,3} |-# )", "", hidden, flags=re.MULTILINE)
    return "".join(chr(ord(sign) - PRIVATE) if PRIVATE <= ord(sign) < PRIVATE + 128 else sign for sign in hidden)


async def _pack(socket: web.WebSocketResponse, packer: Any, event: Json) -> None:
    text = json.dumps(event)
    if packer is None:
        await socket.send_str(text)
    else:
        await socket.send_bytes(packer.compress(text.encode()) + packer.flush(zlib.Z_SYNC_FLUSH))


def _answer(body: Any, status: int = 200) -> web.Response:
    """The library accepts only this exact content type for JSON."""
    return web.Response(body=json.dumps(body).encode(), status=status, headers=JSON)


@asynccontextmanager
async def running() -> AsyncIterator[DiscordApi]:
    api = DiscordApi()
    application = web.Application()
    router = application.router
    router.add_get("/api/users/@me", api._me)
    router.add_get("/api/oauth2/applications/@me", api._application)
    router.add_get("/api/gateway/bot", api._gateway)
    router.add_post("/api/channels/{channel}/messages", api._create)
    router.add_get("/api/channels/{channel}/messages", api._list)
    router.add_patch("/api/channels/{channel}/messages/{message}", api._edit)
    router.add_post("/api/channels/{channel}/typing", api._typing)
    router.add_post("/api/interactions/{id}/{token}/callback", api._callback)
    router.add_get("/files/{name}", api._file)
    router.add_get("/gateway", api._socket)
    router.add_get("/gateway/", api._socket)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await api.close()
        await runner.cleanup()
        await asyncio.sleep(0)
