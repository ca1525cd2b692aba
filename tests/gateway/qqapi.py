"""QQ's HTTP API and gateway, as their documentation describes the parts that we use. A fake, not the real service.

https://bot.q.qq.com/wiki/develop/api-v2: hello, identify, ready, resume, heartbeats, dispatches with a number. A session that is
resumed gets the events behind the number it names. A reply with the msg_id and msg_seq of another one is refused.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

Json = dict[str, Any]


class QQApi:
    def __init__(self) -> None:
        self.url = ""
        self.sent: list[Json] = []
        self.problems: list[tuple[int, Json] | str] = []
        self.files: dict[str, bytes] = {}
        self.resumed = 0
        self.connections = 0
        self._used: set[tuple[str, int]] = set()
        self._events: list[Json] = []
        self._sockets: list[web.WebSocketResponse] = []
        self._numbers = itertools.count(1)

    async def say(self, text: str, **more: Any) -> Json:
        message = {"id": f"ROBOT1.0_{next(self._numbers)}", "author": {"id": "alice", "user_openid": "alice"},
                   "content": text, "timestamp": "2026-01-01T00:00:00+08:00", **more}  # fmt: skip
        await self.put("C2C_MESSAGE_CREATE", message)
        return message

    async def put(self, kind: str, data: Any) -> None:
        event = {"op": 0, "s": len(self._events) + 1, "t": kind, "id": f"ev{len(self._events)}", "d": data}
        self._events.append(event)
        for socket in list(self._sockets):
            with contextlib.suppress(ConnectionError):
                await socket.send_str(json.dumps(event))

    async def put_raw(self, text: str) -> None:
        for socket in list(self._sockets):
            with contextlib.suppress(ConnectionError):
                await socket.send_str(text)

    async def _token(self, request: web.Request) -> web.Response:
        if (await request.json())["clientSecret"] != "secret":
            return web.json_response({"code": 100007, "message": "appid invalid"})
        return web.json_response({"access_token": "token", "expires_in": "7200"})

    async def _me(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "QQBot token"
        return _answer({"id": "999", "username": "holdfast"})

    async def _gateway(self, request: web.Request) -> web.Response:
        limit = {"total": 1000, "remaining": 1000, "reset_after": 1, "max_concurrency": 1}
        return _answer(
            {"url": self.url.replace("http", "ws") + "/websocket", "shards": 1, "session_start_limit": limit}
        )

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.connections += 1
        await socket.send_str(json.dumps({"op": 10, "d": {"heartbeat_interval": 45000}}))
        async for message in socket:
            if message.type != WSMsgType.TEXT:
                continue
            given = json.loads(message.data)
            if given["op"] == 1:
                await socket.send_str(json.dumps({"op": 11}))
            elif given["op"] == 2:
                await self._begin(socket)
            elif given["op"] == 6:
                await self._resume(socket, given["d"])
        if socket in self._sockets:
            self._sockets.remove(socket)
        return socket

    async def _begin(self, socket: web.WebSocketResponse) -> None:
        ready = {
            "version": 1,
            "session_id": "s1",
            "user": {"id": "999", "username": "holdfast", "bot": True},
            "shard": [0, 1],
        }
        event = {"op": 0, "s": len(self._events) + 1, "t": "READY", "d": ready}
        self._events.append(event)
        await socket.send_str(json.dumps(event))
        self._sockets.append(socket)

    async def _resume(self, socket: web.WebSocketResponse, given: Json) -> None:
        if given["session_id"] != "s1":
            await socket.send_str(json.dumps({"op": 9, "d": False}))
            return
        self.resumed += 1
        for event in self._events[given["seq"] :]:
            if event["t"] != "READY":
                await socket.send_str(json.dumps(event))
        await socket.send_str(json.dumps({"op": 0, "s": len(self._events), "t": "RESUMED", "d": ""}))
        self._sockets.append(socket)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        given = await request.json()
        problem = self.problems.pop(0) if self.problems else None
        if isinstance(problem, tuple):
            return _answer(problem[1], problem[0])
        where = request.match_info["who"]
        if where == "gone":
            return _answer({"message": "user not found", "code": 11255}, 404)
        if given["msg_id"] == "old":
            return _answer({"message": "被动回复消息msg_id过期", "code": 40034024}, 400)
        place = (str(given["msg_id"]), given["msg_seq"])
        if given["msg_id"] and place in self._used:
            return _answer({"message": "消息被去重，请检查请求msgseq", "code": 40054005}, 400)
        self._used.add(place)
        if problem != "close":
            self.sent.append({**given, "who": where})
        if problem in ("close", "lose"):
            assert request.transport is not None
            request.transport.close()
        return _answer({"id": f"out{len(self.sent)}", "timestamp": 1})

    async def _file(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["name"]])

    async def close(self) -> None:
        for socket in list(self._sockets):
            await socket.close()

    @property
    def texts(self) -> list[str]:
        return [message["content"] for message in self.sent]


def _answer(body: Any, status: int = 200) -> web.Response:
    """The library accepts only this exact content type for JSON."""
    return web.Response(body=json.dumps(body).encode(), status=status, headers={"content-type": "application/json"})


@asynccontextmanager
async def running() -> AsyncIterator[QQApi]:
    api = QQApi()
    application = web.Application()
    router = application.router
    router.add_post("/token", api._token)
    router.add_get("/users/@me", api._me)
    router.add_get("/gateway/bot", api._gateway)
    router.add_get("/websocket", api._socket)
    router.add_post("/v2/users/{who}/messages", api._post)
    router.add_post("/v2/groups/{who}/messages", api._post)
    router.add_get("/files/{name}", api._file)
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
