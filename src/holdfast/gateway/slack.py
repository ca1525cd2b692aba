"""Slack, through slack-sdk: events come by socket mode, replies go by the web API.

An envelope is acknowledged when it is kept; Slack sends it again otherwise. The library's own socket is not used: it takes several
envelopes at once, out of order, and does not always let itself be closed. Slack sends several events for one message,
and the same one again after a while: what counts is the channel and the message's own time stamp.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

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
from holdfast.model.errors import HoldfastError, Invalid, Unavailable
from holdfast.model.times import Clock

NETWORK = (aiohttp.ClientError, TimeoutError, OSError)
KEPT = ("", "file_share", "thread_broadcast", "me_message")
"""Subtypes of messages that people write."""
AWAY = ("internal_error", "fatal_error", "request_timeout")
LOCKED_OUT = ("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired")
Json = dict[str, Any]


class Slack:
    def __init__(self, client: AsyncWebClient, app_token: str, me: str, ping_seconds: float) -> None:
        self._client = client
        self._app_token = app_token
        self._me = me
        self._ping_seconds = ping_seconds
        self.limits = Limits(text=3900, edits=True, chat_seconds=1.0)

    async def receive(self, inlet: Inlet, position: str) -> None:
        try:
            async with aiohttp.ClientSession() as session:
                while True:
                    opened = await self._client.apps_connections_open(app_token=self._app_token)
                    async with session.ws_connect(str(opened["url"]), heartbeat=self._ping_seconds) as socket:
                        await self._pass_on(inlet, socket)
        except (SlackClientError, *NETWORK) as e:
            raise Unavailable(f"Slack does not answer: {reason(e)}") from e

    async def _pass_on(self, inlet: Inlet, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Keep and acknowledge what comes, one after another, until Slack asks to connect anew."""
        async for frame in socket:
            if frame.type != aiohttp.WSMsgType.TEXT:
                continue
            try:
                message = json.loads(frame.data)
            except ValueError:
                message = frame.data
            kind = message.get("type") if isinstance(message, dict) else "odd"
            if kind == "hello":
                await inlet.connected()
            elif kind == "disconnect":
                return
            else:
                await inlet.take([json.dumps({"me": self._me, "envelope": message})])
                if isinstance(message, dict) and message.get("envelope_id"):
                    await socket.send_str(json.dumps({"envelope_id": message["envelope_id"]}))
        raise Unavailable("Slack has closed the connection")

    def read(self, payload: str) -> Incoming:
        given = json.loads(payload)
        body, me = given["envelope"]["payload"], given["me"]
        if given["envelope"]["type"] == "interactive":
            return _pressed(body)
        return _message(body["event"], me)

    async def send(self, message: Outgoing) -> Fate:
        channel, _, thread = message.chat.partition(":")
        try:
            if message.file is not None:
                await self._client.files_upload_v2(
                    channel=channel, file=str(message.file), filename=message.file.name, thread_ts=thread or None
                )
                return Sent(message.key)
            answer = await self._client.chat_postMessage(
                channel=channel,
                text=message.text,
                thread_ts=thread or None,
                mrkdwn=True,
                unfurl_links=False,
                blocks=_blocks(message) if message.choices else None,
            )
        except SlackApiError as e:
            return _fate(e)
        except aiohttp.ClientConnectorError as e:
            return Later(reason(e), everywhere=True)
        except (SlackClientError, *NETWORK) as e:
            return Unsure(reason(e))
        return Sent(str(answer["ts"]))

    async def edit(self, chat: str, remote: str, text: str) -> Fate:
        try:
            await self._client.chat_update(channel=chat.partition(":")[0], ts=remote, text=text)
        except SlackApiError as e:
            return _fate(e)
        except (SlackClientError, *NETWORK) as e:
            # A change that is made twice is made once.
            return Later(reason(e))
        return Sent(remote)

    async def typing(self, chat: str) -> None:
        """Slack shows nobody that a program is typing."""

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        # Files may lie elsewhere, too; our token is for Slack alone.
        ours = _host(attachment.ref) == _host(self._client.base_url) or _host(attachment.ref).endswith(".slack.com")
        headers = {"Authorization": f"Bearer {self._client.token}"} if ours else None
        await web.fetch(attachment.ref, target, max_bytes, headers)


