"""Opens the service that transcribes voice messages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.gateway.voice import Transcriber
from holdfast.settings import Settings


@asynccontextmanager
async def open_transcriber(settings: Settings) -> AsyncIterator[Transcriber | None]:
    """The configured service, or None."""
    access, given = settings.transcription_access(), settings.transcription
    if access is None:
        yield None
        return
    from holdfast.providers.openai.transcription import DEFAULT_MODEL, OpenAiTranscriber

    service = OpenAiTranscriber(
        access.api_key.reveal() if access.api_key else "",
        access.base_url,
        model=given.model or DEFAULT_MODEL,
        language=given.language or "",
        max_bytes=int(given.max_mb * 1024 * 1024),
        timeout_seconds=given.timeout_seconds,
    )
    try:
        yield service
    finally:
        await service.close()
