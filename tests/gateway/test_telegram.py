"""Telegram's official Python client against a stand-in for the Bot API."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from holdfast.gateway import telegram
from holdfast.gateway.port import Attachment, Later, Never, Options, Outgoing, Sent, TooLarge, Unsure
from holdfast.store import inbox, sessions
from holdfast.store.sqlite import open_sqlite
from tests.fakes.clock import FakeClock
from tests.gateway import botapi
from tests.gateway.botapi import TOKEN, BotApi
from tests.gateway.keeper import MESSAGES, Keeper
from tests.gateway.synapse import free_port

CONFIG = """
model = "scripted:echo"
[agent]
titles = false
[gateway.telegram]
token = "{token}"
api_url = "{url}"
allow = [1]
tell_queued = false
{more}
"""


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with botapi.running() as running:
        yield running


@pytest.fixture
async def platform(api: BotApi) -> AsyncIterator[telegram.Telegram]:
    async with telegram.connect(Options("telegram", {"token": TOKEN, "api_url": api.url}), FakeClock()) as opened:
        assert isinstance(opened, telegram.Telegram)
        yield opened


async def until(api: BotApi, holds: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds), api.changed:
        await api.changed.wait_for(holds)


def out(text: str = "hello", **more: object) -> Outgoing:
    return Outgoing(**{"chat": "1", "text": text, "key": "out-1-1", **more})  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")  # the library warns itself
async def test_what_telegram_says_decides_what_becomes_of_a_message(api: BotApi, platform: telegram.Telegram) -> None:
    busy = (429, {"description": "Too Many Requests: retry after 7", "parameters": {"retry_after": 7}})
    api.troubles = [busy, (500, {"description": "Internal"}), "close", "lose"]

    later, broken, closed, lost, sent = [await platform.send(out()) for _ in range(5)]

    assert isinstance(later, Later)
    assert later.after_seconds == 7
    assert [type(one) for one in (broken, closed, lost)] == [Unsure, Unsure, Unsure]
    assert isinstance(sent, Sent)
    assert api.texts == ["hello", "hello"]


async def test_a_chat_that_is_gone_is_gone_and_a_server_that_is_away_may_come_back(
    api: BotApi, platform: telegram.Telegram
) -> None:
    gone = await platform.send(out(chat="404"))
    away = telegram.connect(Options("t", {"token": TOKEN, "api_url": f"http://127.0.0.1:{free_port()}"}), FakeClock())

    assert isinstance(gone, Never)
    with pytest.raises(Exception, match="does not answer"):
        async with away:
            pass


async def test_topics_replies_and_buttons_go_where_they_belong(api: BotApi, platform: telegram.Telegram) -> None:
    from holdfast.store.outbox import Choice

    message = out(reply_to="77", choices=(Choice("allow", "Allow"), Choice("deny", "Deny")), about="out-9")
    assert isinstance(await platform.send(message), Sent)

    [sent] = api.messages
    assert sent["reply_parameters"]["message_id"] == 77
    assert [one["callback_data"] for one in sent["reply_markup"]["inline_keyboard"][0]] == ["allow out-9", "deny out-9"]


async def test_a_message_is_changed_and_changing_it_to_the_same_is_no_error(
    api: BotApi, platform: telegram.Telegram
) -> None:
    sent = await platform.send(out("first"))
    assert isinstance(sent, Sent)

    assert await platform.edit("1", sent.remote, "second") == sent
    assert await platform.edit("1", sent.remote, "second") == sent
    assert isinstance(await platform.edit("1", "5", "x"), Never)
    assert api.texts == ["second"]


async def test_files_are_fetched_within_their_limit(api: BotApi, platform: telegram.Telegram, tmp_path: Path) -> None:
    api.files = {"f1": b"content"}
    attachment = Attachment(ref="f1", name="a")

    await platform.fetch(attachment, tmp_path / "a", 100)
    assert (tmp_path / "a").read_bytes() == b"content"
    with pytest.raises(TooLarge):
        await platform.fetch(attachment, tmp_path / "b", 3)
    api.tells_sizes = False
    with pytest.raises(TooLarge):
        await platform.fetch(attachment, tmp_path / "b", 3)


def message(**more: object) -> dict[str, object]:
    chat = {"id": -5, "type": "supergroup"}
    return {"message_id": 3, "date": 1, "chat": chat, "from": botapi.ALICE, "text": "hi", **more}


def read(platform: telegram.Telegram, update: object) -> object:
    import json

    return platform.read(json.dumps({"me": 999, "name": "holdfast_bot", "update": update}))


async def test_updates_of_every_kind_are_understood(platform: telegram.Telegram) -> None:
    def of(**more: object) -> object:
        return read(platform, {"update_id": 1, "message": message(**more)})

    assert of(sticker={"emoji": "🐈"}).text == "[sticker: 🐈]"  # type: ignore[attr-defined]
    assert of(text="/new@holdfast_bot Title").text == "/new Title"  # type: ignore[attr-defined]
    assert of(text="@holdfast_bot hello").addressed  # type: ignore[attr-defined]
    assert not of(text="between us").addressed  # type: ignore[attr-defined]
    assert of(message_thread_id=9, is_topic_message=True).chat == "-5:9"  # type: ignore[attr-defined]
    photos = [{"file_id": "s", "width": 10}, {"file_id": "l", "width": 90}]
    assert [one.ref for one in of(photo=photos, caption="see").attachments] == ["l"]  # type: ignore[attr-defined]
    assert read(platform, {"update_id": 2}).ignored == "an update without a message"  # type: ignore[attr-defined]
    edit = {"update_id": 3, "edited_message": message(edit_date=7)}
    assert read(platform, edit).ignored == "an edit"  # type: ignore[attr-defined]


async def serve(api: BotApi, home: Path, more: str = "") -> Keeper:
    home.mkdir()
    (home / "config.toml").write_text(CONFIG.format(token=TOKEN, url=api.url, more=more))
    return Keeper(home, ())


@pytest.mark.clients
async def test_odd_updates_are_kept_and_stop_nothing(api: BotApi, tmp_path: Path) -> None:
    odd = [{"message": {"text": "no chat"}}, {"message": "a text"}, {"callback_query": {}}, {"message": None}]
    for update in odd:
        api.put(update)
    api.say("still there?")
    async with await serve(api, tmp_path / "home") as keeper:
        await until(api, lambda: bool(api.messages))
        keeper.check()

    assert api.texts == ["You said: still there?"]
    database = await open_sqlite(tmp_path / "home" / "holdfast.db")
    dead = await database.read(inbox.dead, 100)
    await database.close()
    assert len(dead) == 3


@pytest.mark.clients
async def test_a_webhook_works_as_polling_does(api: BotApi, tmp_path: Path) -> None:
    port = free_port()
    more = f"""webhook_url = "http://127.0.0.1:{port}/"
