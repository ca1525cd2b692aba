"""The port of services that write down what a recording says."""

from typing import Protocol

import msgspec


class AudioContent(msgspec.Struct, frozen=True):
    """A recording. `name` has an ending that says its format."""

    media_type: str
    content: bytes
    name: str


class Transcriber(Protocol):
    max_bytes: int
    """The largest recording that is sent."""

    async def transcribe(self, audio: AudioContent) -> str:
        """What the recording says; empty if nothing. Raises ProviderFailed."""

    async def close(self) -> None:
        """Close the connections."""
