"""The platforms that must fulfil the contract of a channel, each with a user."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest
from aiohttp import web

from holdfast.clock import SystemClock
from holdfast.gateway.platforms import registry, webhook
from holdfast.gateway.port import Connect, Platform, PlatformOptions
from tests.fakes.channel import FakeChannel, connecting
from tests.gateway import dingtalkapi, discordapi, qqapi, slackapi, telegramapi
from tests.gateway.synapse import free_port

SECRET = "a secret of some length"


class Subject:
    """A platform from its users' side."""

    kind = ""
    chat = ""
    """The chat that Alice and the agent share."""
    gone = ""
    """A chat that does not exist."""

    def __init__(self, options: dict[str, object]) -> None:
        self.options = options

    def connect(self) -> AbstractAsyncContextManager[Platform]:
        how: Connect = registry.connect(self.kind)
        return how(PlatformOptions(self.kind, dict(self.options)), SystemClock())

    async def say(self, text: str) -> None:
        """Alice writes to the agent."""
        raise NotImplementedError

    async def say_again(self) -> None:
        """The platform delivers the last message again."""
        raise NotImplementedError

    async def send_malformed(self) -> None:
        """The platform delivers a malformed payload."""
        raise NotImplementedError

    async def heard(self) -> list[str]:
        """The messages that Alice received, after all edits."""
        raise NotImplementedError

    def be_busy(self) -> None:
        """The next message is refused temporarily."""
        raise NotImplementedError

    def lose_answer(self) -> None:
        """The next message is accepted, but without a response."""
        raise NotImplementedError

    async def press(self, place: int) -> None:
        """Alice presses a button of the last message."""
        raise NotImplementedError

    async def received(self) -> list[tuple[str, bytes]]:
        """The files that Alice received."""
        raise NotImplementedError

    async def hang_up(self) -> None:
        """The platform closes the connection."""
        raise NotImplementedError

    async def saw_typing(self) -> bool:
        """Whether Alice was shown that the agent types."""
        raise NotImplementedError


Made = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Subject]]


class FakeSubject(Subject):
    kind, chat = "fake", "c1"

    def __init__(self) -> None:
        super().__init__({})
        self.channel = FakeChannel(edits=True)
        self._last: object = None

    def connect(self) -> AbstractAsyncContextManager[Platform]:
        return connecting(self.channel)(PlatformOptions("fake", {}), SystemClock())  # type: ignore[return-value]

    async def say(self, text: str) -> None:
        self._last = json.dumps({"chat": "c1", "message": text, "person": "alice", "text": text})
        await self.channel.posted.put(self._last)  # type: ignore[arg-type]

    async def say_again(self) -> None:
        await self.channel.posted.put(self._last)  # type: ignore[arg-type]

    async def send_malformed(self) -> None:
        await self.channel.posted.put(b"\xff")

    async def heard(self) -> list[str]:
        return self.channel.texts

    def be_busy(self) -> None:
        from holdfast.gateway.port import RetryLater

        self.channel.results = [RetryLater("busy", 7.0)]

    def lose_answer(self) -> None:
        from holdfast.gateway.port import DeliveryUnknown

        self.channel.results = [DeliveryUnknown("lost")]

    async def press(self, place: int) -> None:
        message = self.channel.arrived[-1]
        given = {"chat": "c1", "message": "p", "person": "alice", "pressed": message.choices[place].value}
        await self.channel.posted.put(json.dumps({**given, "about": message.about}))

    async def received(self) -> list[tuple[str, bytes]]:
        return [(one.file.name, one.file.read_bytes()) for one in self.channel.arrived if one.file is not None]

    async def saw_typing(self) -> bool:
        return self.chat in self.channel.typed


