"""Slack, through slack-sdk: receives events in socket mode, replies through the web API.

An envelope is acknowledged after it is stored; otherwise Slack sends it again. The library's own socket is not used: it
handles several envelopes at once, out of order, and cannot always be closed. Slack sends several events for one message,
and repeats events; the channel and the message's timestamp identify a message.
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

from holdfast.gateway.platforms import http
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
from holdfast.model.errors import HoldfastError, Invalid, Unavailable
from holdfast.model.times import Clock

NETWORK = (aiohttp.ClientError, TimeoutError, OSError)
SECTION_LENGTH = 2_900
"""Characters of a text block: Slack allows 3,000."""
USER_SUBTYPES = ("", "file_share", "thread_broadcast", "me_message")
"""Subtypes of messages written by people."""
SERVER_ERRORS = ("internal_error", "fatal_error", "request_timeout")
AUTH_ERRORS = ("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired")
Json = dict[str, Any]


class Slack:
    def __init__(self, client: AsyncWebClient, me: str, options: PlatformOptions) -> None:
        self._client = client
        self._app_token = options.text("app_token")
        self._me = me
        self._ping_seconds = options.number("ping_seconds", 10)
        self._files = http.make_fetcher(options, client.base_url)
        self.limits = PlatformLimits(text=3900, edits=True, chat_seconds=1.0)

    async def receive(self, intake: InboundPort, position: str) -> None:
        try:
            async with aiohttp.ClientSession() as session:
                while True:
                    opened = await self._client.apps_connections_open(app_token=self._app_token)
                    async with session.ws_connect(str(opened["url"]), heartbeat=self._ping_seconds) as socket:
                        await self._receive_envelopes(intake, socket)
        except (SlackClientError, *NETWORK) as e:
            raise Unavailable(f"Slack does not answer: {describe_error(e)}") from e

    async def _receive_envelopes(self, intake: InboundPort, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Store and acknowledge envelopes in order, until Slack asks for a new connection."""
        async for frame in socket:
            if frame.type != aiohttp.WSMsgType.TEXT:
                continue
            try:
                message = json.loads(frame.data)
            except ValueError:
                message = frame.data
            kind = message.get("type") if isinstance(message, dict) else "malformed"
            if kind == "hello":
                await intake.report_connected()
            elif kind == "disconnect":
                return
            else:
                await intake.take([json.dumps({"me": self._me, "envelope": message})])
                if isinstance(message, dict) and message.get("envelope_id"):
                    await socket.send_str(json.dumps({"envelope_id": message["envelope_id"]}))
        raise Unavailable("Slack closed the connection")

    def read(self, payload: str) -> Incoming:
        given = json.loads(payload)
        body, me = given["envelope"]["payload"], given["me"]
        if given["envelope"]["type"] == "interactive":
            return _parse_button(body)
        return _parse_message(body["event"], me)

    async def send(self, message: Outgoing) -> DeliveryResult:
        channel, _, thread = message.chat.partition(":")
        try:
            if message.file is not None:
                await self._client.files_upload_v2(
                    channel=channel, file=str(message.file), filename=message.file.name, thread_ts=thread or None
                )
                return Sent(message.key)
            response = await self._client.chat_postMessage(
                channel=channel,
                text=_escape(message.text),
                thread_ts=thread or None,
                mrkdwn=not message.literal,
                unfurl_links=False,
                blocks=_make_blocks(message) if message.choices else None,
            )
        except SlackApiError as e:
            return _delivery_result(e)
        except aiohttp.ClientConnectorError as e:
            return RetryLater(describe_error(e), everywhere=True)
        except (SlackClientError, *NETWORK) as e:
            return DeliveryUnknown(describe_error(e))
        return Sent(str(response["ts"]))

    async def edit(self, chat: str, remote: str, text: str) -> DeliveryResult:
        try:
            await self._client.chat_update(channel=chat.partition(":")[0], ts=remote, text=_escape(text))
        except SlackApiError as e:
            return _delivery_result(e)
        except (SlackClientError, *NETWORK) as e:
            # Repeating an edit is harmless.
            return RetryLater(describe_error(e))
        return Sent(remote)

    async def typing(self, chat: str) -> None:
        """Slack has no typing indicator for bots."""

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        # Files may be on other hosts; only Slack gets our token.
        ours = _host(attachment.ref) == _host(self._client.base_url) or _host(attachment.ref).endswith(".slack.com")
        headers = {"Authorization": f"Bearer {self._client.token}"} if ours else None
        await self._files.save(attachment.ref, target, max_bytes, headers)


