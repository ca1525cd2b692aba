"""Discord, through discord.py: receives events from its gateway, replies through its HTTP API with a nonce against duplicates.

Discord does not repeat events that it could not deliver. So the id of the newest message of each channel is stored with
the messages, and after a reconnect the later messages are read from the channels.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import discord
from discord.gateway import DiscordWebSocket
from discord.http import HTTPClient, Route
from yarl import URL

from holdfast.gateway.platforms import http as web
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
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import Clock
from holdfast.safe_fetch import SafeFetcher
from holdfast.tasks import run_until_first

EVENT_TYPES = ("MESSAGE_CREATE", "INTERACTION_CREATE")
NETWORK = (aiohttp.ClientError, TimeoutError, OSError)
USER_MESSAGE_TYPES = (0, 19, 20, 21)
"""Types of messages written by people: plain messages, replies, commands, the start of a thread."""
BUTTON_INTERACTION = 3
"""The interaction type of a button."""
PAGE_SIZE = 100
MAX_CHANNELS = 500
"""Channels whose newest message is remembered."""
NONCE_LENGTH = 25
MARKUP = re.compile(r"[\\*_~|`>#\-+\[\]()<:@]")
"""Characters that can begin or end markup, a link or a mention. A backslash before any of them shows it as it is."""
Json = dict[str, Any]


class DiscordClient(discord.Client):
    """The library's client. It queues the gateway's events unparsed and in order."""

    def __init__(self, api_url: str, gateway_url: str) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # Holdfast uses no voice
        intents = discord.Intents(guilds=True, messages=True, message_content=True)
        super().__init__(intents=intents, enable_debug_events=True, max_messages=None)
        self.events: asyncio.Queue[Json] = asyncio.Queue()
        # We parse events ourselves. The library closes the connection if it cannot parse one.
        parsers = self._connection.parsers
        for kind in set(parsers) - {"READY", "RESUMED"}:
            parsers[kind] = _ignore_event
        _redirect(self.http, api_url.rstrip("/"), gateway_url)

    async def on_socket_raw_receive(self, raw: str) -> None:
        given = json.loads(raw)
        if given.get("op") == 0 and given.get("t") in (*EVENT_TYPES, "READY", "RESUMED", "GUILD_CREATE"):
            self.events.put_nowait(given)


def _redirect(http: HTTPClient, api_url: str, gateway_url: str) -> None:
    """Let only this client use other servers than Discord's. The library keeps its URLs in classes, for all clients."""
    request, ws_connect = http.request, http.ws_connect

    async def redirected_request(route: Route, **more: Any) -> Any:
        if route.url.startswith(Route.BASE):
            route.url = api_url + route.url.removeprefix(Route.BASE)
        return await request(route, **more)

    async def redirected_connect(url: str, **more: Any) -> aiohttp.ClientWebSocketResponse:
        requested = URL(url)
        # The server itself provides the URL to resume a session; that one stays.
        if requested.origin() == DiscordWebSocket.DEFAULT_GATEWAY.origin():
            url = str(URL(gateway_url).with_query(requested.query))
        return await ws_connect(url, **more)

    if api_url:
        setattr(http, "request", redirected_request)  # noqa: B010 - mypy rejects an assignment to a method
    if gateway_url:
        setattr(http, "ws_connect", redirected_connect)  # noqa: B010 - as above


def _ignore_event(data: object) -> None:
    """Replaces the library's parser of an event."""


