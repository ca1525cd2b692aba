"""Telegram, through python-telegram-bot's client: long polling or a webhook, edits, typing, buttons, files.

This module parses updates itself, because the library rejects a whole batch for one malformed update. An update is
acknowledged by requesting the next ones, which happens only after it is stored. Telegram cannot detect duplicates.
"""

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

from holdfast.gateway.platforms import http, webhook_server
from holdfast.gateway.port import (
    Attachment,
    DeliveryResult,
    DeliveryUnknown,
    InboundPort,
    Incoming,
    Outgoing,
    Platform,
    PlatformLimits,
    PlatformOptions,
    Rejected,
    RetryLater,
    Sent,
    describe_error,
)
from holdfast.gateway.split import utf16_length
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import Clock
from holdfast.safe_fetch import TooLarge
from holdfast.tasks import running

API_URL = "https://api.telegram.org"
POLL_SECONDS = 30
UPDATE_TYPES = ("message", "edited_message", "callback_query")
"""The update types that we request."""
FILE_FIELDS = ("document", "photo", "audio", "voice", "video", "video_note", "animation")
SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 # the name of a header
Json = dict[str, Any]


class TelegramClient(Bot):
    """The library's client, with access to unparsed updates."""

    async def get_raw_updates(self, offset: int, seconds: int) -> list[Any]:
        """Updates from this number on. Waits for the first, and returns an empty list after this time."""
        parameters = {"offset": offset, "timeout": seconds, "allowed_updates": list(UPDATE_TYPES), "limit": 100}
        found = await self._post("getUpdates", parameters, read_timeout=POLL_SECONDS + 10)
        return found if isinstance(found, list) else []


