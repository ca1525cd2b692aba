"""Writes down recordings with OpenAI's audio API, or a compatible one."""

import asyncio
import random

import msgspec

from holdfast.model.errors import BadReply, Unreachable
from holdfast.providers.multipart import FormFile, encode_form
from holdfast.providers.openai.media_requests import MediaRequests
from holdfast.providers.retry import Chance, Sleep

PATH = "/audio/transcriptions"
DEFAULT_MODEL = "whisper-1"
MAX_RESPONSE_BYTES = 1024 * 1024


class Recording(msgspec.Struct, frozen=True):
    """A file of a form."""

    name: str
    media_type: str
    content: bytes


class _Transcript(msgspec.Struct, frozen=True):
    text: str


class OpenAiTranscriber:
    """Implements the gateway's `Transcriber`. The time limit is that of a recording, with repeated requests."""

    def __init__(
        self,
        api_key: str = "",
        base_url: str | None = None,
        *,
        model: str = DEFAULT_MODEL,
        language: str = "",
        max_bytes: int = 25 * 1024 * 1024,
        timeout_seconds: float = 60.0,
        sleep: Sleep = asyncio.sleep,
        chance: Chance = random.random,
    ) -> None:
        self._requests = MediaRequests(
            api_key, base_url, model=model, timeout_seconds=timeout_seconds, sleep=sleep, chance=chance
        )
        self._model = model
        self._language = language
        self._seconds = timeout_seconds
        self.max_bytes = max_bytes

    async def transcribe(self, name: str, media_type: str, content: bytes) -> str:
        fields: list[tuple[str, str | FormFile]] = [("model", self._model), ("response_format", "json")]
        fields += [("language", self._language)] if self._language else []
        form = encode_form([*fields, ("file", Recording(name, media_type, content))])
        who = self._requests.endpoint.who
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._requests.post(PATH, form, max_bytes=MAX_RESPONSE_BYTES)
        except TimeoutError as e:
            raise Unreachable(f"{who} has not transcribed the recording within {self._seconds:g} s") from e
        try:
            return msgspec.json.decode(body, type=_Transcript).text.strip()
        except (msgspec.DecodeError, UnicodeDecodeError) as e:
            raise BadReply(f"{who} sent an invalid transcript: check transcription.base_url") from e

    async def close(self) -> None:
        await self._requests.close()
