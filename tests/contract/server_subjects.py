"""Matrix and e-mail, which must fulfil the contract of a channel with real servers."""

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from nio import TypingNoticeEvent

from tests.contract.channel_subjects import Made, Subject
from tests.gateway import synapse
from tests.gateway.mailserver import LOST, PASSWORD, MailServer

NUMBERS = itertools.count(1)
Json = dict[str, Any]


class Passage:
    """A proxy between the agent and a homeserver: it forwards everything, unless the test makes it fail."""

    def __init__(self, homeserver: str, session: aiohttp.ClientSession) -> None:
        self._homeserver = homeserver
        self._session = session
        self.problems: list[str] = []
        self.again = asyncio.Event()
        self._news: Json = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        sending = request.method == "PUT" and "/send/" in request.path
        problem = self.problems.pop(0) if sending and self.problems else ""
        if problem == "busy":
            refusal = {"errcode": "M_LIMIT_EXCEEDED", "error": "Too many requests", "retry_after_ms": 7000}
            return web.json_response(refusal, status=429)
        status, body, headers = await self._answer(request)
        if problem == "lose":
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=status, body=body, headers=headers)

    async def _answer(self, request: web.Request) -> tuple[int, bytes, dict[str, str]]:
        """The response of the homeserver; for a sync, the previous one if that is to be delivered again."""
        asking = asyncio.ensure_future(self._ask(request, await request.read()))
        if not request.path.endswith("/sync"):
            return await asking
        repeating = asyncio.ensure_future(self.again.wait())
        await asyncio.wait({asking, repeating}, return_when=asyncio.FIRST_COMPLETED)
        repeating.cancel()
        if self.again.is_set():
            self.again.clear()
            asking.cancel()
            return 200, json.dumps(self._news).encode(), {"Content-Type": "application/json"}
        answer = json.loads((await asking)[1])
        self._news = answer if answer.get("rooms") else self._news
        return await asking

    async def _ask(self, request: web.Request, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        kept = ("Authorization", "Content-Type")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        url = f"{self._homeserver}{request.raw_path}"
        async with self._session.request(request.method, url, data=body, headers=headers) as answer:
            return answer.status, await answer.read(), {"Content-Type": answer.headers.get("Content-Type", "")}


class MatrixSubject(Subject):
    kind, gone = "matrix", "!nowhere:matrix.test"

    def __init__(self, url: str, passage: Passage, agent: tuple[str, str], alice: synapse.Person) -> None:
        super().__init__({"homeserver": url, "user": agent[0], "token": agent[1]})
        self._agent = agent[0]
        self._alice = alice
        self._passage = passage

    async def settle(self, homeserver: str) -> None:
        """Alice and the agent share a room."""
        self.chat = await self._alice.invite(self._agent)
        agent = synapse.Person(homeserver, self._agent, str(self.options["token"]))
        await agent.client.join(self.chat)
        await agent.close()

    async def say(self, text: str) -> None:
        await self._alice.say(self.chat, text)

    async def say_again(self) -> None:
        self._passage.again.set()

    async def send_malformed(self) -> None:
        odd = {"msgtype": "m.image", "body": "x", "url": "mxc://a/b", "info": "no object"}
        await self._alice.client.room_send(self.chat, "m.room.message", odd)

    async def _events(self) -> list[Json]:
        page = await self._alice.client.room_messages(self.chat, limit=100, direction="f")
        return [event.source for event in page.chunk if event.sender == self._agent]

    async def heard(self) -> list[str]:
        said: dict[str, str] = {}
        for event in await self._events():
            content = event["content"]
            relates = content.get("m.relates_to") or {}
            if relates.get("rel_type") == "m.replace":
                said[relates["event_id"]] = content["m.new_content"]["body"]
            elif event["type"] == "m.room.message":
                said[event["event_id"]] = content["body"]
        return list(said.values())

    async def received(self) -> list[tuple[str, bytes]]:
        files = [event["content"] for event in await self._events() if event["content"].get("msgtype") == "m.file"]
        found = [await self._alice.client.download(one["url"]) for one in files]
        return [(one["body"], bytes(answer.body)) for one, answer in zip(files, found, strict=True)]

    async def saw_typing(self) -> bool:
        answer = await self._alice.client.sync(timeout=0)
        room = answer.rooms.join.get(self.chat)
        typing = [event for event in room.ephemeral if isinstance(event, TypingNoticeEvent)] if room else []
        return any(self._agent in event.users for event in typing)

    def be_busy(self) -> None:
        self._passage.problems = ["busy"]

    def lose_answer(self) -> None:
        self._passage.problems = ["lose", "lose"]  # aiohttp asks a second time, under the same key


class EmailSubject(Subject):
    kind, gone = "email", "gone@holdfast.test"

    def __init__(self, server: MailServer, number: int) -> None:
        self.chat = f"alice{number}@holdfast.test"
        self._agent = f"agent{number}@holdfast.test"
        options = {"address": self._agent, "password": PASSWORD, "accept_unauthenticated_senders": True}
        for way, port in (("imap", server.imap), ("smtp", server.smtp)):
            options |= {f"{way}_host": "127.0.0.1", f"{way}_port": port, f"{way}_security": "none"}  # type: ignore[dict-item]
        super().__init__({**options})
        self._server = server
        self._last = b""

    async def say(self, text: str) -> None:
        mail = EmailMessage()
        mail["From"], mail["To"], mail["Subject"] = self.chat, self._agent, "Hello"
        mail["Message-ID"] = f"<{next(NUMBERS)}@holdfast.test>"
        mail.set_content(text)
        self._last = mail.as_bytes()
        await self.say_again()

    async def say_again(self) -> None:
        await asyncio.to_thread(self._server.post, self.chat, self._agent, self._last)

    async def send_malformed(self) -> None:
        await asyncio.to_thread(self._server.post, self.chat, self._agent, b"From: nobody\r\n\r\n\xff\xfe")

    async def _mails(self) -> list[EmailMessage]:
        """As a mail program shows them: duplicates are one mail."""
        mails = await asyncio.to_thread(self._server.read, self.chat)
        return list({mail["Message-ID"]: mail for mail in mails}.values())

    async def heard(self) -> list[str]:
        bodies = [mail.get_body(("plain",)) for mail in await self._mails()]
        return [str(body.get_content()).strip() for body in bodies if body is not None]

    async def received(self) -> list[tuple[str, bytes]]:
        parts = [part for mail in await self._mails() for part in mail.iter_attachments()]
        return [(str(part.get_filename()), bytes(part.get_content())) for part in parts]

    def be_busy(self) -> None:
        self._server.relay.problems = ["451 later, please"]

    def lose_answer(self) -> None:
        self._server.relay.problems = [LOST]


@asynccontextmanager
async def _matrix(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    homeserver, number = request.getfixturevalue("homeserver"), next(NUMBERS)
    name = f"{number}-contract-{os.getpid()}"  # other workers use the same server
    agent = await synapse.register(homeserver, f"agent{name}")
    alice = synapse.Person(homeserver, *await synapse.register(homeserver, f"alice{name}"))
    async with aiohttp.ClientSession() as session:
        passage = Passage(homeserver, session)
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", passage.handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        subject = MatrixSubject(f"http://127.0.0.1:{runner.addresses[0][1]}", passage, agent, alice)
        await subject.settle(homeserver)
        try:
            yield subject
        finally:
            await alice.close()
            await runner.cleanup()


@asynccontextmanager
async def _email(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    yield EmailSubject(request.getfixturevalue("mailserver"), next(NUMBERS))


SUBJECTS: dict[str, Made] = {"matrix": _matrix, "email": _email}
