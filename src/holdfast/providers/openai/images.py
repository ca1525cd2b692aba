"""Makes and edits images with OpenAI's images API, or a compatible one."""

import asyncio
import base64
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.model.errors import BadReply, ContextTooLong, Invalid, Refused, Unavailable
from holdfast.model.image_format import EXTENSIONS, image_size, image_type
from holdfast.model.image_service import ImageContent, ImageRequest
from holdfast.providers.endpoint import ProviderEndpoint
from holdfast.providers.multipart import EncodedForm, FormFile, encode_form
from holdfast.providers.openai.media_requests import MediaRequests
from holdfast.providers.retry import Chance, Sleep
from holdfast.providers.transport import JSON
from holdfast.safe_fetch import SafeFetcher, TooLarge

GENERATIONS = "/images/generations"
EDITS = "/images/edits"
DEFAULT_MODEL = "gpt-image-1"
MAX_IMAGE_BYTES = 20 * 1024 * 1024
"""Of one image in a reply. Few messaging platforms accept more."""
REST_BYTES = 64 * 1024
"""The rest of a reply: revised prompts, token counts."""


class OpenAiImages:
    """Implements `ImageService`.

    A request is repeated only if the service was too busy to accept it. After any other failure it may have made the
    images, and charged for them.
    """

    def __init__(
        self,
        api_key: str = "",
        base_url: str | None = None,
        *,
        model: str = DEFAULT_MODEL,
        timeout_seconds: float = 300.0,
        fetcher: SafeFetcher | None = None,
        sleep: Sleep = asyncio.sleep,
        chance: Chance = random.random,
        max_image_bytes: int = MAX_IMAGE_BYTES,
    ) -> None:
        self._requests = MediaRequests(
            api_key, base_url, model=model, timeout_seconds=timeout_seconds, sleep=sleep, chance=chance
        )
        self._model = model
        self._fetcher = fetcher
        self._max_image_bytes = max_image_bytes

    async def make(self, request: ImageRequest, report: Callable[[str], None]) -> list[ImageContent]:
        path = EDITS if request.inputs else GENERATIONS
        form = _edit_form(request, self._model) if request.inputs else _generation_body(request, self._model)
        body = await self._post(path, form, request.count, report)
        reply = await asyncio.to_thread(_parse, body)
        who = self._requests.endpoint.who
        if not reply.data:
            raise BadReply(f"{who} sent a reply without an image")
        return [await self._load(item, who) for item in reply.data[: request.count]]

    async def close(self) -> None:
        await self._requests.close()

    async def _post(self, path: str, form: EncodedForm, count: int, report: Callable[[str], None]) -> bytes:
        max_bytes = count * (self._max_image_bytes * 4 // 3) + REST_BYTES
        try:
            return await self._requests.post(path, form, max_bytes=max_bytes, report=report)
        except ContextTooLong as e:  # here it has no context that could be compacted
            who = self._requests.endpoint.who
            raise Refused(f"{who} says that the request is too large: use fewer or smaller images") from e

    async def _load(self, item: "_ReplyImage", who: str) -> ImageContent:
        """The image of a reply, checked. Raises BadReply."""
        if item.b64_json:
            content = await asyncio.to_thread(_decode, item.b64_json, who)
        elif item.url:
            content = await self._download(item.url, who)
        else:
            raise BadReply(f"{who} sent a reply without an image")
        if len(content) > self._max_image_bytes:
            raise BadReply(f"{who} sent an image of {len(content):,} bytes; the limit is {self._max_image_bytes:,}")
        media_type = image_type(content)
        if media_type is None or image_size(content) is None:
            raise BadReply(f"{who} sent something that is not a PNG, JPEG, GIF or WebP image")
        return ImageContent(media_type, content, f"image{EXTENSIONS[media_type]}")

    async def _download(self, url: str, who: str) -> bytes:
        """Fetch an image that the reply names. Of private addresses, only that of the service itself is allowed."""
        fetcher = self._fetcher or SafeFetcher((_with_port(self._requests.endpoint),))
        with tempfile.TemporaryDirectory(prefix="holdfast-image-") as folder:
            target = Path(folder) / "image"
            try:
                await fetcher.save(url, target, self._max_image_bytes)
            except (Invalid, Unavailable, TooLarge) as e:
                raise BadReply(f"the image that {who} made could not be fetched: {e}") from e
            return await asyncio.to_thread(target.read_bytes)


class _ReplyImage(msgspec.Struct, frozen=True):
    b64_json: str | None = None
    url: str | None = None


class _Reply(msgspec.Struct, frozen=True):
    data: list[_ReplyImage] = []


def _generation_body(request: ImageRequest, model: str) -> EncodedForm:
    body: dict[str, object] = {"model": model, "prompt": request.prompt, "n": request.count}
    if request.size:
        body["size"] = request.size
    return EncodedForm(JSON, [json.dumps(body).encode("ascii")])


def _edit_form(request: ImageRequest, model: str) -> EncodedForm:
    """One input is the field `image`; several are the list `image[]`."""
    name = "image" if len(request.inputs) == 1 else "image[]"
    fields: list[tuple[str, str | FormFile]] = [("model", model), ("prompt", request.prompt)]
    fields += [("n", str(request.count)), *((("size", request.size),) if request.size else ())]
    fields += [(name, one) for one in request.inputs]
    if request.mask is not None:
        fields.append(("mask", request.mask))
    return encode_form(fields)


def _parse(body: bytes) -> _Reply:
    try:
        return msgspec.json.decode(body, type=_Reply)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise BadReply("the images service sent an invalid response: check images.base_url") from e


def _decode(text: str, who: str) -> bytes:
    """Decode base64. Some servers send a data URL."""
    data = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as e:
        raise BadReply(f"{who} sent an image that is not valid base64") from e


def _with_port(server: ProviderEndpoint) -> str:
    has_port = ":" in server.host.rpartition("]")[2]
    return server.host if has_port else f"{server.host}:{443 if server.base_url.startswith('https') else 80}"
