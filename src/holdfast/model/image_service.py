"""The port of services that make and edit images."""

from collections.abc import Callable
from typing import Protocol

import msgspec


class ImageContent(msgspec.Struct, frozen=True):
    """An image. `name` is for the service and for messages."""

    media_type: str
    content: bytes
    name: str = ""


class ImageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to make. With `inputs` they are edited, otherwise a new image is made."""

    prompt: str
    inputs: tuple[ImageContent, ...] = ()
    mask: ImageContent | None = None
    """Its transparent pixels are where the first input may change."""
    size: str = ""
    count: int = 1


class ImageService(Protocol):
    async def make(self, request: ImageRequest, report: Callable[[str], None]) -> list[ImageContent]:
        """Make the images, at least one. `report` is told why it takes longer.

        Each call costs money. It is repeated only if the service was too busy to accept it. Raises ProviderFailed; after Unreachable and BadReply the service may have made the images.
        """

    async def close(self) -> None:
        """Close the connections."""
