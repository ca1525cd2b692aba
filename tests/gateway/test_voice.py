"""Voice messages become text of the message, whatever the service or the process does meanwhile."""

import asyncio
import base64
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from holdfast.gateway.port import Incoming
from holdfast.providers.openai.transcription import OpenAiTranscriber
from holdfast.store.repos import aliases
from holdfast.store.sqlite.driver import open_sqlite
from tests.crash.programs import wait_until
from tests.fakes.channel import FakeChannel
from tests.fakes.transcription_server import TranscriptionServer
from tests.gateway.crash_loop import ROOT
from tests.gateway.gateway_fixture import run_gateway
from tests.gateway.platforms.test_webhook import CONFIG, SECRET, Far, payload, serving, signed
from tests.gateway.synapse import free_port
from tests.gateway.test_flow import said
from tests.gateway.test_platforms import readers

VOICE = {"ref": "voice", "name": "voice", "media_type": "audio/ogg", "size": 20}


@pytest.fixture
def service() -> Iterator[TranscriptionServer]:
    with TranscriptionServer() as running:
        yield running


def heard(text: str) -> FakeChannel:
    channel = FakeChannel(text=2000)
    channel.files = {"voice": f"OggS says:{text}".encode()}
    return channel


def transcriber(service: TranscriptionServer, **options: object) -> OpenAiTranscriber:
    return OpenAiTranscriber("sk-x", service.url, **options)  # type: ignore[arg-type]


async def test_a_voice_message_is_text_of_the_message_and_an_attachment(
    tmp_path: Path, service: TranscriptionServer
) -> None:
    channel, ears = heard("Buy milk"), transcriber(service)
    async with run_gateway(tmp_path, channel, transcriber=ears, allow=["alice"]) as fixture:
        await channel.say("", attachments=[VOICE])
        await fixture.replies(1)
        [words] = await said(fixture)
        session_id = await fixture.database.read(aliases.get_channel_session, "fake:c1")
    await ears.close()

    assert "[transcript of the recording voice]\nBuy milk" in words
    [file] = (tmp_path / "files" / str(session_id)).iterdir()
    assert str(file) in words
    assert file.read_bytes() == channel.files["voice"]
    assert service.requests[0].files("file")[0].file_name == "voice.ogg", "the service needs the ending"


@pytest.mark.parametrize(
    ("options", "busy", "why"),
    [
        ({"max_bytes": 5}, False, "it has 18 bytes; the limit is 5"),
        ({}, True, "says: cannot decode"),
        ({"timeout_seconds": 0.2}, None, "within 0.2 s"),
    ],
)
async def test_a_recording_that_is_not_understood_is_delivered_with_a_note(
    tmp_path: Path, service: TranscriptionServer, options: dict[str, object], busy: bool | None, why: str
) -> None:
    service.acts.append(service.hang if busy is None else lambda handler: handler.answer_error(400, "cannot decode"))
    channel, ears = heard("Buy milk"), transcriber(service, **options)
    async with run_gateway(tmp_path, channel, transcriber=ears, allow=["alice"]) as fixture:
        await channel.say("listen", attachments=[VOICE])
        notice, _ = await fixture.replies(2)
        [words] = await said(fixture)
    await ears.close()

    assert notice.startswith("! The recording voice could not be transcribed: ")
    assert "listen" in words
    assert "[the recording voice was not transcribed: " in words


async def test_silence_is_named(tmp_path: Path, service: TranscriptionServer) -> None:
    channel, ears = heard(" "), transcriber(service)
    async with run_gateway(tmp_path, channel, transcriber=ears, allow=["alice"]) as fixture:
        await channel.say("", attachments=[VOICE])
        notice, _ = await fixture.replies(2)
    await ears.close()

    assert "nothing was understood" in notice


async def test_a_spoken_answer_or_command_is_only_text(tmp_path: Path, service: TranscriptionServer) -> None:
    channel, ears = heard("/new"), transcriber(service)
    async with run_gateway(tmp_path, channel, transcriber=ears, allow=["alice"]) as fixture:
        await channel.say("", attachments=[VOICE])
        [reply] = await fixture.replies(1)
    await ears.close()

    assert "/new" in reply, "the model answered it"


