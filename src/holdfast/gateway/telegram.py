"""Telegram, through python-telegram-bot's client: long polling or a webhook, edits, typing, buttons, files.

Updates are read here and not by the library, which would refuse all of a batch for one odd update. An update is
acknowledged by asking for those behind it, which happens only when it is kept. Telegram cannot tell what is sent twice.
"""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, ReplyParameters
from telegram.constants import ChatAction
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)
from telegram.request import HTTPXRequest

from holdfast.gateway import listen, web
from holdfast.gateway.port import (
    Attachment,
    Fate,
    Incoming,
    Inlet,
    Later,
    Limits,
    Never,
    Options,
    Outgoing,
    Platform,
    Sent,
    TooLarge,
    Unsure,
    reason,
)
from holdfast.gateway.split import utf16
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import Clock

POLL_SECONDS = 30
KINDS = ("message", "edited_message", "callback_query")
"""The updates we ask for."""
FILES = ("document", "photo", "audio", "voice", "video", "video_note", "animation")
SECRET = "x-telegram-bot-api-secret-token"  # noqa: S105 # the name of a header
Json = dict[str, Any]


class Client(Bot):
    """The library's client, which can also give updates as they came."""

    async def raw_updates(self, offset: int) -> list[Any]:
        """What came from that number on, after a while also nothing."""
        asked = {"offset": offset, "timeout": POLL_SECONDS, "allowed_updates": list(KINDS), "limit": 100}
        found = await self._post("getUpdates", asked, read_timeout=POLL_SECONDS + 10)
        return found if isinstance(found, list) else []


