"""Telegram's Bot API, as its documentation describes the parts that we use. A fake, not the real service.

https://core.telegram.org/bots/api: getMe, getUpdates, setWebhook, deleteWebhook, sendMessage, editMessageText, sendDocument,
sendChatAction, getFile.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

TOKEN = "123456:" + "A" * 35
ME = {"id": 999, "is_bot": True, "first_name": "Holdfast", "username": "holdfast_bot"}
ALICE = {"id": 1, "is_bot": False, "first_name": "Alice"}
Json = dict[str, Any]


class TelegramApi:
    def __init__(self) -> None:
        self.url = ""
        self.updates: list[Any] = []
        self.confirmed = 0
        self.messages: list[Json] = []
        """Everything the bot has sent, after all edits."""
        self.actions: list[str] = []
        self.documents: list[tuple[str, bytes]] = []
        self.files: dict[str, bytes] = {}
        self.tells_sizes = True
        self.problems: list[tuple[int, Json] | str] = []
        """Responses to the next messages instead: a status and a body, or `close`, `hang`, or `lose` (accepted, but no response)."""
        self.webhook: Json | None = None
        self._number = 100
        self._news = asyncio.Event()
        self.changed = asyncio.Condition()

    # Actions of people.

    def say(self, text: str, **more: Any) -> int:
        self._number += 1
        chat = {"id": 1, "type": "private", "first_name": "Alice"}
        message = {"message_id": self._number, "date": 1, "chat": chat, "from": ALICE, "text": text, **more}
        self.put({"message": message})
        return self._number

    def put(self, update: Any) -> None:
        """Queue an update of any shape."""
        self._number += 1
        if isinstance(update, dict):
            update = {"update_id": self._number, **update}
        self.updates.append(update)
        self._news.set()

    def press(self, message: Json, place: int) -> None:
        button = message["reply_markup"]["inline_keyboard"][0][place]
        self.put(
            {
                "callback_query": {
                    "id": f"q{self._number}",
                    "from": ALICE,
                    "message": message,
                    "data": button["callback_data"],
                }
            }
        )

    # Responses to the bot.

    async def _call(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["token"] != TOKEN:
            return _refusal(401, {"description": "Unauthorized"})
        given: Json = {}
        for name, value in (await request.post()).items():
            given[name] = value if isinstance(value, str) else (value.filename, value.file.read())
        method = request.match_info["method"]
        handler = getattr(self, f"_{method.lower()}", None)
        if handler is None:
            return _refusal(404, {"description": "Not Found: method not found"})
        return await handler(given, request)

    async def _getme(self, given: Json, request: web.Request) -> web.StreamResponse:
        return _result(ME)

    async def _deletewebhook(self, given: Json, request: web.Request) -> web.StreamResponse:
        self.webhook = None
        return _result(True)

    async def _setwebhook(self, given: Json, request: web.Request) -> web.StreamResponse:
        self.webhook = given
        self._news.set()
        return _result(True)

    async def _getupdates(self, given: Json, request: web.Request) -> web.StreamResponse:
        if self.webhook is not None:
            return _refusal(409, {"description": "Conflict: can't use getUpdates method while webhook is active"})
        offset = int(given.get("offset", 0))
        self.confirmed = max(self.confirmed, offset)
        self.updates = [one for one in self.updates if _id(one) >= offset]
        if not self.updates:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), min(float(given.get("timeout", 0)), 2.0))
            except TimeoutError:
                pass
        return _result(self.updates[:100])

    async def _sendmessage(self, given: Json, request: web.Request) -> web.StreamResponse:
        problem = self.problems.pop(0) if self.problems else None
        if isinstance(problem, tuple):
            return _refusal(*problem)
        if problem == "hang":
            await asyncio.sleep(60)
        if problem == "close":
            assert request.transport is not None
            request.transport.close()
            return _result({})
        if given["chat_id"] == "404":
            return _refusal(400, {"description": "Bad Request: chat not found"})
        if len(given["text"].encode("utf-16-le")) // 2 > 4096:
            return _refusal(400, {"description": "Bad Request: message is too long"})
        message = self._sent(given, text=given["text"])
        await self._notify()
        if problem == "lose":
            assert request.transport is not None
            request.transport.close()
        return _result(message)

    async def _senddocument(self, given: Json, request: web.Request) -> web.StreamResponse:
        found = [value for value in given.values() if isinstance(value, tuple)]
        self.documents += found
        message = self._sent(given, document={"file_id": "d1", "file_unique_id": "u1"})
        await self._notify()
        return _result(message)

    def _sent(self, given: Json, **content: Any) -> Json:
        self._number += 1
        message = {
            "message_id": self._number,
            "date": 1,
            "chat": {"id": int(given["chat_id"]), "type": "private"},
            "from": ME,
            **content,
        }
        for name in ("reply_markup", "reply_parameters"):
            if name in given:
                message[name] = json.loads(given[name])
        self.messages.append(message)
        return {key: value for key, value in message.items() if key != "reply_parameters"}

    async def _editmessagetext(self, given: Json, request: web.Request) -> web.StreamResponse:
        for message in self.messages:
            if message["message_id"] == int(given["message_id"]):
                if message["text"] == given["text"]:
                    return _refusal(400, {"description": "Bad Request: message is not modified"})
                message["text"] = given["text"]
                await self._notify()
                return _result(message)
        return _refusal(400, {"description": "Bad Request: message to edit not found"})

    async def _sendchataction(self, given: Json, request: web.Request) -> web.StreamResponse:
        self.actions.append(given["chat_id"])
        return _result(True)

    async def _getfile(self, given: Json, request: web.Request) -> web.StreamResponse:
        name = given["file_id"]
        size = len(self.files[name]) if self.tells_sizes else None
        return _result({"file_id": name, "file_unique_id": name, "file_size": size, "file_path": f"documents/{name}"})

    async def _download(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self.files[request.match_info["name"]])

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def deliver(self) -> None:
        """Post updates to the webhook in order, each until it is acknowledged."""
        async with aiohttp.ClientSession() as session:
            while True:
                await self._news.wait()
                self._news.clear()
                while self.webhook is not None and self.updates:
                    headers = {"X-Telegram-Bot-Api-Secret-Token": self.webhook["secret_token"]}
                    try:
                        async with session.post(self.webhook["url"], json=self.updates[0], headers=headers) as answer:
                            if answer.status == 200:
                                self.updates.pop(0)
                                continue
                    except aiohttp.ClientError:
                        pass
                    await asyncio.sleep(0.1)

    @property
    def texts(self) -> list[str]:
        return [message.get("text", "") for message in self.messages]


def _id(update: Any) -> int:
    return update.get("update_id", 0) if isinstance(update, dict) else 1 << 40


def _result(result: Any) -> web.Response:
    return web.json_response({"ok": True, "result": result})


def _refusal(status: int, body: Json) -> web.Response:
    return web.json_response({"ok": False, "error_code": status, **body}, status=status)


@asynccontextmanager
async def running() -> AsyncIterator[TelegramApi]:
    api = TelegramApi()
    application = web.Application()
    application.router.add_post("/bot{token}/{method}", api._call)
    application.router.add_get("/file/bot{token}/documents/{name}", api._download)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    delivering = asyncio.create_task(api.deliver())
    try:
        yield api
    finally:
        delivering.cancel()
        await asyncio.wait({delivering})
        await runner.cleanup()
