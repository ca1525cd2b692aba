"""Discord, through discord.py: events come by its gateway, replies go by its HTTP API with a nonce that it recognises.

Discord forgets what it could not bring. So the newest message of each channel is kept together with the messages, and what
was said since is read from the channels when the connection is begun anew.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import discord
from discord.gateway import DiscordWebSocket
from discord.http import Route
from yarl import URL

from holdfast.engine.together import first_of
from holdfast.gateway import web
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
    Unsure,
    reason,
)
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import Clock

KINDS = ("MESSAGE_CREATE", "INTERACTION_CREATE")
NETWORK = (aiohttp.ClientError, TimeoutError, OSError)
WRITTEN = (0, 19, 20, 21)
"""Types of messages that people write: plain ones, replies, commands, the beginning of a thread."""
PRESSED = 3
"""The type of an interaction by a button."""
PAGE = 100
REMEMBERED = 500
"""Channels whose newest message is kept."""
NONCE = 25
Json = dict[str, Any]


class Client(discord.Client):
    """The library's client. It hands on what the gateway sends, as it came and in order."""

    def __init__(self) -> None:
        intents = discord.Intents(guilds=True, messages=True, message_content=True)
        super().__init__(intents=intents, enable_debug_events=True, max_messages=None)
        self.arrived: asyncio.Queue[Json] = asyncio.Queue()
        # We read events ourselves. The library would break the connection over one that it does not understand.
        parsers = self._connection.parsers
        for kind in set(parsers) - {"READY", "RESUMED"}:
            parsers[kind] = _pass_over

    async def on_socket_raw_receive(self, raw: str) -> None:
        given = json.loads(raw)
        if given.get("op") == 0 and given.get("t") in (*KINDS, "READY", "RESUMED", "GUILD_CREATE"):
            self.arrived.put_nowait(given)


def _pass_over(data: object) -> None:
    """What the library does about an event that is none of its business."""


class Discord:
    def __init__(self, client: Client, me: int) -> None:
        self._client = client
        self._me = str(me)
        self._newest: dict[str, tuple[int, str]] = {}
        """The newest message of each channel, and the server that the channel belongs to, if any."""
        self.limits = Limits(text=2000, keyed=True, edits=True, typing_seconds=8.0)

    async def receive(self, inlet: Inlet, position: str) -> None:
        known = json.loads(position or "{}").items()
        self._newest = {str(channel): (int(number), str(guild)) for channel, (number, guild) in known}
        try:
            await first_of(self._pass_on(inlet), self._client.connect(reconnect=True))
        # AttributeError: the library trips over itself if the very first connection fails.
        except (discord.DiscordException, AttributeError, *NETWORK) as e:
            raise Unavailable(f"Discord does not answer: {reason(e)}") from e

    async def _pass_on(self, inlet: Inlet) -> None:
        while True:
            event = await self._client.arrived.get()
            if event["t"] in ("READY", "RESUMED"):
                await self._catch_up(inlet)
                await inlet.connected()
            elif event["t"] in KINDS:
                await self._take(inlet, [event])
                if event["t"] == "INTERACTION_CREATE":
                    await self._acknowledge(event["d"])

    async def _take(self, inlet: Inlet, events: list[Json]) -> None:
        """Keep events, and how far their channels have been read."""
        for event in events:
            data = event["d"] if isinstance(event["d"], dict) else {}
            channel, number = str(data.get("channel_id", "")), str(data.get("id", ""))
            if event["t"] == "MESSAGE_CREATE" and number.isdecimal():
                before, guild = self._newest.pop(channel, (0, ""))
                self._newest[channel] = max(int(number), before), str(data.get("guild_id", guild))
        self._newest = dict(list(self._newest.items())[-REMEMBERED:])
        await inlet.take([json.dumps({"me": self._me, **event}) for event in events], json.dumps(self._newest))

    async def _catch_up(self, inlet: Inlet) -> None:
        """What was said in the channels we know while nobody listened."""
        for channel, (_, guild) in list(self._newest.items()):
            more: Json = {"guild_id": guild} if guild else {}
            while found := await self._since(channel):
                await self._take(inlet, [{"t": "MESSAGE_CREATE", "d": {**message, **more}} for message in found])

    async def _since(self, channel: str) -> list[Any]:
        """Messages after the newest one we know, oldest first; none if the channel is gone."""
        try:
            found = await self._client.http.logs_from(int(channel), PAGE, after=self._newest[channel][0])
        except (discord.NotFound, discord.Forbidden):
            return []
        return sorted(found, key=lambda message: int(message["id"]))

    async def _acknowledge(self, interaction: Json) -> None:
        """A button that is not answered looks broken."""
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
            return _pressed(given["d"])
        return _message(given["d"], given["me"])

    async def send(self, message: Outgoing) -> Fate:
        channel = self._client.get_partial_messageable(int(message.chat))
        nonce = hashlib.sha256(message.key.encode()).hexdigest()[:NONCE]
        more: Json = {"nonce": nonce, "allowed_mentions": discord.AllowedMentions.none()}
        if message.reply_to.isdecimal():
            more["reference"] = discord.MessageReference(
                message_id=int(message.reply_to), channel_id=int(message.chat), fail_if_not_exists=False
            )
        if message.choices:
            more["view"] = _buttons(message)
        if message.file is not None:
            more["file"] = discord.File(message.file)
        try:
            sent = await channel.send(message.text, **more)
        except (discord.DiscordException, *NETWORK) as e:
            return _fate(e)
        return Sent(str(sent.id))

    async def edit(self, chat: str, remote: str, text: str) -> Fate:
        message = self._client.get_partial_messageable(int(chat)).get_partial_message(int(remote))
        try:
            await message.edit(content=text)
        except (discord.DiscordException, *NETWORK) as e:
            fate = _fate(e)
            # A change that is made twice is made once.
            return Later(fate.reason) if isinstance(fate, Unsure) else fate
        return Sent(remote)

    async def typing(self, chat: str) -> None:
        try:
            await self._client.http.send_typing(int(chat))
        except (discord.DiscordException, *NETWORK):
            pass

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        await web.fetch(attachment.ref, target, max_bytes)