class Bridge(Subject):
    kind, chat, gone = "webhook", "c1", "gone"

    def __init__(self, port: int, url: str) -> None:
        super().__init__({"listen": f"127.0.0.1:{port}", "url": url, "secret": SECRET, "edits": True})
        self._url = f"http://127.0.0.1:{port}/"
        self._taken: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, str] = {}
        self._problems: list[str] = []
        self._unkept: list[bytes] = []
        self._last = b""

    async def take(self, request: web.Request) -> web.Response:
        given = json.loads(await request.read())
        if given["type"] == "edit":
            if given["id"] not in self._taken:
                return web.json_response({}, status=404)
            self._taken[given["id"]]["text"] = given["text"]
            return web.json_response({})
        if given["chat"] == "gone":
            return web.json_response({}, status=404)
        problem = self._problems.pop(0) if self._problems else ""
        if problem == "busy":
            return web.json_response({}, status=429, headers={"Retry-After": "7"})
        name = self._keys.setdefault(given["key"], f"id{len(self._keys)}")
        self._taken.setdefault(name, given)
        if problem == "lose":
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"id": name})

    async def say(self, text: str) -> None:
        await self._post(json.dumps({"chat": "c1", "message": text, "person": "alice", "text": text}).encode())

    async def _post(self, body: bytes) -> None:
        """Like a bridge: until it is stored."""
        self._last = body
        async with asyncio.timeout(20), httpx2.AsyncClient() as client:
            while True:
                timestamp = str(int(time.time()))
                headers = {
                    webhook.TIMESTAMP: timestamp,
                    webhook.SIGNATURE: webhook.sign(SECRET.encode(), timestamp, body),
                }
                try:
                    if (await client.post(self._url, content=body, headers=headers)).status_code == 200:
                        return
                except httpx2.HTTPError:
                    pass
                await asyncio.sleep(0.05)

    async def say_again(self) -> None:
        await self._post(self._last)

    async def send_malformed(self) -> None:
        await self._post(b"\xff\xfe")

    async def heard(self) -> list[str]:
        return [one["text"] for one in self._taken.values()]

    def be_busy(self) -> None:
        self._problems = ["busy"]

    def lose_answer(self) -> None:
        self._problems = ["lose"]

    async def press(self, place: int) -> None:
        message = list(self._taken.values())[-1]
        given = {"chat": "c1", "message": "p", "person": "alice", "pressed": message["choices"][place]["value"]}
        await self._post(json.dumps({**given, "about": message["about"]}).encode())

    async def received(self) -> list[tuple[str, bytes]]:
        files = [one["file"] for one in self._taken.values() if "file" in one]
        return [(file["name"], base64.b64decode(file["data"])) for file in files]


class TelegramSubject(Subject):
    kind, chat, gone = "telegram", "1", "404"

    def __init__(self, api: telegramapi.TelegramApi, **more: object) -> None:
        super().__init__({"token": telegramapi.TOKEN, "api_url": api.url, **more})
        self.api = api

    async def say(self, text: str) -> None:
        self.api.say(text)
        self._last = self.api.updates[-1]

    async def say_again(self) -> None:
        self.api.put({"message": self._last["message"]})

    async def send_malformed(self) -> None:
        self.api.put({"message": "no message"})

    async def heard(self) -> list[str]:
        return self.api.texts

    def be_busy(self) -> None:
        body = {"description": "Too Many Requests: retry after 7", "parameters": {"retry_after": 7}}
        self.api.problems = [(429, body)]

    def lose_answer(self) -> None:
        self.api.problems = ["lose"]

    async def press(self, place: int) -> None:
        self.api.press(self.api.messages[-1], place)

    async def received(self) -> list[tuple[str, bytes]]:
        return self.api.documents

    async def saw_typing(self) -> bool:
        return bool(self.api.actions)


class SlackSubject(Subject):
    kind, chat, gone = "slack", "D1", "GONE"

    def __init__(self, api: slackapi.SlackApi) -> None:
        super().__init__(
            {"bot_token": "xoxb-1", "app_token": "xapp-1", "api_url": f"{api.url}/api/", "ping_seconds": 0.3}
        )
        self.api = api

    async def hang_up(self) -> None:
        await self.api.close()

    async def say(self, text: str) -> None:
        self._last = await self.api.say(text)

    async def say_again(self) -> None:
        await self.api.put({"type": "event_callback", "event": self._last})

    async def send_malformed(self) -> None:
        await self.api.put({"type": "event_callback", "event": "no event"})

    async def heard(self) -> list[str]:
        return self.api.texts

    def be_busy(self) -> None:
        self.api.problems = [(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "7"})]

    def lose_answer(self) -> None:
        self.api.problems = ["lose"]

    async def press(self, place: int) -> None:
        await self.api.press(self.api.messages[-1], place)

    async def received(self) -> list[tuple[str, bytes]]:
        return self.api.uploads


