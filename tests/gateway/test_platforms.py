"""The peculiarities of each platform: malformed payloads and lost connections."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.clock import SystemClock
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.intake import parse_payload
from holdfast.gateway.platforms import dingtalk, discord, qq, registry, slack
from holdfast.gateway.port import Attachment, Incoming, Outgoing, PlatformOptions, Sent
from holdfast.model.errors import Invalid
from holdfast.safe_fetch import TooLarge
from holdfast.settings import GatewaySettings, Settings
from holdfast.settings import PlatformSettings as Given
from holdfast.store.repos import inbox
from holdfast.tasks import stop
from tests.contract.test_channel import Notes
from tests.engine.stage import set_up
from tests.gateway import dingtalkapi, discordapi, qqapi, slackapi, telegramapi
from tests.gateway.gateway_fixture import no_index, serve
from tests.gateway.platforms.test_webhook import serving


class Bare:
    """A client that only knows its own id and name."""

    user_id = "@agent:x"
    id = 999
    username = "holdfast_bot"


def readers() -> dict[str, Callable[[str], Incoming]]:
    """The parser of each platform, without any connection."""
    from holdfast.gateway.platforms import telegram, webhook
    from holdfast.gateway.platforms.email import platform as email
    from holdfast.gateway.platforms.matrix.platform import Matrix

    class Anything(PlatformOptions):
        def text(self, key: str, default: str | None = None) -> str:
            return {"listen": "127.0.0.1:1", "address": "a@b"}.get(key, default or "a text of some length")

    options, clock = Anything("x", {}), SystemClock()
    made: dict[str, Any] = {
        "matrix": Matrix.__new__(Matrix),
        "telegram": telegram.Telegram.__new__(telegram.Telegram),
        "slack": slack.Slack.__new__(slack.Slack),
        "discord": discord.Discord.__new__(discord.Discord),
        "dingtalk": dingtalk.DingTalk.__new__(dingtalk.DingTalk),
        "qq": qq.QQ.__new__(qq.QQ),
        "webhook": webhook.Webhook.__new__(webhook.Webhook),
        "email": email.Email(_for_email(options), clock),
    }
    return {name: platform.read for name, platform in made.items()}


def _for_email(options: PlatformOptions) -> PlatformOptions:
    return PlatformOptions(
        "x", {"address": "a@b", "imap_host": "h", "smtp_host": "h", "accept_unauthenticated_senders": True}
    )


PAYLOADS = {
    "matrix": {"room": "!r", "people": 2, "me": "@a:x", "event": {"type": "m.room.message", "event_id": "$1", "sender": "@b:x",
               "content": {"msgtype": "m.image", "body": "hi", "filename": "x.png", "url": "mxc://x/y", "info": {"size": 1, "mimetype": "image/png"},
                           "m.relates_to": {"rel_type": "m.thread", "event_id": "$0"}, "m.mentions": {"user_ids": ["@a:x"]}}}},
    "telegram": {"me": 9, "name": "bot", "update": {"update_id": 1, "message": {"message_id": 2, "date": 1, "chat": {"id": 1, "type": "private"},
                 "from": {"id": 1, "first_name": "A"}, "text": "hi", "photo": [{"file_id": "f", "width": 1}], "sticker": {"emoji": "x"},
                 "reply_to_message": {"from": {"id": 9}}, "location": {"latitude": 1, "longitude": 2}}}},
    "slack": {"me": "U0", "envelope": {"type": "events_api", "payload": {"event": {"type": "message", "channel": "D1", "channel_type": "im",
              "user": "U1", "text": "hi", "ts": "1.1", "thread_ts": "1.0", "files": [{"url_private": "u", "name": "n", "size": 1}]}}}},
    "discord": {"me": "9", "t": "MESSAGE_CREATE", "d": {"id": "5", "channel_id": "7", "author": {"id": "1", "username": "a"}, "content": "hi",
                "type": 0, "mentions": [{"id": "9"}], "attachments": [{"url": "u", "filename": "f", "size": 1}], "sticker_items": [{"name": "s"}]}},
    "dingtalk": {"type": "CALLBACK", "headers": {"messageId": "1"}, "data": {"msgId": "m", "conversationId": "c", "conversationType": "2",
                 "senderId": "s", "msgtype": "richText", "content": {"richText": [{"text": "hi"}, {"downloadCode": "d"}]}, "isInAtList": True}},
    "qq": {"op": 0, "s": 1, "t": "GROUP_AT_MESSAGE_CREATE", "d": {"id": "m", "author": {"id": "a", "member_openid": "a"}, "group_openid": "g",
           "content": "hi", "attachments": [{"url": "u", "filename": "f", "content_type": "image/png", "size": 1}]}},
    "webhook": {"chat": "c", "message": "m", "person": "p", "text": "hi", "attachments": [{"name": "n", "url": "u"}]},
}  # fmt: skip
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8),
    st.just([]), st.just({}), st.just("\ud800"), st.just("x\0y"), st.lists(st.integers(), max_size=2),
)  # fmt: skip


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """The path of every value in a payload."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


