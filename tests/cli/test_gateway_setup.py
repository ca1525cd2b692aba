"""`holdfast gateway setup`, as a user runs it in a terminal."""

import asyncio
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Holdfast
from tests.cli.terminal import ENTER, Terminal
from tests.gateway import telegramapi
from tests.gateway.telegramapi import TOKEN, TelegramApi

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


class TelegramThread:
    """The fake of Telegram in a thread of its own, because the terminal blocks."""

    def __init__(self) -> None:
        self.api: TelegramApi
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    async def _run(self) -> None:
        async with telegramapi.running() as self.api:
            self._ready.set()
            await self._stop.wait()

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def say(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self.api.say, text)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def telegram() -> Iterator[TelegramThread]:
    running = TelegramThread()
    running.start()
    yield running
    running.stop()


def start(home: Path, telegram: TelegramThread, *args: str) -> Terminal:
    return Terminal(home, "gateway", "setup", "telegram", "--set", f"api_url={telegram.api.url}", *args)


def test_a_person_is_led_to_a_working_bot(home: Path, telegram: TelegramThread) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('# mine\nmodel = "scripted:echo"\n')
    with start(home, telegram) as terminal:
        terminal.see("send /newbot")
        terminal.see("The bot's token:")
        terminal.say(TOKEN)
        terminal.see("Connected to Telegram.")
        terminal.see("press Start")
        telegram.say("hello bot")
        terminal.see("Alice (id 1) wrote. Is that you?")
        terminal.press(ENTER)
        terminal.see("Start the server: holdfast serve")
        assert terminal.wait() == 0
        assert TOKEN not in terminal.text, "a secret is not echoed"

    text = (home / "config.toml").read_text()
    assert text.startswith('# mine\nmodel = "scripted:echo"\n'), "what was there is kept"
    assert tomllib.loads(text)["gateway"]["telegram"] == {
        "api_url": telegram.api.url,
        "token": TOKEN,
        "allow": ["1"],
    }
    assert (home / "config.toml").stat().st_mode & 0o777 == 0o600
    assert "Holdfast is set up" in telegram.api.messages[-1]["text"]
    assert telegram.api.confirmed == 0, "the server will answer the message"


def test_a_stranger_who_writes_first_gets_no_access(home: Path, telegram: TelegramThread) -> None:
    with start(home, telegram, "--set", f"token={TOKEN}") as terminal:
        terminal.see("Waiting up to 5 minutes")
        telegram.say("I am not you")
        terminal.see("Is that you?")
        terminal.say("n")
        terminal.see("Nobody may talk to the agent yet.")
        assert terminal.wait() == 0

    assert "allow" not in tomllib.loads((home / "config.toml").read_text())["gateway"]["telegram"]


def test_a_wrong_token_changes_nothing(home: Path, telegram: TelegramThread) -> None:
    with start(home, telegram, "--set", "token=123:wrong") as terminal:
        terminal.see("token: Telegram rejects it")
        assert terminal.wait() == 2

    assert not (home / "config.toml").exists()


def test_what_setup_does_not_know_is_refused(holdfast: Holdfast, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[gateway.telegram]\ntoken = "1:x"\n')

    assert "unknown" not in holdfast("gateway", "setup", "--help").err
    assert holdfast("gateway", "setup", "fax").code == 2
    assert "expected one of" in holdfast("gateway", "setup", "discord", "--set", "tokn=x").err
    existing = holdfast("gateway", "setup", "telegram", "--set", "token=1:x")
    assert "[gateway.telegram] exists" in existing.err
    missing = holdfast("gateway", "setup", "discord")
    assert "give it with --set token=" in missing.err


def test_doctor_reports_what_a_platform_lacks(holdfast: Holdfast, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[gateway.telegram]\ntokn = "1:x"\n[gateway.fax]\nnumber = "1"\n')
    (home / "config.toml").chmod(0o600)
    ran = holdfast("doctor", "--json")

    assert ran.code == 1
    problems = "\n".join(ran.json["problems"])
    assert "[gateway.telegram] unknown setting tokn" in problems
    assert "[gateway.telegram] needs token" in problems
    assert "[gateway.fax] unknown platform 'fax'" in problems
