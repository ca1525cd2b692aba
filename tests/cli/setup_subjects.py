"""The platforms that `holdfast gateway setup` is tried with: what a person types, and how the other side writes."""

import asyncio
import itertools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from tests.gateway import discordapi, slackapi, synapse, telegramapi
from tests.gateway.encrypted_person import EncryptedPerson
from tests.gateway.mailserver import PASSWORD, MailServer

T = TypeVar("T")
NUMBERS = itertools.count(1)


class SetupSubject(Protocol):
    kind: str
    greeting: str
    """What setup says once it is connected."""
    given: list[str]
    """Options of the command."""
    answers: dict[str, str]
    """What to type after each question."""
    secrets: list[str]
    wrong: tuple[str, str]
    """A question whose answer is wrong, and what setup says then."""
    person: str
    """The id that setup finds."""

    async def say(self) -> None:
        """Let the person write for the first time."""

    async def heard(self) -> str:
        """All the person got."""


class SetupThread:
    """Runs a subject in a thread of its own, because the terminal blocks."""

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[SetupSubject]]) -> None:
        self.subject: SetupSubject
        self._opened = opened
        self._loop = asyncio.new_event_loop()
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    async def _run(self) -> None:
        try:
            async with self._opened() as self.subject:
                self._ready.set()
                await self._stop.wait()
        finally:
            self._ready.set()

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


class TelegramSetup:
    kind, greeting, person = "telegram", "Connected to Telegram.", "1"
    answers = {"The bot's token:": telegramapi.TOKEN}
    secrets = [telegramapi.TOKEN]
    wrong = ("The bot's token:", "token: Telegram rejects it")

    def __init__(self, api: telegramapi.TelegramApi) -> None:
        self._api = api
        self.given = ["--set", f"api_url={api.url}"]

    async def say(self) -> None:
        self._api.say("hello bot")

    async def heard(self) -> str:
        return str(self._api.texts)


class SlackSetup:
    kind, greeting, person = "slack", "Connected to Slack.", "U1"
    answers = {"The bot token (xoxb-…):": "xoxb-1", "The app-level token (xapp-…):": "xapp-1"}
    secrets = ["xoxb-1", "xapp-1"]
    wrong = ("The bot token (xoxb-…):", "Slack rejects it")

    def __init__(self, api: slackapi.SlackApi) -> None:
        self._api = api
        self.given = ["--set", f"api_url={api.url}/api/"]

    async def say(self) -> None:
        await self._api.say("hello bot")

    async def heard(self) -> str:
        return str([one["text"] for one in self._api.messages])


class DiscordSetup:
    kind, greeting, person = "discord", "Connected to Discord.", "1"
    answers = {"The bot's token:": "token-1"}
    secrets = ["token-1"]
    wrong = ("The bot's token:", "token: Discord rejects it")

    def __init__(self, api: discordapi.DiscordApi) -> None:
        self._api = api
        gateway = api.url.replace("http", "ws") + "/gateway"
        self.given = ["--set", f"api_url={api.url}/api", "--set", f"gateway_url={gateway}"]

    async def say(self) -> None:
        while not self._api.connected:
            await asyncio.sleep(0.05)
        await self._api.say("hello bot")

    async def heard(self) -> str:
        return str(self._api.texts)


class MatrixSetup:
    """With an encrypted room."""

    kind, greeting = "matrix", "Connected to Matrix."
    given: list[str] = []
    wrong = ("The bot's password:", "the server rejects the password")

    def __init__(self, homeserver: str, agent: str, alice: EncryptedPerson) -> None:
        self._agent, self._alice = agent, alice
        password = f"password of {agent.removeprefix('@').partition(':')[0]}"
        self.answers = {"The homeserver's URL:": homeserver, "such as @holdfast:example.org:": agent}
        self.answers["The bot's password:"] = password
        self.secrets, self.person = [password], alice.client.user_id
        self._room = ""

    async def say(self) -> None:
        self._room = await self._alice.invite(self._agent)
        await self._alice.joined(self._room)
        await self._alice.say(self._room, "hello bot")

    async def heard(self) -> str:
        return str(await self._alice.hear(self._room, 1))


class EmailSetup:
    kind, greeting = "email", "Connected to E-mail."
    secrets = [PASSWORD]
    wrong = ("The password of the mailbox:", "the mail server rejects")

    def __init__(self, server: MailServer) -> None:
        self._server, number = server, next(NUMBERS)
        self._agent, self.person = f"setup{number}@holdfast.test", f"person{number}@holdfast.test"
        ports = {"imap_port": server.imap, "smtp_port": server.smtp, "imap_security": "none", "smtp_security": "none"}
        options = {**ports, "accept_unauthenticated_senders": "true"}
        self.given = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
        self.answers = {"The agent's address:": self._agent, "The password of the mailbox:": PASSWORD}
        self.answers |= {"The IMAP server:": "127.0.0.1", "The SMTP server:": "127.0.0.1"}

    async def say(self) -> None:
        await asyncio.to_thread(self._server.send, self.person, self._agent, "hello bot")

    async def heard(self) -> str:
        mails = await asyncio.to_thread(self._server.read, self.person)
        return str([mail.get_content() for mail in mails])


@asynccontextmanager
async def _telegram(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[SetupSubject]:
    async with telegramapi.running() as api:
        yield TelegramSetup(api)


@asynccontextmanager
async def _slack(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[SetupSubject]:
    async with slackapi.running() as api:
        yield SlackSetup(api)


@asynccontextmanager
async def _discord(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[SetupSubject]:
    async with discordapi.running() as api:
        yield DiscordSetup(api)


@asynccontextmanager
async def _matrix(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[SetupSubject]:
    homeserver, number = request.getfixturevalue("homeserver"), f"{next(NUMBERS)}-setup-{os.getpid()}"
    agent, _ = await synapse.register(homeserver, f"agent{number}")
    alice = EncryptedPerson(homeserver, f"alice{number}", folder / "alice")
    await alice.register()
    try:
        yield MatrixSetup(homeserver, agent, alice)
    finally:
        await alice.close()


@asynccontextmanager
async def _email(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[SetupSubject]:
    yield EmailSetup(request.getfixturevalue("mailserver"))


SUBJECTS = {"telegram": _telegram, "slack": _slack, "discord": _discord, "matrix": _matrix, "email": _email}
FIXTURES = {"matrix": "homeserver", "email": "mailserver"}
"""The fixtures to prepare outside the thread."""
