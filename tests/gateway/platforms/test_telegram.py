"""The python-telegram-bot client against a fake Bot API."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from holdfast.gateway.platforms import telegram
from holdfast.gateway.port import Attachment, DeliveryUnknown, Outgoing, PlatformOptions, Rejected, RetryLater, Sent
from holdfast.safe_fetch import TooLarge
from holdfast.store.repos import inbox, session_list
from holdfast.store.sqlite.driver import open_sqlite
from tests.fakes.clock import FakeClock
from tests.gateway import telegramapi
from tests.gateway.crash_loop import MESSAGES, CrashLoop
from tests.gateway.synapse import free_port
from tests.gateway.telegramapi import TOKEN, TelegramApi

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
async def api() -> AsyncIterator[TelegramApi]:
    async with telegramapi.running() as running:
        yield running


@pytest.fixture
async def platform(api: TelegramApi) -> AsyncIterator[telegram.Telegram]:
    async with telegram.connect(
        PlatformOptions("telegram", {"token": TOKEN, "api_url": api.url}), FakeClock()
    ) as opened:
        assert isinstance(opened, telegram.Telegram)
        yield opened


async def until(api: TelegramApi, holds: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds), api.changed:
        await api.changed.wait_for(holds)


def out(text: str = "hello", **more: object) -> Outgoing:
    return Outgoing(**{"chat": "1", "text": text, "key": "out-1-1", **more})  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")  # the library warns itself
async def test_the_error_of_telegram_determines_the_delivery_result(
    api: TelegramApi, platform: telegram.Telegram
) -> None:
    busy = (429, {"description": "Too Many Requests: retry after 7", "parameters": {"retry_after": 7}})
    api.problems = [busy, (500, {"description": "Internal"}), "close", "lose"]

    later, broken, closed, lost, sent = [await platform.send(out()) for _ in range(5)]

    assert isinstance(later, RetryLater)
    assert later.after_seconds == 7
    assert [type(one) for one in (broken, closed, lost)] == [DeliveryUnknown, DeliveryUnknown, DeliveryUnknown]
    assert isinstance(sent, Sent)
    assert api.texts == ["hello", "hello"]


async def test_a_missing_chat_is_rejected_and_an_unavailable_server_is_retried(
    api: TelegramApi, platform: telegram.Telegram
) -> None:
    gone = await platform.send(out(chat="404"))
    away = telegram.connect(
        PlatformOptions("t", {"token": TOKEN, "api_url": f"http://127.0.0.1:{free_port()}"}), FakeClock()
    )

    assert isinstance(gone, Rejected)
    with pytest.raises(Exception, match="does not answer"):
        async with away:
            pass


async def test_topics_replies_and_buttons_are_sent_to_the_right_place(
    api: TelegramApi, platform: telegram.Telegram
) -> None:
    from holdfast.store.repos.outbox import ReplyChoice

    message = out(reply_to="77", choices=(ReplyChoice("allow", "Allow"), ReplyChoice("deny", "Deny")), about="out-9")
    assert isinstance(await platform.send(message), Sent)

    [sent] = api.messages
    assert sent["reply_parameters"]["message_id"] == 77
    assert [one["callback_data"] for one in sent["reply_markup"]["inline_keyboard"][0]] == ["allow out-9", "deny out-9"]


async def test_a_message_is_edited_and_an_edit_without_a_change_is_no_error(
    api: TelegramApi, platform: telegram.Telegram
) -> None:
    sent = await platform.send(out("first"))
    assert isinstance(sent, Sent)

    assert await platform.edit("1", sent.remote, "second") == sent
    assert await platform.edit("1", sent.remote, "second") == sent
    assert isinstance(await platform.edit("1", "5", "x"), Rejected)
    assert api.texts == ["second"]


async def test_files_are_fetched_up_to_the_limit(api: TelegramApi, platform: telegram.Telegram, tmp_path: Path) -> None:
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
    return {"message_id": 3, "date": 1, "chat": chat, "from": telegramapi.ALICE, "text": "hi", **more}


def read(platform: telegram.Telegram, update: object) -> object:
    import json

    return platform.read(json.dumps({"me": 999, "name": "holdfast_bot", "update": update}))


async def test_updates_of_every_kind_are_parsed(platform: telegram.Telegram) -> None:
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


async def serve(api: TelegramApi, home: Path, more: str = "") -> CrashLoop:
    home.mkdir()
    (home / "config.toml").write_text(CONFIG.format(token=TOKEN, url=api.url, more=more))
    return CrashLoop(home, ())


@pytest.mark.clients
async def test_malformed_updates_are_stored_and_block_nothing(api: TelegramApi, tmp_path: Path) -> None:
    odd = [{"message": {"text": "no chat"}}, {"message": "a text"}, {"callback_query": {}}, {"message": None}]
    for update in odd:
        api.put(update)
    api.say("still there?")
    async with await serve(api, tmp_path / "home") as loop:
        await until(api, lambda: bool(api.messages))
        loop.check()

    assert api.texts == ["You said: still there?"]
    database = await open_sqlite(tmp_path / "home" / "holdfast.db")
    dead = await database.read(inbox.list_dead, 100)
    await database.close()
    assert len(dead) == 3


@pytest.mark.clients
async def test_a_webhook_works_as_polling_does(api: TelegramApi, tmp_path: Path) -> None:
    port = free_port()
    more = f"""webhook_url = "http://127.0.0.1:{port}/"
webhook_secret = "a secret of some length"
listen = "127.0.0.1:{port}"
"""
    for number in range(5):
        api.say(f"message {number}")
    async with await serve(api, tmp_path / "home", more) as loop:
        await until(api, lambda: len(api.messages) >= 5)
        loop.check()

    assert api.texts == [f"You said: message {number}" for number in range(5)]
    assert api.updates == []


@pytest.mark.clients
@pytest.mark.timeout(200 + 2 * MESSAGES)
async def test_messages_survive_kills_at_every_point(api: TelegramApi, tmp_path: Path) -> None:
    home = tmp_path / "home"
    await serve(api, home)
    # All updates arrive in one batch, so the first two starts receive the first two.
    crash_points = ["received:1", "kept:1", "unsent:3", "sent:5"]
    chats = [{"id": number, "type": "private"} for number in range(1, 21)]
    for number in range(MESSAGES):
        api.say(f"message {number}", chat=chats[number % 20])
    async with CrashLoop(home, crash_points) as loop, asyncio.timeout(100 + 2 * MESSAGES):
        while len(loop.crashed) < len(crash_points) or len(api.messages) < MESSAGES:
            loop.check()
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
    page = await database.read(session_list.list_page, session_list.SessionFilters(), limit=100)
    await database.close()
    assert sum(session.summary.turn_count for session in page.sessions) == MESSAGES


async def settled(home: Path) -> None:
    """Wait until the outbox is empty."""
    from holdfast.store.repos import outbox

    while True:
        database = await open_sqlite(home / "holdfast.db")
        left = await database.read(outbox.count_by_state)
        await database.close()
        if not left:
            return
        await asyncio.sleep(0.3)