class Discord:
    def __init__(self, client: DiscordClient, me: int, files: SafeFetcher) -> None:
        self._client = client
        self._files = files
        self._me = str(me)
        self._newest: dict[str, tuple[int, str]] = {}
        """The newest message of each channel, and the guild of the channel, if any."""
        self.limits = PlatformLimits(
            text=2000,
            measure_literal=lambda text: len(_escape(text)),
            keyed=True,
            edits=True,
            typing_seconds=8.0,
        )

    async def receive(self, intake: InboundPort, position: str) -> None:
        known = json.loads(position or "{}").items()
        self._newest = {str(channel): (int(number), str(guild)) for channel, (number, guild) in known}
        try:
            await run_until_first(self._receive_events(intake), self._client.connect(reconnect=True))
        # AttributeError: the library raises it if the very first connection fails.
        except (discord.DiscordException, AttributeError, *NETWORK) as e:
            raise Unavailable(f"Discord does not answer: {describe_error(e)}") from e

    async def _receive_events(self, intake: InboundPort) -> None:
        while True:
            event = await self._client.events.get()
            if event["t"] in ("READY", "RESUMED"):
                await self._catch_up(intake)
                await intake.report_connected()
            elif event["t"] in EVENT_TYPES:
                await self._take(intake, [event])
                if event["t"] == "INTERACTION_CREATE":
                    await self._acknowledge(event["d"])

    async def _take(self, intake: InboundPort, events: list[Json]) -> None:
        """Store events, and the read position of their channels."""
        for event in events:
            data = event["d"] if isinstance(event["d"], dict) else {}
            channel, number = str(data.get("channel_id", "")), str(data.get("id", ""))
            if event["t"] == "MESSAGE_CREATE" and number.isdecimal():
                before, guild = self._newest.pop(channel, (0, ""))
                self._newest[channel] = max(int(number), before), str(data.get("guild_id", guild))
        self._newest = dict(list(self._newest.items())[-MAX_CHANNELS:])
        await intake.take([json.dumps({"me": self._me, **event}) for event in events], json.dumps(self._newest))

    async def _catch_up(self, intake: InboundPort) -> None:
        """Read the messages that arrived in known channels while we were disconnected."""
        for channel, (_, guild) in list(self._newest.items()):
            more: Json = {"guild_id": guild} if guild else {}
            while found := await self._fetch_newer(channel):
                await self._take(intake, [{"t": "MESSAGE_CREATE", "d": {**message, **more}} for message in found])

    async def _fetch_newer(self, channel: str) -> list[Any]:
        """Messages after the newest known one, oldest first; none if the channel is gone."""
        try:
            found = await self._client.http.logs_from(int(channel), PAGE_SIZE, after=self._newest[channel][0])
        except (discord.NotFound, discord.Forbidden):
            return []
        return sorted(found, key=lambda message: int(message["id"]))

    async def _acknowledge(self, interaction: Json) -> None:
        """Acknowledge a button; otherwise Discord shows it as failed."""
        route = Route(
            "POST", "/interactions/{id}/{token}/callback", id=interaction.get("id"), token=interaction.get("token")
        )
        try:
            await self._client.http.request(route, json={"type": 6})
        except (discord.DiscordException, *NETWORK):
            pass

    def read(self, payload: str) -> Incoming:
        given = json.loads(payload)
        if given["t"] == "INTERACTION_CREATE":
            return _parse_button(given["d"])
        return _parse_message(given["d"], given["me"])

    async def send(self, message: Outgoing) -> DeliveryResult:
        channel = self._client.get_partial_messageable(int(message.chat))
        nonce = hashlib.sha256(message.key.encode()).hexdigest()[:NONCE_LENGTH]
        more: Json = {"nonce": nonce, "allowed_mentions": discord.AllowedMentions.none()}
        if message.reply_to.isdecimal():
            more["reference"] = discord.MessageReference(
                message_id=int(message.reply_to), channel_id=int(message.chat), fail_if_not_exists=False
            )
        if message.choices:
            more["view"] = _make_buttons(message)
        if message.file is not None:
            more["file"] = discord.File(message.file)
        try:
            sent = await channel.send(_escape(message.text) if message.literal else message.text, **more)
        except (discord.DiscordException, *NETWORK) as e:
            return _delivery_result(e)
        return Sent(str(sent.id))

    async def edit(self, chat: str, remote: str, text: str) -> DeliveryResult:
        message = self._client.get_partial_messageable(int(chat)).get_partial_message(int(remote))
        try:
            await message.edit(content=text)
        except (discord.DiscordException, *NETWORK) as e:
            result = _delivery_result(e)
            # Repeating an edit is harmless.
            return RetryLater(result.reason) if isinstance(result, DeliveryUnknown) else result
        return Sent(remote)

    async def typing(self, chat: str) -> None:
        try:
            await self._client.http.send_typing(int(chat))
        except (discord.DiscordException, *NETWORK):
            pass

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        await self._files.save(attachment.ref, target, max_bytes)


