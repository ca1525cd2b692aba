"""The client of the transcription API: what it sends, what it accepts, and how it names what went wrong."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from holdfast.model.errors import AuthFailed, BadReply, ProviderFailed, RateLimited, Refused, Unreachable
from holdfast.providers.openai.transcription import OpenAiTranscriber
from tests.fakes.images_server import ImagesHandler
from tests.fakes.transcription_server import TranscriptionServer
from tests.providers.openai.test_images import KEY, Waits, no_proxy

__all__ = ["no_proxy"]
VOICE = ("voice.ogg", "audio/ogg", b"OggS says:Buy milk")


@pytest.fixture
def server() -> Iterator[TranscriptionServer]:
    with TranscriptionServer() as running:
        yield running


@asynccontextmanager
async def client(
    server: TranscriptionServer, waits: Waits | None = None, **options: object
) -> AsyncIterator[OpenAiTranscriber]:
    sleep = (waits or Waits()).sleep
    service = OpenAiTranscriber(KEY, server.url, sleep=sleep, chance=lambda: 0.0, **options)  # type: ignore[arg-type]
    try:
        yield service
    finally:
        await service.close()


async def test_a_recording_is_sent_as_a_form_and_its_text_returned(server: TranscriptionServer) -> None:
    async with client(server, model="whisper-large", language="de") as service:
        text = await service.transcribe(*VOICE)

    [request] = server.requests
    assert text == "Buy milk"
    assert request.text("model") == "whisper-large"
    assert request.text("language") == "de"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    [file] = request.files("file")
    assert (file.content, file.media_type, file.file_name) == VOICE[::-1]


async def test_a_busy_service_is_asked_again(server: TranscriptionServer) -> None:
    waits = Waits()
    server.acts.append(lambda handler: handler.answer_error(429, "slow down", retry_after="2"))
    async with client(server, waits) as service:
        assert await service.transcribe(*VOICE) == "Buy milk"

    assert waits.seconds == [2.0]


def html(handler: ImagesHandler) -> None:
    handler.answer(200, b"<html>Welcome</html>", "text/html")


def elsewhere(handler: ImagesHandler) -> None:
    handler.answer(302, b"", location="http://elsewhere.example/v1")


def endless(handler: ImagesHandler) -> None:
    handler.answer_json(200, {"text": "x" * 2_000_000})


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda handler: handler.answer_error(401, f"wrong key {KEY}"), AuthFailed),
        (lambda handler: handler.answer_error(400, "Audio file might be corrupted"), Refused),
        (lambda handler: handler.answer_error(500, "broken"), ProviderFailed),
        (lambda handler: handler.answer_json(200, {"words": []}), BadReply),
        (html, BadReply),
        (endless, BadReply),
        (elsewhere, Refused),
    ],
)
async def test_failures_have_names_and_never_show_the_key(
    server: TranscriptionServer, act: Callable[[ImagesHandler], None], error: type[ProviderFailed]
) -> None:
    server.acts.append(act)
    async with client(server) as service:
        with pytest.raises(error) as failed:
            await service.transcribe(*VOICE)

    assert KEY not in str(failed.value)


async def test_the_time_limit_holds_for_all_attempts(server: TranscriptionServer) -> None:
    server.acts.append(server.hang)
    async with client(server, timeout_seconds=0.3) as service:
        with pytest.raises(Unreachable):
            await service.transcribe(*VOICE)


async def test_too_many_refusals_are_given_up(server: TranscriptionServer) -> None:
    server.acts.extend([lambda handler: handler.answer_error(429, "slow down")] * 3)
    async with client(server) as service:
        with pytest.raises(RateLimited):
            await service.transcribe(*VOICE)