@st.composite
def spoiled(draw: Any) -> tuple[str, str]:
    """A platform and a valid payload in which one value was replaced or removed."""
    name = draw(st.sampled_from(sorted(PAYLOADS)))
    payload = json.loads(json.dumps(PAYLOADS[name]))
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(places(payload) or [()]))
        if not path:
            break
        inner = payload
        for key in path[:-1]:
            inner = inner[key]
        if draw(st.booleans()) or isinstance(inner, list):
            inner[path[-1]] = draw(JUNK)
        else:
            del inner[path[-1]]
    return name, json.dumps(payload)


@pytest.mark.slow
@settings(max_examples=1500, suppress_health_check=[HealthCheck.too_slow])
@given(spoiled())
def test_no_payload_crashes_its_parser(case: tuple[str, str]) -> None:
    name, payload = case
    post = parse_payload("in-1", payload, READERS[name])

    assert post.fault or (post.chat and post.message)
    post.chat.encode("utf-8")
    assert "\0" not in post.chat + post.message


READERS = readers()


@pytest.mark.parametrize("name", sorted(PAYLOADS))
def test_valid_payloads_are_parsed(name: str) -> None:
    assert "hi" in READERS[name](json.dumps(PAYLOADS[name])).text or name == "telegram"


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_no_bytes_crash_the_mail_parser(content: bytes) -> None:
    post = parse_payload("in-1", b"From: a@b\n" + content, READERS["email"])

    assert post.fault or post.chat == "a@b" or post.chat


@pytest.mark.clients
async def test_many_malformed_updates_become_dead_letters_and_block_nothing(tmp_path: Path) -> None:
    stage = await set_up(tmp_path, model="echo")
    async with telegramapi.running() as api:
        platforms = {"telegram": Given({"token": telegramapi.TOKEN, "api_url": api.url, "allow": [1]})}
        given_ = Settings(
            home=tmp_path, store=f"sqlite:///{tmp_path}/holdfast.db", model="scripted:echo",
            gateway=GatewaySettings(platforms=platforms),
        )  # fmt: skip
        gateway = asyncio.create_task(serve(stage.engine, Gateway(stage.engine, given_, no_index)))
        odd = 0
        good = PAYLOADS["telegram"]["update"]["message"]  # type: ignore[index]
        for path in places(good):
            for junk in (None, "", 7, [], {}, "\ud800", "a\0b"):
                message = json.loads(json.dumps({**good, "message_id": 1000 + odd}))
                inner: Any = message
                for key in path[:-1]:
                    inner = inner[key]
                inner[path[-1]] = junk
                api.put({"message": message})
                odd += 1
        api.say(
            "still there?", chat={"id": 2, "type": "private"}
        )  # the malformed ones of its own chat are answered, too
        try:
            async with asyncio.timeout(50), api.changed:
                await api.changed.wait_for(lambda: any("still there?" in text for text in api.texts))
        finally:
            await stop(gateway)
        dead = await stage.database.read(inbox.list_dead, 10_000)
    await stage.database.close()

    assert odd > 100
    assert len(dead) > 20
    assert all(message.payload and message.outcome for message in dead)


@asynccontextmanager
async def connected(kind: str, options: dict[str, object], notes: Notes) -> AsyncIterator[Any]:
    async with registry.connect(kind)(PlatformOptions(kind, options), SystemClock()) as platform:
        notes.begin_anew()
        task = asyncio.create_task(platform.receive(notes, notes.position))
        try:
            await notes.until_connected(task)
            yield platform
        finally:
            await stop(task)


@pytest.mark.clients
async def test_discord_messages_sent_during_a_disconnect_are_fetched() -> None:
    async with discordapi.running() as api:
        gateway = api.url.replace("http", "ws") + "/gateway"
        options: dict[str, object] = {"token": "token-1", "api_url": f"{api.url}/api", "gateway_url": gateway}
        notes = Notes()
        async with connected("discord", dict(options), notes):
            await api.say("heard", guild_id="5", mentions=[{"id": "999"}])
            await notes.until(1)
        for number in range(130):  # more than a page
            message = await api.say(f"missed {number}", channel="70")
            message.pop("guild_id", None)  # lists of messages do not have it
        async with connected("discord", dict(options), notes) as platform:
            await notes.until(131)
            found = [platform.read(one) for one in notes.payloads]

    assert [one.text for one in found] == ["heard", *(f"missed {number}" for number in range(130))]
    assert not any(one.private for one in found)
    assert found[0].addressed
    assert not found[1].addressed