def _host(url: str) -> str:
    return urlsplit(url).netloc.lower()


def _parse_message(event: Json, me: str) -> Incoming:
    channel, timestamp = str(event["channel"]), str(event["ts"])
    thread = event.get("thread_ts")
    text = str(event.get("text") or "")
    mention = f"<@{me}>"
    return Incoming(
        chat=f"{channel}:{thread}" if thread else channel,
        message=timestamp,
        person=str(event.get("user", "")),
        name=str((event.get("user_profile") or {}).get("display_name") or event.get("user", "")),
        text=_unescape(text.replace(mention, "").strip()),
        attachments=http.parse_attachments(event.get("files"), url="url_private", name="name", kind="mimetype"),
        private=event.get("channel_type") == "im",
        addressed=mention in text or event.get("type") == "app_mention",
        ignored=_ignore_reason(event, me),
    )


def _ignore_reason(event: Json, me: str) -> str:
    if event.get("user") == me:
        return "our own message"
    if event.get("bot_id"):
        return "message of another bot"
    if event.get("type") not in ("message", "app_mention"):
        return f"event of type {event.get('type')}"
    subtype = str(event.get("subtype") or "")
    if subtype == "message_changed":
        return "an edit"
    return "" if subtype in USER_SUBTYPES else f"message of subtype {subtype}"


def _escape(text: str) -> str:
    """Slack reads `<…>` as a link, a mention or a command for everybody in the channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _unescape(text: str) -> str:
    """Undo the escaping of `<`, `>` and `&`."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _parse_button(body: Json) -> Incoming:
    action, container = body["actions"][0], body.get("container") or {}
    channel = str((body.get("channel") or {}).get("id") or container["channel_id"])
    thread = container.get("thread_ts")
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


def _make_blocks(message: Outgoing) -> list[Json]:
    """The whole text, unformatted, with buttons below it."""
    buttons = [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": choice.label},
            "action_id": choice.value,
            "value": f"{choice.value} {message.about}",
        }
        for choice in message.choices
    ]
    pieces = [message.text[start : start + SECTION_LENGTH] for start in range(0, len(message.text), SECTION_LENGTH)]
    sections = [{"type": "section", "text": {"type": "plain_text", "text": piece, "emoji": False}} for piece in pieces]
    return [*sections, {"type": "actions", "elements": buttons}]


def _delivery_result(error: SlackApiError) -> DeliveryResult:
    """The delivery result of an error response."""
    response = error.response
    reason = str(response.get("error", "")) or f"status {response.status_code}"
    if reason == "ratelimited" or response.status_code == 429:
        return RetryLater(reason, http.parse_retry_after(response.headers.get("Retry-After")))
    if reason in AUTH_ERRORS:
        return RetryLater(reason, everywhere=True)
    if reason == "service_unavailable":
        return RetryLater(reason)
    return DeliveryUnknown(reason) if reason in SERVER_ERRORS or response.status_code >= 500 else Rejected(reason)


@asynccontextmanager
async def connect(options: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
    url = options.text("api_url", "https://slack.com/api/")
    # Without the library's retries: it would silently send a message again when the response is lost.
    client = AsyncWebClient(token=options.text("bot_token"), base_url=url, timeout=15, retry_handlers=[])
    options.text("app_token")  # report a missing one before any request
    try:
        who = await client.auth_test()
    except SlackApiError as e:
        if str(e.response.get("error")) in AUTH_ERRORS:
            raise Invalid(f"[gateway.{options.name}] bot_token: Slack rejects it") from e
        raise Unavailable(f"Slack does not answer: {describe_error(e)}") from e
    except (SlackClientError, *NETWORK, HoldfastError) as e:
        raise Unavailable(f"Slack does not answer: {describe_error(e)}") from e
    yield Slack(client, str(who["user_id"]), options)