async def test_another_chat_does_not_wait_for_a_slow_service(tmp_path: Path, service: TranscriptionServer) -> None:
    service.acts.append(service.hang)
    channel, ears = heard("Buy milk"), transcriber(service, timeout_seconds=30)
    async with run_gateway(tmp_path, channel, transcriber=ears, allow=["alice"]) as fixture:
        await channel.say("", attachments=[VOICE], chat="slow")
        await asyncio.to_thread(service.hanging.wait)
        await channel.say("hello", chat="fast")
        [reply] = await fixture.replies(1)
    await ears.close()

    assert reply == "You said: hello"


VOICE_PAYLOADS = {
    "telegram": {"me": 9, "name": "bot", "update": {"update_id": 1, "message": {"message_id": 2, "date": 1, "chat": {"id": 1, "type": "private"},
                 "from": {"id": 1, "first_name": "A"}, "voice": {"file_id": "f", "duration": 3, "mime_type": "audio/ogg", "file_size": 9}}}},
    "matrix": {"room": "!r", "people": 2, "me": "@a:x", "event": {"type": "m.room.message", "event_id": "$1", "sender": "@b:x", "content":
               {"msgtype": "m.audio", "body": "Voice message.ogg", "file": {"url": "mxc://x/y"}, "info": {"mimetype": "audio/ogg", "size": 9},
                "org.matrix.msc3245.voice": {}}}},
    "slack": {"me": "U0", "envelope": {"type": "events_api", "payload": {"event": {"type": "message", "subtype": "file_share", "channel": "D1",
              "channel_type": "im", "user": "U1", "text": "", "ts": "1.1", "files": [{"url_private": "https://files.slack.com/x", "size": 9,
              "name": "audio_message.m4a", "mimetype": "audio/mp4", "subtype": "slack_audio"}]}}}},
    "discord": {"me": "9", "t": "MESSAGE_CREATE", "d": {"id": "5", "channel_id": "7", "author": {"id": "1", "username": "a"}, "content": "",
                "type": 0, "flags": 8192, "attachments": [{"url": "https://cdn.discordapp.com/x", "filename": "voice-message.ogg", "size": 9,
                "content_type": "audio/ogg", "duration_secs": 3.0, "waveform": "AA=="}]}},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(VOICE_PAYLOADS))
def test_every_platform_says_that_a_voice_message_is_a_recording(name: str) -> None:
    import json

    found: Incoming = readers()[name](json.dumps(VOICE_PAYLOADS[name]))

    [voice] = found.attachments
    assert voice.media_type.startswith("audio/")
    assert not found.ignored


@pytest.mark.process
@pytest.mark.timeout(120)
async def test_a_voice_message_survives_a_kill_while_it_is_transcribed(
    tmp_path: Path, service: TranscriptionServer
) -> None:
    home, port, far = tmp_path / "home", free_port(), Far()
    home.mkdir(mode=0o700)
    service.acts.append(service.hang)
    recording = {"name": "voice.ogg", "media_type": "audio/ogg", "data": base64.b64encode(b"OggS says:Hello").decode()}
    async with serving(far.handle) as url:
        text = CONFIG.format(port=port, url=url, secret=SECRET)
        (home / "config.toml").write_text(f'{text}[transcription]\nbase_url = "{service.url}"\n')
        first = await start(home)
        await post(port, payload("", attachments=[recording]))
        await asyncio.to_thread(service.hanging.wait)
        first.send_signal(signal.SIGKILL)
        await first.wait()
        second = await start(home)
        try:
            await asyncio.to_thread(wait_until, lambda: bool(far.taken), "the reply")
        finally:
            second.send_signal(signal.SIGTERM)
            await second.wait()

    [reply] = far.taken
    assert "[transcript of the recording voice.ogg]" in str(reply["text"])
    assert "Hello" in str(reply["text"])
    database = await open_sqlite(home / "holdfast.db")
    session_id = await database.read(aliases.get_channel_session, "bridge:c")
    await database.close()
    assert session_id is not None
    assert len(service.requests) == 2


async def start(home: Path) -> asyncio.subprocess.Process:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "--home", str(home), "serve", "--port", "0"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdout is not None
    await server.stdout.readline()
    return server


async def post(port: int, body: bytes) -> None:
    """Post a message to the bridge's address, as soon as it listens."""
    async with asyncio.timeout(30), httpx2.AsyncClient() as client:
        while True:
            try:
                answer = await client.post(f"http://127.0.0.1:{port}/", content=body, headers=signed(body))
            except httpx2.ConnectError:
                await asyncio.sleep(0.1)
            else:
                assert answer.status_code == 200, answer.text
                return