def _message(message: Json, me: str) -> Incoming:
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
        attachments=web.attachments(message.get("attachments")),
        private="guild_id" not in message,
        addressed=mentioned,
        ignored=_ignored(message, author, me),
    )


def _ignored(message: Json, author: Json, me: str) -> str:
    if str(author["id"]) == me:
        return "our own words"
    if author.get("bot"):
        return "words of another program"
    return "" if message.get("type", 0) in WRITTEN else f"a message of the type {message['type']}"


def _pressed(interaction: Json) -> Incoming:
    if interaction["type"] != PRESSED:
        chat = str(interaction["channel_id"])
        return Incoming(chat=chat, message=str(interaction["id"]), ignored="an interaction that is no button")
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


def _buttons(message: Outgoing) -> discord.ui.View:
    view = discord.ui.View(timeout=0.001)  # the library need not remember it: what is pressed comes as an event
    for choice in message.choices:
        button: discord.ui.Button[discord.ui.View] = discord.ui.Button(
            label=choice.label, custom_id=f"{choice.value} {message.about}"
        )
        view.add_item(button)
    return view


def _fate(error: BaseException) -> Fate:
    """Whether a message that broke may have been taken. The library itself has waited and tried again by now."""
    if isinstance(error, discord.Forbidden | discord.NotFound):
        return Never(reason(error))
    if isinstance(error, discord.RateLimited):
        return Later(reason(error), error.retry_after)
    if isinstance(error, discord.HTTPException) and error.status < 500:
        return Later(reason(error), 5.0) if error.status in (401, 429) else Never(reason(error))
    if isinstance(error, aiohttp.ClientConnectorError):
        return Later(reason(error), everywhere=True)
    return Unsure(reason(error))


@asynccontextmanager
async def connect(options: Options, clock: Clock) -> AsyncIterator[Platform]:
    token, url, gateway = options.text("token"), options.text("api_url", ""), options.text("gateway_url", "")
    if url:
        Route.BASE = url.rstrip("/")
    if gateway:
        DiscordWebSocket.DEFAULT_GATEWAY = URL(gateway)
    client = Client()
    try:
        await client.login(token)
    except discord.LoginFailure as e:
        await client.close()
        raise Invalid(f"[gateway.{options.name}] token: Discord does not accept it") from e
    except (discord.DiscordException, *NETWORK) as e:
        await client.close()
        raise Unavailable(f"Discord does not answer: {reason(e)}") from e
    try:
        assert client.user is not None, "a client that is logged in knows who it is"
        yield Discord(client, client.user.id)
    finally:
        await client.close()