webhook_secret = "a secret of some length"
listen = "127.0.0.1:{port}"
"""
    for number in range(5):
        api.say(f"message {number}")
    async with await serve(api, tmp_path / "home", more) as keeper:
        await until(api, lambda: len(api.messages) >= 5)
        keeper.check()

    assert api.texts == [f"You said: message {number}" for number in range(5)]
    assert api.updates == []


@pytest.mark.clients
@pytest.mark.timeout(200 + 2 * MESSAGES)
async def test_messages_survive_deaths_at_every_point(api: BotApi, tmp_path: Path) -> None:
    home = tmp_path / "home"
    await serve(api, home)
    # All updates come in one batch, so the first two are met by the first two starts.
    deaths = ["received:1", "kept:1", "unsent:3", "sent:5"]
    chats = [{"id": number, "type": "private"} for number in range(1, 21)]
    for number in range(MESSAGES):
        api.say(f"message {number}", chat=chats[number % 20])
    async with Keeper(home, deaths) as keeper, asyncio.timeout(100 + 2 * MESSAGES):
        while len(keeper.died) < len(deaths) or len(api.messages) < MESSAGES:
            keeper.check()
            await asyncio.sleep(0.2)
        await settled(home)

    mark = "(This may be a repeat.) "
    for chat in chats:
        texts = [one["text"] for one in api.messages if one["chat"]["id"] == chat["id"]]
        plain: list[str] = []
        for text in texts:
            known = text.removeprefix(mark)
            if known in plain:
                assert text.startswith(mark), f"{text!r} came twice without a mark"
            else:
                plain.append(known)
        assert plain == [f"You said: message {n}" for n in range(MESSAGES) if n % 20 == chat["id"] - 1]
    database = await open_sqlite(home / "holdfast.db")
    page = await database.read(sessions.list_page, sessions.Filters(), limit=100)
    await database.close()
    assert sum(session.summary.turn_count for session in page.sessions) == MESSAGES


async def settled(home: Path) -> None:
    """Until nothing is left to deliver."""
    from holdfast.store import outbox

    while True:
        database = await open_sqlite(home / "holdfast.db")
        left = await database.read(outbox.depths)
        await database.close()
        if not left:
            return
        await asyncio.sleep(0.3)