class Telegram:
    def __init__(self, bot: Client, options: Options) -> None:
        self._bot = bot
        self._webhook = options.text("webhook_url", "")
        self._secret = options.text("webhook_secret", "")
        self._where = listen.address(options) if self._webhook else None
        if self._webhook and len(self._secret) < 16:
            raise Invalid(f"[gateway.{options.name}] webhook_secret needs at least 16 characters")
        self.limits = Limits(text=4096, measure=utf16, edits=True, typing_seconds=4.0, chat_seconds=1.0)

    async def receive(self, inlet: Inlet, position: str) -> None:
        try:
            if self._where is not None:
                await self._listen(inlet, self._where)
            else:
                await self._poll(inlet, int(position or 0))
        except TelegramError as e:
            raise Unavailable(f"Telegram does not answer: {reason(e)}") from e

    async def _poll(self, inlet: Inlet, offset: int) -> None:
        await self._bot.delete_webhook(drop_pending_updates=False)
        while True:
            updates = await self._bot.raw_updates(offset)
            await inlet.connected()
            offset = max([offset, *(_number(update) + 1 for update in updates)])
            await inlet.take([self._payload(update) for update in updates], str(offset))

    async def _listen(self, inlet: Inlet, where: tuple[str, int]) -> None:
        async def answer(headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
            if not hmac.compare_digest(headers.get(SECRET, "").encode(), self._secret.encode()):
                return 401, b'{"error":"wrong secret"}'
            await inlet.take([self._payload(_parsed(body))])
            return 200, b"{}"

        server = asyncio.ensure_future(listen.serve(where, answer))
        try:
            await self._bot.set_webhook(self._webhook, secret_token=self._secret, allowed_updates=KINDS)
            await inlet.connected()
            await server
        finally:
            server.cancel()
            await asyncio.wait({server})

    def _payload(self, update: object) -> str:
        return json.dumps({"me": self._bot.id, "name": self._bot.username, "update": update})

    def read(self, payload: str) -> Incoming:
        given = json.loads(payload)
        update = given["update"]
        if "callback_query" in update:
            return _pressed(update["callback_query"])
        message = update.get("message") or update.get("edited_message")
        if message is None:
            chat = f"update {update['update_id']}"
            return Incoming(chat=chat, message="none", ignored="an update without a message")
        return _message(message, given["me"], str(given["name"] or ""))

    async def send(self, message: Outgoing) -> Fate:
        try:
            if message.file is not None:
                sent = await self._send_file(message, message.file)
            else:
                sent = await self._bot.send_message(text=message.text, **_to(message))
        except BadRequest as e:
            return Later(reason(e), 1.0) if "Too Many" in str(e) else Never(reason(e))
        except TelegramError as e:
            return _fate(e)
        return Sent(str(sent.message_id))

    async def _send_file(self, message: Outgoing, path: Path) -> Any:
        with path.open("rb") as file:
            return await self._bot.send_document(document=file, filename=path.name, **_to(message))

    async def edit(self, chat: str, remote: str, text: str) -> Fate:
        try:
            await self._bot.edit_message_text(text, chat_id=int(chat.partition(":")[0]), message_id=int(remote))
        except BadRequest as e:
            return Sent(remote) if "not modified" in str(e) else Never(reason(e))
        except TelegramError as e:
            # A change that is made twice is made once.
            fate = _fate(e)
            return Later(fate.reason) if isinstance(fate, Unsure) else fate
        return Sent(remote)

    async def typing(self, chat: str) -> None:
        chat_id, _, thread = chat.partition(":")
        try:
            await self._bot.send_chat_action(
                int(chat_id), ChatAction.TYPING, message_thread_id=int(thread) if thread else None
            )
        except TelegramError:
            pass

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        try:
            file = await self._bot.get_file(attachment.ref)
            if file.file_size is not None and file.file_size > max_bytes:
                raise TooLarge(f"{attachment.name} has {file.file_size:,} bytes")
        except TelegramError as e:
            raise Unavailable(f"Telegram does not give it: {reason(e)}") from e
        if not file.file_path:
            raise Unavailable("Telegram does not say where it is")
        await web.fetch(file.file_path, target, max_bytes)


def _parsed(body: bytes) -> object:
    """The update in a request; one that is no JSON is kept as the text it is."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "surrogateescape")


def _number(update: object) -> int:
    number = update.get("update_id") if isinstance(update, dict) else None
    return number if isinstance(number, int) else 0


def _chat(message: Json) -> str:
    chat, thread = str(message["chat"]["id"]), message.get("message_thread_id")
    return f"{chat}:{thread}" if thread is not None and message.get("is_topic_message") else chat


def _message(message: Json, me: int, name: str) -> Incoming:
    text, sender = _text(message), message.get("from") or message.get("sender_chat") or {}
    called = f"@{name}".lower()
    answers_us = ((message.get("reply_to_message") or {}).get("from") or {}).get("id") == me
    edited = message.get("edit_date")
    return Incoming(
        chat=_chat(message),
        message=f"{message['message_id']}/{edited}" if edited else str(message["message_id"]),
        person=str(sender.get("id", "")),
        name=" ".join(str(sender[key]) for key in ("first_name", "last_name") if sender.get(key)),
        text=_without_name(text, called),
        attachments=tuple(_files(message)),
        private=message["chat"].get("type") == "private",
        addressed=called in text.lower() or answers_us,
        reply_to=str(message["message_id"]),
        ignored=_ignored(message, sender, me),
    )


def _ignored(message: Json, sender: Json, me: int) -> str:
    if sender.get("id") == me:
        return "our own words"
    if sender.get("is_bot"):
        return "words of another program"
    return "an edit" if message.get("edit_date") else ""


def _text(message: Json) -> str:
    text = message.get("text") or message.get("caption") or ""
    if sticker := message.get("sticker"):
        return f"[sticker: {sticker.get('emoji', '')}]"
    if place := message.get("location"):
        return f"[location: {place['latitude']}, {place['longitude']}]"
    if contact := message.get("contact"):
        return f"[contact: {contact.get('first_name', '')} {contact.get('phone_number', '')}]"
    return str(text)


def _without_name(text: str, called: str) -> str:
    """A command as it is typed in groups, `/new@our_bot`, without the name; the name before words goes as well."""
    head, _, rest = text.partition(" ")
    if head.lower() == called:
        return rest
    return f"{head[: -len(called)]} {rest}".strip() if head.lower().endswith(called) and head.startswith("/") else text


def _files(message: Json) -> list[Attachment]:
    found = []
    for kind in FILES:
        given = message.get(kind)
        if kind == "photo" and given:
            given = {"mime_type": "image/jpeg", "file_name": "photo.jpg", **max(given, key=lambda one: one["width"])}
        if given:
            found.append(
                Attachment(
                    ref=given["file_id"],
                    name=given.get("file_name") or kind,
                    media_type=given.get("mime_type", ""),
                    size=given.get("file_size"),
                )
            )
    # An animation is sent as a document, too, for older programs.
    return found[:1] if message.get("animation") else found


def _pressed(query: Json) -> Incoming:
    """A button: what it stands for is `value delivery`."""
    value, _, about = str(query.get("data", "")).partition(" ")
    message = query.get("message") or {}
    sender = query["from"]
    return Incoming(
        chat=_chat(message) if "chat" in message else f"person {sender['id']}",
        message=f"pressed {query['id']}",
        person=str(sender["id"]),
        name=str(sender.get("first_name", "")),
        private=(message.get("chat") or {}).get("type") == "private",
        pressed=value,
        about=about,
        reply_to=str(message.get("message_id", "")),
    )


def _to(message: Outgoing) -> Json:
    """Where a message goes, and what stands under it."""
    chat, _, thread = message.chat.partition(":")
    to: Json = {"chat_id": int(chat)}
    if thread:
        to["message_thread_id"] = int(thread)
    if message.reply_to.isdecimal():
        to["reply_parameters"] = ReplyParameters(int(message.reply_to), allow_sending_without_reply=True)
    if message.choices:
        row = [InlineKeyboardButton(one.label, callback_data=f"{one.value} {message.about}") for one in message.choices]
        to["reply_markup"] = InlineKeyboardMarkup([row])
    return to


def _fate(error: TelegramError) -> Later | Never | Unsure:
    """Whether a message that broke may have been taken."""
    match error:
        case RetryAfter():
            after = error.retry_after
            return Later(reason(error), float(after.total_seconds() if not isinstance(after, int) else after))
        case InvalidToken() | Conflict():
            return Later(reason(error), everywhere=True)
        case Forbidden() | ChatMigrated() | BadRequest():
            return Never(reason(error))
        case NetworkError() if "ConnectError" in str(error) or "ConnectTimeout" in str(error):
            return Later(reason(error), everywhere=True)
        case TimedOut() | NetworkError():
            return Unsure(reason(error))
    return Unsure(reason(error))


@asynccontextmanager
async def connect(options: Options, clock: Clock) -> AsyncIterator[Platform]:
    base = options.text("api_url", "https://api.telegram.org").rstrip("/")
    request = HTTPXRequest(connect_timeout=10, read_timeout=15, write_timeout=30)
    bot = Client(
        options.text("token"),
        base_url=f"{base}/bot",
        base_file_url=f"{base}/file/bot",
        request=request,
        get_updates_request=HTTPXRequest(connect_timeout=10, read_timeout=POLL_SECONDS + 10),
    )
    try:
        await bot.initialize()
    except InvalidToken as e:
        raise Invalid(f"[gateway.{options.name}] token: Telegram does not know it") from e
    except TelegramError as e:
        raise Unavailable(f"Telegram does not answer: {reason(e)}") from e
    try:
        yield Telegram(bot, options)
    finally:
        await bot.shutdown()
