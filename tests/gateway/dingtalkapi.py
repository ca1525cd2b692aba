"""DingTalk's stream and the robot's API, as their documentation describes the parts that we use. A fake, not the real service.

https://open.dingtalk.com/document/development/protocol-description: a connection is opened by HTTP, callbacks come over a websocket and
are sent again until they are acknowledged. Messages go to `robot/oToMessages/batchSend` and `robot/groupMessages/send`.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

TOPIC = "/v1.0/im/bot/messages/get"
Json = dict[str, Any]


class DingTalkApi:
    def __init__(self) -> None:
        self.url = ""
        self.sent: list[Json] = []
        self.problems: list[tuple[int, Json] | str] = []
        self.acknowledged: list[str] = []
        self.connections = 0
        self.files: dict[str, bytes] = {}
        self._pending: dict[str, str] = {}
        self._sockets: list[web.WebSocketResponse] = []
        self._numbers = itertools.count(1)

    async def say(self, text: str, **more: Any) -> Json:
        data = {
            "msgId": f"msg{next(self._numbers)}", "conversationId": "cid1", "conversationType": "1", "senderId": "$:x",
            "senderStaffId": "alice", "senderNick": "Alice", "msgtype": "text", "text": {"content": text}, **more,
        }  # fmt: skip
        await self.put(json.dumps(data))
        return data

    async def put(self, data: Any) -> None:
        """Send a callback with any data."""
        number = f"f{next(self._numbers)}"
        headers = {"topic": TOPIC, "messageId": number, "contentType": "application/json", "time": "1"}
        self._pending[number] = json.dumps({"specVersion": "1.0", "type": "CALLBACK", "headers": headers, "data": data})
        for socket in list(self._sockets):
            with contextlib.suppress(ConnectionError):
                await socket.send_str(self._pending[number])

    async def put_raw(self, text: str) -> None:
        for socket in list(self._sockets):
            with contextlib.suppress(ConnectionError):
                await socket.send_str(text)

    async def close(self) -> None:
        for socket in list(self._sockets):
            await socket.close()

    async def _open(self, request: web.Request) -> web.Response:
        given = json.loads(await request.read())
        if given["clientSecret"] != "secret":
            return web.json_response({"code": "authFailed"}, status=401)
        assert {"type": "CALLBACK", "topic": TOPIC} in given["subscriptions"]
        return web.json_response({"endpoint": self.url.replace("http", "ws") + "/connect", "ticket": "t 1"})

    async def _connect(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.connections += 1
        self._sockets.append(socket)
        for text in list(self._pending.values()):
            await socket.send_str(text)
        async for message in socket:
            if message.type == WSMsgType.TEXT:
                given = json.loads(message.data)
                if self._pending.pop(given["headers"]["messageId"], None) is not None and given["code"] == 200:
                    self.acknowledged.append(given["headers"]["messageId"])
        self._sockets.remove(socket)
        return socket

    async def _token(self, request: web.Request) -> web.Response:
        return web.json_response({"accessToken": "token", "expireIn": 7200})

    async def _send(self, request: web.Request) -> web.StreamResponse:
        given = await request.json()
        assert request.headers["x-acs-dingtalk-access-token"] == "token"
        problem = self.problems.pop(0) if self.problems else None
        if isinstance(problem, tuple):
            return web.json_response(problem[1], status=problem[0])
        if given.get("userIds") == ["gone"]:
            return web.json_response({"processQueryKey": "", "invalidStaffIdList": ["gone"]})
        if problem != "close":
            self.sent.append({**given, "text": json.loads(given["msgParam"])["content"]})
        if problem in ("close", "lose"):
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"processQueryKey": f"key{len(self.sent)}"})

    async def _download(self, request: web.Request) -> web.Response:
        code = (await request.json())["downloadCode"]
        return web.json_response({"downloadUrl": f"{self.url}/files/{code}"})

    async def _file(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["name"]])

    @property
    def texts(self) -> list[str]:
        return [message["text"] for message in self.sent]


@asynccontextmanager
async def running() -> AsyncIterator[DingTalkApi]:
    api = DingTalkApi()
    application = web.Application()
    router = application.router
    router.add_post("/v1.0/gateway/connections/open", api._open)
    router.add_get("/connect", api._connect)
    router.add_post("/v1.0/oauth2/accessToken", api._token)
    router.add_post("/v1.0/robot/oToMessages/batchSend", api._send)
    router.add_post("/v1.0/robot/groupMessages/send", api._send)
    router.add_post("/v1.0/robot/messageFiles/download", api._download)
    router.add_get("/files/{name}", api._file)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)