def _host(url: str) -> str:
    return urlsplit(url).netloc.lower()


def _message(event: Json, me: str) -> Incoming:
    channel, stamp = str(event["channel"]), str(event["ts"])
    thread = event.get("thread_ts")
    text = str(event.get("text") or "")
    called = f"<@{me}>"
    return Incoming(
        chat=f"{channel}:{thread}" if thread else channel,
        message=stamp,
        person=str(event.get("user", "")),
        name=str((event.get("user_profile") or {}).get("display_name") or event.get("user", "")),
        text=_plain(text.replace(called, "").strip()),
        attachments=web.attachments(event.get("files"), url="url_private", name="name", kind="mimetype"),
        private=event.get("channel_type") == "im",
        addressed=called in text or event.get("type") == "app_mention",
        ignored=_ignored(event, me),
    )


def _ignored(event: Json, me: str) -> str:
    if event.get("user") == me:
        return "our own words"
    if event.get("bot_id"):
        return "words of another program"
    if event.get("type") not in ("message", "app_mention"):
        return f"an event of the kind {event.get('type')}"
    subtype = str(event.get("subtype") or "")
    if subtype == "message_changed":
        return "an edit"
    return "" if subtype in KEPT else f"a message of the kind {subtype}"


def _plain(text: str) -> str:
    """Slack writes three signs in its own way."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _pressed(body: Json) -> Incoming:
    action, place = body["actions"][0], body.get("container") or {}
    channel = str((body.get("channel") or {}).get("id") or place["channel_id"])
    thread = place.get("thread_ts")
    value, _, about = str(action["value"]).partition(" ")
    return Incoming(
        chat=f"{channel}:{thread}" if thread else channel,
        message=f"pressed {body['trigger_id']}",
        person=str(body["user"]["id"]),
        name=str(body["user"].get("name", "")),
        private=channel.startswith("D"),
        pressed=value,
        about=about,
    )


def _blocks(message: Outgoing) -> list[Json]:
    """A text with buttons under it."""
    buttons = [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": choice.label},
            "action_id": choice.value,
            "value": f"{choice.value} {message.about}",
        }
        for choice in message.choices
    ]
    section = {"type": "section", "text": {"type": "plain_text", "text": message.text[:2900]}}
    return [section, {"type": "actions", "elements": buttons}]


def _fate(error: SlackApiError) -> Fate:
    """What a refusal means."""
    answer = error.response
    said = str(answer.get("error", "")) or f"status {answer.status_code}"
    if said == "ratelimited" or answer.status_code == 429:
        return Later(said, web.retry_after(answer.headers.get("Retry-After")))
    if said in LOCKED_OUT:
        return Later(said, everywhere=True)
    if said == "service_unavailable":
        return Later(said)
    return Unsure(said) if said in AWAY or answer.status_code >= 500 else Never(said)


@asynccontextmanager
async def connect(options: Options, clock: Clock) -> AsyncIterator[Platform]:
    url = options.text("api_url", "https://slack.com/api/")
    # Without its own retries: the library would send a message again when the answer is lost, and tell nobody.
    client = AsyncWebClient(token=options.text("bot_token"), base_url=url, timeout=15, retry_handlers=[])
    app_token = options.text("app_token")
    try:
        who = await client.auth_test()
    except SlackApiError as e:
        if str(e.response.get("error")) in LOCKED_OUT:
            raise Invalid(f"[gateway.{options.name}] bot_token: Slack does not accept it") from e
        raise Unavailable(f"Slack does not answer: {reason(e)}") from e
    except (SlackClientError, *NETWORK, HoldfastError) as e:
        raise Unavailable(f"Slack does not answer: {reason(e)}") from e
    yield Slack(client, app_token, str(who["user_id"]), options.number("ping_seconds", 10))