class Telegram:
    def __init__(self, bot: TelegramClient, options: PlatformOptions) -> None:
        self._bot = bot
        self._files = http.make_fetcher(options, options.text("api_url", API_URL))
        self._webhook = options.text("webhook_url", "")
        self._secret = options.text("webhook_secret", "")
        self._listen_address = webhook_server.listen_address(options) if self._webhook else None
        if self._webhook and len(self._secret) < 16:
            raise Invalid(f"[gateway.{options.name}] webhook_secret needs at least 16 characters")
        self.limits = PlatformLimits(text=4096, measure=utf16_length, edits=True, typing_seconds=4.0, chat_seconds=1.0)

    async def receive(self, intake: InboundPort, position: str) -> None:
        try:
            if self._listen_address is not None:
                await self._listen(intake, self._listen_address)
            else:
                await self._poll(intake, int(position or 0))
        except TelegramError as e:
            raise Unavailable(f"Telegram does not answer: {describe_error(e)}") from e

    async def _poll(self, intake: InboundPort, offset: int) -> None:
        await self._bot.delete_webhook(drop_pending_updates=False)
        wait = 0  # the first request only checks that Telegram responds
        while True:
            updates = await self._bot.get_raw_updates(offset, wait)
            wait = POLL_SECONDS
            await intake.report_connected()
            offset = max([offset, *(_update_id(update) + 1 for update in updates)])
            await intake.take([self._payload(update) for update in updates], str(offset))

    async def _listen(self, intake: InboundPort, address: tuple[str, int]) -> None:
        async def handle(headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
            if not hmac.compare_digest(headers.get(SECRET_HEADER, "").encode(), self._secret.encode()):
                return 401, b'{"error":"wrong secret"}'
            await intake.take([self._payload(_decode_update(body))])
            return 200, b"{}"

        async with running(webhook_server.serve(address, handle)) as (server,):
            await self._bot.set_webhook(self._webhook, secret_token=self._secret, allowed_updates=UPDATE_TYPES)
            await intake.report_connected()
            await server

    def _payload(self, update: object) -> str:
        return json.dumps({"me": self._bot.id, "name": self._bot.username, "update": update})

    def read(self, payload: str) -> Incoming:
        given = json.loads(payload)
        update = given["update"]
        if "callback_query" in update:
            return _parse_button(update["callback_query"])
        message = update.get("message") or update.get("edited_message")
        if message is None:
            chat = f"update {update['update_id']}"
            return Incoming(chat=chat, message="none", ignored="an update without a message")
        return _parse_message(message, given["me"], str(given["name"] or ""))

    async def send(self, message: Outgoing) -> DeliveryResult:
        try:
            if message.file is not None:
                sent = await self._send_file(message, message.file)
            else:
                sent = await self._bot.send_message(text=message.text, **_send_arguments(message))
        except BadRequest as e:
            return RetryLater(describe_error(e), 1.0) if "Too Many" in str(e) else Rejected(describe_error(e))
        except TelegramError as e:
            return _delivery_result(e)
        return Sent(str(sent.message_id))

    async def _send_file(self, message: Outgoing, path: Path) -> Any:
        with path.open("rb") as file:
            return await self._bot.send_document(document=file, filename=path.name, **_send_arguments(message))

    async def edit(self, chat: str, remote: str, text: str) -> DeliveryResult:
        try:
            await self._bot.edit_message_text(text, chat_id=int(chat.partition(":")[0]), message_id=int(remote))
        except BadRequest as e:
            return Sent(remote) if "not modified" in str(e) else Rejected(describe_error(e))
        except TelegramError as e:
            # Repeating an edit is harmless.
            result = _delivery_result(e)
            return RetryLater(result.reason) if isinstance(result, DeliveryUnknown) else result
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
            raise Unavailable(f"Telegram did not provide the file: {describe_error(e)}") from e
        if not file.file_path:
            raise Unavailable("Telegram did not return a path for the file")
        await self._files.save(file.file_path, target, max_bytes)


def _decode_update(body: bytes) -> object:
    """Decode an update; invalid JSON is kept as text."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "surrogateescape")


def _update_id(update: object) -> int:
    number = update.get("update_id") if isinstance(update, dict) else None
    return number if isinstance(number, int) else 0


def _chat_key(message: Json) -> str:
    chat, thread = str(message["chat"]["id"]), message.get("message_thread_id")
    return f"{chat}:{thread}" if thread is not None and message.get("is_topic_message") else chat


def _parse_message(message: Json, me: int, name: str) -> Incoming:
    text, sender = _message_text(message), message.get("from") or message.get("sender_chat") or {}
    mention = f"@{name}".lower()
    replies_to_us = ((message.get("reply_to_message") or {}).get("from") or {}).get("id") == me
    edited = message.get("edit_date")
    return Incoming(
        chat=_chat_key(message),
        message=f"{message['message_id']}/{edited}" if edited else str(message["message_id"]),
        person=str(sender.get("id", "")),
        name=" ".join(str(sender[key]) for key in ("first_name", "last_name") if sender.get(key)),
        text=_strip_bot_name(text, mention),
        attachments=tuple(_parse_files(message)),
        private=message["chat"].get("type") == "private",
        addressed=mention in text.lower() or replies_to_us,
        reply_to=str(message["message_id"]),
        ignored=_ignore_reason(message, sender, me),
    )


def _ignore_reason(message: Json, sender: Json, me: int) -> str:
    if sender.get("id") == me:
        return "our own message"
    if sender.get("is_bot"):
        return "message of another bot"
    return "an edit" if message.get("edit_date") else ""


def _message_text(message: Json) -> str:
    text = message.get("text") or message.get("caption") or ""
    if sticker := message.get("sticker"):
        return f"[sticker: {sticker.get('emoji', '')}]"
    if location := message.get("location"):
        return f"[location: {location['latitude']}, {location['longitude']}]"
    if contact := message.get("contact"):
        return f"[contact: {contact.get('first_name', '')} {contact.get('phone_number', '')}]"
    return str(text)


def _strip_bot_name(text: str, mention: str) -> str:
    """Remove our name from a command as it is typed in groups (`/new@our_bot`) and from the start of a message."""
    head, _, rest = text.partition(" ")
    if head.lower() == mention:
        return rest
    return (
        f"{head[: -len(mention)]} {rest}".strip() if head.lower().endswith(mention) and head.startswith("/") else text
    )


def _parse_files(message: Json) -> list[Attachment]:
    found = []
    for kind in FILE_FIELDS:
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
    # An animation is also listed as a document, for older clients.
    return found[:1] if message.get("animation") else found


def _parse_button(query: Json) -> Incoming:
    """Parse a pressed button; its data is `value delivery`."""
    value, _, about = str(query.get("data", "")).partition(" ")
    message = query.get("message") or {}
    sender = query["from"]
    return Incoming(
        chat=_chat_key(message) if "chat" in message else f"person {sender['id']}",
        message=f"pressed {query['id']}",
        person=str(sender["id"]),
        name=str(sender.get("first_name", "")),
        private=(message.get("chat") or {}).get("type") == "private",
        pressed=value,
        about=about,
        reply_to=str(message.get("message_id", "")),
    )


def _send_arguments(message: Outgoing) -> Json:
    """The chat, the reply reference and the buttons of a message."""
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


def _delivery_result(error: TelegramError) -> RetryLater | Rejected | DeliveryUnknown:
    """The delivery result of an error: whether Telegram may have accepted the message."""
    match error:
        case RetryAfter():
            after = error.retry_after
            return RetryLater(
                describe_error(error), float(after.total_seconds() if not isinstance(after, int) else after)
            )
        case InvalidToken() | Conflict():
            return RetryLater(describe_error(error), everywhere=True)
        case Forbidden() | ChatMigrated() | BadRequest():
            return Rejected(describe_error(error))
        case NetworkError() if "ConnectError" in str(error) or "ConnectTimeout" in str(error):
            return RetryLater(describe_error(error), everywhere=True)
        case TimedOut() | NetworkError():
            return DeliveryUnknown(describe_error(error))
    return DeliveryUnknown(describe_error(error))


@asynccontextmanager
async def connect(options: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
    base = options.text("api_url", API_URL).rstrip("/")
    request = HTTPXRequest(connect_timeout=10, read_timeout=15, write_timeout=30)
    bot = TelegramClient(
        options.text("token"),
        base_url=f"{base}/bot",
        base_file_url=f"{base}/file/bot",
        request=request,
        get_updates_request=HTTPXRequest(connect_timeout=10, read_timeout=POLL_SECONDS + 10),
    )
    try:
        await bot.initialize()
    except InvalidToken as e:
        raise Invalid(f"[gateway.{options.name}] token: Telegram rejects it") from e
    except TelegramError as e:
        raise Unavailable(f"Telegram does not answer: {describe_error(e)}") from e
    try:
        yield Telegram(bot, options)
    finally:
        await bot.shutdown()