@pytest.mark.clients
async def test_qq_resumes_after_the_last_stored_event() -> None:
    async with qqapi.running() as api:
        options: dict[str, object] = {
            "app_id": "1", "secret": "secret", "api_url": api.url, "token_url": f"{api.url}/token",
        }  # fmt: skip
        notes = Notes()
        async with connected("qq", dict(options), notes):
            await api.say("heard")
            await notes.until(1)
        await api.say("missed")
        async with connected("qq", dict(options), notes) as platform:
            await notes.until(2)
            texts = [platform.read(one).text for one in notes.payloads]

    assert texts == ["heard", "missed"]
    assert api.resumed == 1


@pytest.mark.clients
async def test_qq_sends_a_plain_message_if_the_original_is_too_old_to_answer() -> None:
    async with qqapi.running() as api:
        options: dict[str, object] = {
            "app_id": "1", "secret": "secret", "api_url": api.url, "token_url": f"{api.url}/token",
        }  # fmt: skip
        async with connected("qq", options, Notes()) as platform:
            result = await platform.send(Outgoing(chat="alice", text="late", key="k", reply_to="old"))

    assert isinstance(result, Sent)
    assert [(one["content"], one["msg_id"]) for one in api.sent] == [("late", None)]


def frame(data: object) -> str:
    return json.dumps({"type": "CALLBACK", "headers": {"messageId": "1", "topic": "t"}, "data": data})


def test_dingtalk_parses_data_in_every_encoding() -> None:
    plain = {"msgId": "m", "conversationId": "c", "senderId": "s", "msgtype": "text", "text": {"content": "hi"}}
    xml = "<xml><msgId>m</msgId><conversationId>c</conversationId><senderId>s</senderId><content>a file</content></xml>"
    escaped = xml.replace("<", "&lt;").replace(">", "&gt;")
    read = READERS["dingtalk"]

    assert read(frame(plain)).text == "hi"
    assert read(frame(json.dumps(plain))).text == "hi"
    assert read(frame(json.dumps(json.dumps(plain)))).text == "hi"
    assert read(frame(xml)).text == "a file"
    assert read(frame(escaped)).text == "a file"
    assert parse_payload("in-1", frame("<!DOCTYPE x [<!ENTITY y 'z'>]><x>&y;</x>"), read).fault
    assert parse_payload("in-1", frame("no xml, no json"), read).fault


def test_dingtalk_parses_files_images_and_voice_messages() -> None:
    def of(kind: str, content: object) -> Incoming:
        data = {"msgId": "m", "conversationId": "c", "senderId": "s", "msgtype": kind, "content": content}
        return READERS["dingtalk"](frame(json.dumps(data)))

    assert [one.name for one in of("file", {"downloadCode": "d", "fileName": "plan.pdf"}).attachments] == ["plan.pdf"]
    assert [one.media_type for one in of("picture", {"downloadCode": "d"}).attachments] == ["image/jpeg"]
    assert of("audio", {"downloadCode": "d", "recognition": "hello"}).text == "hello"
    assert of("file", json.dumps({"downloadCode": "d", "fileName": "x"})).attachments[0].ref == "d"
    assert of("unheardOf", "x").text == "[unheardOf: x]"