class DiscordSubject(Subject):
    kind, chat, gone = "discord", "70", "404"

    def __init__(self, api: discordapi.DiscordApi) -> None:
        gateway = api.url.replace("http", "ws") + "/gateway"
        super().__init__({"token": "token-1", "api_url": f"{api.url}/api", "gateway_url": gateway})
        self.api = api

    async def hang_up(self) -> None:
        await self.api.close()

    async def say(self, text: str) -> None:
        self._last = await self.api.say(text)

    async def say_again(self) -> None:
        await self.api.put("MESSAGE_CREATE", self._last)

    async def send_malformed(self) -> None:
        await self.api.put("INTERACTION_CREATE", {"id": "5"})

    async def heard(self) -> list[str]:
        return self.api.texts

    async def press(self, place: int) -> None:
        await self.api.press(self.api.sent[-1], place)

    async def received(self) -> list[tuple[str, bytes]]:
        return self.api.uploads

    async def saw_typing(self) -> bool:
        return self.chat in self.api.typed


class DingTalkSubject(Subject):
    kind, chat, gone = "dingtalk", "alice", "gone"

    def __init__(self, api: dingtalkapi.DingTalkApi) -> None:
        super().__init__({"client_id": "robot", "client_secret": "secret", "open_url": api.url})
        self.api = api

    async def hang_up(self) -> None:
        await self.api.close()

    async def say(self, text: str) -> None:
        self._last = await self.api.say(text)

    async def say_again(self) -> None:
        await self.api.put(json.dumps(self._last))

    async def send_malformed(self) -> None:
        await self.api.put([1, 2, 3])

    async def heard(self) -> list[str]:
        return self.api.texts

    def be_busy(self) -> None:
        self.api.problems = [(429, {"code": "Throttling.User", "message": "too many"})]

    def lose_answer(self) -> None:
        self.api.problems = ["lose"]


class QQSubject(Subject):
    kind, chat, gone = "qq", "alice", "gone"

    def __init__(self, api: qqapi.QQApi) -> None:
        super().__init__({"app_id": "1", "secret": "secret", "api_url": api.url, "token_url": f"{api.url}/token"})
        self.api = api

    async def hang_up(self) -> None:
        await self.api.close()

    async def say(self, text: str) -> None:
        self._last = await self.api.say(text)

    async def say_again(self) -> None:
        await self.api.put("C2C_MESSAGE_CREATE", self._last)

    async def send_malformed(self) -> None:
        await self.api.put("C2C_MESSAGE_CREATE", {"content": "nobody"})

    async def heard(self) -> list[str]:
        return self.api.texts

    def be_busy(self) -> None:
        self.api.problems = [(429, {"message": "too many", "code": 22009})]

    def lose_answer(self) -> None:
        self.api.problems = ["lose"]


@asynccontextmanager
async def _fake(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    yield FakeSubject()


@asynccontextmanager
async def _bridge(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    application = web.Application()
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    port = free_port()
    subject = Bridge(port, "")
    application.router.add_post("/", subject.take)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    subject.options["url"] = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    yield subject
    await runner.cleanup()


def _over(api: Any, subject: Callable[..., Subject], **more: object) -> Made:
    @asynccontextmanager
    async def made(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
        async with api.running() as running:
            yield subject(running, **more)

    return made


@asynccontextmanager
async def _telegram_webhook(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    port = free_port()
    more = {"webhook_url": f"http://127.0.0.1:{port}/", "webhook_secret": SECRET, "listen": f"127.0.0.1:{port}"}
    async with telegramapi.running() as running:
        yield TelegramSubject(running, **more)


SUBJECTS: dict[str, Made] = {
    "fake": _fake,
    "webhook": _bridge,
    "telegram": _over(telegramapi, TelegramSubject),
    "telegram webhook": _telegram_webhook,
    "slack": _over(slackapi, SlackSubject),
    "discord": _over(discordapi, DiscordSubject),
    "dingtalk": _over(dingtalkapi, DingTalkSubject),
    "qq": _over(qqapi, QQSubject),
}
