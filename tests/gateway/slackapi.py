"""Slack's web API and socket mode, as their documentation describes the parts that we use. A fake, not the real service.

https://docs.slack.dev/apis/events-api/using-socket-mode: `apps.connections.open` gives an address; envelopes come over it and are sent
again, with the number of the attempt, until they are acknowledged. Methods: auth.test, chat.postMessage, chat.update.
"""

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

ME = "U0BOT"
Json = dict[str, Any]


class SlackApi:
    def __init__(self) -> None:
        self.url = ""
        self.messages: list[Json] = []
        self.problems: list[tuple[int, Json, dict[str, str]] | str] = []
        self.files: dict[str, bytes] = {}
        self.acknowledged: list[str] = []
        self.uploads: list[tuple[str, bytes]] = []
        self._pending: dict[str, Json] = {}
        self._sockets: list[web.WebSocketResponse] = []
        self._numbers = itertools.count(1)

    # Actions of people.

    async def say(self, text: str, **more: Any) -> Json:
        stamp = f"1700000000.{next(self._numbers):06}"
        event = {
            "type": "message",
            "channel": "D1",
            "channel_type": "im",
            "user": "U1",
            "text": text,
            "ts": stamp,
            **more,
        }
        await self.put({"type": "event_callback", "event": event})
        return event

    async def put(self, payload: Any, kind: str = "events_api") -> None:
        envelope_id = f"e{next(self._numbers)}"
        self._pending[envelope_id] = {"envelope_id": envelope_id, "type": kind, "payload": payload}
        await self._push(envelope_id)

    async def _push(self, envelope_id: str) -> None:
        for socket in list(self._sockets):
            with contextlib.suppress(ConnectionError):
                await socket.send_str(json.dumps(self._pending[envelope_id]))

    async def press(self, message: Json, place: int) -> None:
        action = message["blocks"][-1]["elements"][place]
        body = {
            "type": "block_actions", "user": {"id": "U1", "name": "alice"}, "trigger_id": f"t{next(self._numbers)}",
            "channel": {"id": message["channel"]}, "container": {"channel_id": message["channel"], "message_ts": message["ts"]},
            "actions": [action],
        }  # fmt: skip
        await self.put(body, "interactive")

    # Responses to the program.

    async def _method(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        given: Json = dict(await request.post())
        if not given and request.can_read_body:
            given = await request.json()
        given |= dict(request.query)
        if request.headers.get("Authorization") not in ("Bearer xoxb-1", "Bearer xapp-1"):
            return web.json_response({"ok": False, "error": "invalid_auth"})
        if method == "auth.test":
            return web.json_response({"ok": True, "user_id": ME, "bot_id": "B1", "user": "holdfast"})
        if method == "apps.connections.open":
            return web.json_response({"ok": True, "url": self.url.replace("http", "ws") + "/socket"})
        if method == "chat.postMessage":
            return await self._post(given, request)
        if method == "chat.update":
            return self._update(given)
        if method == "files.getUploadURLExternal":
            name = str(given["filename"])
            return web.json_response({"ok": True, "file_id": "F1", "upload_url": f"{self.url}/upload/{name}"})
        if method == "files.completeUploadExternal":
            return web.json_response({"ok": True, "files": [{"id": "F1"}]})
        return web.json_response({"ok": False, "error": "unknown_method"})

    async def _post(self, given: Json, request: web.Request) -> web.StreamResponse:
        problem = self.problems.pop(0) if self.problems else None
        if isinstance(problem, tuple):
            return web.json_response(problem[1], status=problem[0], headers=problem[2])
        if given["channel"] == "GONE":
            return web.json_response({"ok": False, "error": "channel_not_found"})
        stamp = f"1700000001.{next(self._numbers):06}"
        blocks = given.get("blocks")
        message = {**given, "ts": stamp, "blocks": json.loads(blocks) if isinstance(blocks, str) else blocks}
        if problem != "close":
            self.messages.append(message)
        if problem in ("close", "lose"):
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"ok": True, "ts": stamp, "channel": given["channel"], "message": {}})

    def _update(self, given: Json) -> web.Response:
        for message in self.messages:
            if message["ts"] == given["ts"]:
                message["text"] = given["text"]
                return web.json_response({"ok": True, "ts": given["ts"]})
        return web.json_response({"ok": False, "error": "message_not_found"})

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(json.dumps({"type": "hello", "num_connections": 1}))
        self._sockets.append(socket)
        for envelope_id, envelope in list(self._pending.items()):
            envelope["retry_attempt"] = envelope.get("retry_attempt", 0) + 1
            await self._push(envelope_id)
        async for message in socket:
            if message.type == WSMsgType.TEXT:
                envelope_id = json.loads(message.data)["envelope_id"]
                if self._pending.pop(envelope_id, None) is not None:
                    self.acknowledged.append(envelope_id)
        self._sockets.remove(socket)
        return socket

    async def _file(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["name"]])

    async def _upload(self, request: web.Request) -> web.Response:
        if request.content_type == "multipart/form-data":
            [content] = [one.file.read() for one in (await request.post()).values() if not isinstance(one, str)]
        else:
            content = await request.read()
        self.uploads.append((request.match_info["name"], content))
        return web.Response(text="OK")

    async def close(self) -> None:
        for socket in list(self._sockets):
            await socket.close()

    @property
    def texts(self) -> list[str]:
        return [displayed(message) for message in self.messages]


def displayed(message: Json) -> str:
    """What a person reads: blocks instead of the text, without markup, and with only the labels of links."""
    if message["blocks"]:
        sections = [block["text"] for block in message["blocks"] if block["type"] == "section"]
        assert all(text["type"] == "plain_text" and len(text["text"]) <= 3_000 for text in sections)
        return "".join(text["text"] for text in sections)
    text = re.sub(r"<([^<>|]*)(?:\|([^<>]*))?>", lambda link: link[2] or link[1], message["text"])
    if str(message.get("mrkdwn", True)).lower() in ("true", "1"):
        text = re.sub(r"(?<!\w)([*_~`])(\S(?:.*?\S)?)\1(?!\w)", r"\2", text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


@asynccontextmanager
async def running() -> AsyncIterator[SlackApi]:
    api = SlackApi()
    application = web.Application()
    application.router.add_route("*", "/api/{method}", api._method)
    application.router.add_get("/socket", api._socket)
    application.router.add_get("/files/{name}", api._file)
    application.router.add_post("/upload/{name}", api._upload)
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