def _escape(text: str) -> str:
    return MARKUP.sub(r"\\\g<0>", text)


def _parse_message(message: Json, me: str) -> Incoming:
    author, text = message["author"], str(message.get("content") or "")
    names = (f"<@{me}>", f"<@!{me}>")
    mentioned = me in [str(one.get("id")) for one in message.get("mentions") or ()]
    for name in names:
        text = text.replace(name, "")
    stickers = [f"[sticker: {one.get('name', '')}]" for one in message.get("sticker_items") or ()]
    return Incoming(
        chat=str(message["channel_id"]),
        message=str(message["id"]),
        person=str(author["id"]),
        name=str(author.get("global_name") or author.get("username", "")),
        text="\n".join([text.strip(), *stickers]).strip(),
        attachments=web.parse_attachments(message.get("attachments")),
        private="guild_id" not in message,
        addressed=mentioned,
        ignored=_ignore_reason(message, author, me),
    )


def _ignore_reason(message: Json, author: Json, me: str) -> str:
    if str(author["id"]) == me:
        return "our own message"
    if author.get("bot"):
        return "message of another bot"
    return "" if message.get("type", 0) in USER_MESSAGE_TYPES else f"message of type {message['type']}"


def _parse_button(interaction: Json) -> Incoming:
    if interaction["type"] != BUTTON_INTERACTION:
        chat = str(interaction["channel_id"])
        return Incoming(chat=chat, message=str(interaction["id"]), ignored="interaction without a button")
    person = (interaction.get("member") or interaction)["user"]
    value, _, about = str(interaction["data"]["custom_id"]).partition(" ")
    return Incoming(
        chat=str(interaction["channel_id"]),
        message=f"pressed {interaction['id']}",
        person=str(person["id"]),
        name=str(person.get("username", "")),
        private="guild_id" not in interaction,
        pressed=value,
        about=about,
        reply_to=str((interaction.get("message") or {}).get("id", "")),
    )


def _make_buttons(message: Outgoing) -> discord.ui.View:
    view = discord.ui.View(timeout=0.001)  # the library need not remember it: a pressed button arrives as an event
    for choice in message.choices:
        button: discord.ui.Button[discord.ui.View] = discord.ui.Button(
            label=choice.label, custom_id=f"{choice.value} {message.about}"
        )
        view.add_item(button)
    return view


def _delivery_result(error: BaseException) -> DeliveryResult:
    """The delivery result of an error. The library itself has already waited and retried."""
    if isinstance(error, discord.Forbidden | discord.NotFound):
        return Rejected(describe_error(error))
    if isinstance(error, discord.RateLimited):
        return RetryLater(describe_error(error), error.retry_after)
    if isinstance(error, discord.HTTPException) and error.status < 500:
        return RetryLater(describe_error(error), 5.0) if error.status in (401, 429) else Rejected(describe_error(error))
    if isinstance(error, aiohttp.ClientConnectorError):
        return RetryLater(describe_error(error), everywhere=True)
    return DeliveryUnknown(describe_error(error))


@asynccontextmanager
async def connect(options: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
    token, url, gateway = options.text("token"), options.text("api_url", ""), options.text("gateway_url", "")
    client = DiscordClient(url, gateway)
    try:
        await client.login(token)
    except discord.LoginFailure as e:
        await client.close()
        raise Invalid(f"[gateway.{options.name}] token: Discord rejects it") from e
    except (discord.DiscordException, *NETWORK) as e:
        await client.close()
        raise Unavailable(f"Discord does not answer: {describe_error(e)}") from e
    try:
        assert client.user is not None, "a client that is logged in has a user"
        yield Discord(client, client.user.id, web.make_fetcher(options, url))
    finally:
        await client.close()