@pytest.mark.clients
async def test_every_platform_fetches_files_up_to_the_limit(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        apis: dict[str, Any] = {}
        for name, module in (("slack", slackapi), ("discord", discordapi), ("dingtalk", dingtalkapi), ("qq", qqapi)):
            apis[name] = await stack.enter_async_context(module.running())
            apis[name].files = {"f1": b"content"}
        options: dict[str, dict[str, object]] = {
            "slack": {"bot_token": "xoxb-1", "app_token": "xapp-1", "api_url": f"{apis['slack'].url}/api/"},
            "discord": {"token": "token-1", "api_url": f"{apis['discord'].url}/api"},
            "dingtalk": {"client_id": "r", "client_secret": "secret", "open_url": apis["dingtalk"].url},
            "qq": {
                "app_id": "1",
                "secret": "secret",
                "api_url": apis["qq"].url,
                "token_url": f"{apis['qq'].url}/token",
            },
        }
        for name, api in apis.items():
            platform = await stack.enter_async_context(
                registry.connect(name)(PlatformOptions(name, options[name]), SystemClock())
            )
            ref = "f1" if name == "dingtalk" else f"{api.url}/files/f1"
            await platform.fetch(Attachment(ref=ref, name="x"), tmp_path / name, 100)
            assert (tmp_path / name).read_bytes() == b"content", name
            with pytest.raises(TooLarge):
                await platform.fetch(Attachment(ref=ref, name="x"), tmp_path / "no", 3)


def test_several_slack_events_for_one_message_count_once() -> None:
    def of(**more: object) -> Incoming:
        event = {"type": "message", "channel": "C1", "user": "U1", "text": "<@U0> hi", "ts": "1.5", **more}
        return READERS["slack"](
            json.dumps({"me": "U0", "envelope": {"type": "events_api", "payload": {"event": event}}})
        )

    plain, mention = of(), of(type="app_mention")
    assert (plain.chat, plain.message) == (mention.chat, mention.message)
    assert plain.addressed
    assert plain.text == "hi"
    assert of(subtype="message_changed").ignored == "an edit"
    assert of(bot_id="B1").ignored
    assert of(text="a &lt;b&gt; &amp;amp;").text == "a <b> &amp;"


@pytest.mark.clients
async def test_only_slack_gets_the_slack_token(tmp_path: Path) -> None:
    told: list[str] = []

    async def give(request: web.Request) -> web.Response:
        told.append(request.headers.get("Authorization", ""))
        return web.Response(body=b"content")

    async with slackapi.running() as api, serving(give) as elsewhere:
        options = {"bot_token": "xoxb-1", "app_token": "xapp-1", "api_url": f"{api.url}/api/"}
        with pytest.raises(Invalid):
            async with registry.connect("slack")(PlatformOptions("slack", {**options}), SystemClock()) as platform:
                await platform.fetch(Attachment(ref=elsewhere, name="x"), tmp_path / "x", 100)
        trusted = {**options, "trusted_hosts": [urlsplit(elsewhere).netloc]}
        async with registry.connect("slack")(PlatformOptions("slack", trusted), SystemClock()) as platform:
            await platform.fetch(Attachment(ref=elsewhere, name="x"), tmp_path / "x", 100)

    assert (tmp_path / "x").read_bytes() == b"content"
    assert told == [""]


@pytest.mark.clients
@pytest.mark.parametrize(("kind", "module"), [("qq", qqapi), ("dingtalk", dingtalkapi)])
async def test_two_bots_of_one_kind_use_their_own_servers(kind: str, module: Any) -> None:
    async with module.running() as one, module.running() as other, AsyncExitStack() as stack:
        bots = []
        for api in (one, other):
            options: dict[str, object] = (
                {"client_id": "r", "client_secret": "secret", "open_url": api.url}
                if kind == "dingtalk"
                else {"app_id": "1", "secret": "secret", "api_url": api.url, "token_url": f"{api.url}/token"}
            )
            bots.append(
                await stack.enter_async_context(registry.connect(kind)(PlatformOptions(kind, options), SystemClock()))
            )
        results = [
            await bot.send(Outgoing(chat="u1", text=name, key=name)) for bot, name in zip(bots, "ab", strict=True)
        ]

        assert [type(result) for result in results] == [Sent, Sent]
        assert [api.texts for api in (one, other)] == [["a"], ["b"]]
        notes = [Notes(), Notes()]
        tasks = [asyncio.create_task(bot.receive(note, "")) for bot, note in zip(bots, notes, strict=True)]
        try:
            for note, task in zip(notes, tasks, strict=True):
                await note.until_connected(task)
            assert [api.connections for api in (one, other)] == [1, 1]
        finally:
            await stop(*tasks)


@pytest.mark.clients
async def test_two_discord_bots_use_their_own_servers() -> None:
    async with discordapi.running() as one, discordapi.running() as other, AsyncExitStack() as stack:
        notes = [Notes(), Notes()]
        bots = []
        for api in (one, other):
            gateway = api.url.replace("http", "ws") + "/gateway"
            options: dict[str, object] = {"token": "token-1", "api_url": f"{api.url}/api", "gateway_url": gateway}
            opened = registry.connect("discord")(PlatformOptions("discord", options), SystemClock())
            bots.append(await stack.enter_async_context(opened))
        results = [
            await bot.send(Outgoing(chat="7", text=name, key=name)) for bot, name in zip(bots, "ab", strict=True)
        ]
        tasks = [asyncio.create_task(bot.receive(note, "")) for bot, note in zip(bots, notes, strict=True)]
        try:
            for note, task in zip(notes, tasks, strict=True):
                await note.until_connected(task)
            await one.say("for the first")
            await other.say("for the second")
            for note in notes:
                await note.until(1)
        finally:
            await stop(*tasks)
        heard = [[bot.read(payload).text for payload in note.payloads] for bot, note in zip(bots, notes, strict=True)]

    assert [type(result) for result in results] == [Sent, Sent]
    assert [api.texts for api in (one, other)] == [["a"], ["b"]]
    assert heard == [["for the first"], ["for the second"]]
