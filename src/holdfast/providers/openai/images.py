"""Makes and edits images with OpenAI's images API, or a compatible one."""

import asyncio
import base64
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.model.errors import BadReply, ContextTooLong, Invalid, ProviderFailed, RateLimited, Refused, Unavailable
from holdfast.model.image_format import EXTENSIONS, image_size, image_type
from holdfast.model.image_service import ImageContent, ImageRequest
from holdfast.providers.endpoint import ProviderEndpoint, resolve_endpoint
from holdfast.providers.error_mapping import ProviderErrorResponse
from holdfast.providers.multipart import EncodedForm, encode_form
from holdfast.providers.openai.provider import BASE_URL, map_response
from holdfast.providers.openai.request import NAME
from holdfast.providers.retry import Chance, RetryPolicy, Sleep, retry_delay
from holdfast.providers.timeouts import RequestTimeouts
from holdfast.providers.transport import JSON, ProviderTransport
from holdfast.safe_fetch import SafeFetcher, TooLarge

GENERATIONS = "/images/generations"
EDITS = "/images/edits"
DEFAULT_MODEL = "gpt-image-1"
MAX_IMAGE_BYTES = 20 * 1024 * 1024
"""Of one image in a reply. Few messaging platforms accept more."""
REST_BYTES = 64 * 1024
"""The rest of a reply: revised prompts, token counts."""
POLICY = RetryPolicy(tries=3)
TOO_BUSY = (429, 503)


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
        self._api_key = api_key
        self._base_url = base_url
        self._model = model
        self._limits = RequestTimeouts(first_seconds=timeout_seconds)
        self._fetcher = fetcher
        self._sleep = sleep
        self._chance = chance
        self._max_image_bytes = max_image_bytes
        self._server: ProviderEndpoint | None = None
        self._transports: dict[str, ProviderTransport] = {}

    async def make(self, request: ImageRequest, report: Callable[[str], None]) -> list[ImageContent]:
        path = EDITS if request.inputs else GENERATIONS
        form = _edit_form(request, self._model) if request.inputs else _generation_body(request, self._model)
        body = await self._post(path, form, request.count, report)
        reply = await asyncio.to_thread(_parse, body)
        who = self._endpoint().who
        if not reply.data:
            raise BadReply(f"{who} sent a reply without an image")
        return [await self._load(item, who) for item in reply.data[: request.count]]

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.close()

    async def _post(self, path: str, form: EncodedForm, count: int, report: Callable[[str], None]) -> bytes:
        server, transport = self._endpoint(), self._transport(path)
        max_bytes = count * (self._max_image_bytes * 4 // 3) + REST_BYTES
        tried = 1
        while True:
            try:
                return await transport.fetch(form.chunks, max_bytes=max_bytes, content_type=form.content_type)
            except ProviderErrorResponse as e:
                failed = _explain(map_response(e, server, self._model), server)
                after = failed.retry_after if isinstance(failed, RateLimited) else None
                is_busy = failed.retryable and e.status in TOO_BUSY
                wait = retry_delay(POLICY, tried, self._chance(), after) if is_busy else None
                if wait is None:
                    raise failed from e
            tried += 1
            report(f"{failed}; next attempt in {wait:.0f} s")
            await self._sleep(wait)

    def _endpoint(self) -> ProviderEndpoint:
        """Raises AuthFailed or Unreachable for invalid settings."""
        if self._server is None:
            self._server = resolve_endpoint(NAME, api_key=self._api_key, base_url=self._base_url, official=BASE_URL)
        return self._server

    def _transport(self, path: str) -> ProviderTransport:
        if path not in self._transports:
            server = self._endpoint()
            headers = {"authorization": f"Bearer {server.api_key}"}
            self._transports[path] = ProviderTransport(server, path, headers, limits=self._limits)
        return self._transports[path]

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
        fetcher = self._fetcher or SafeFetcher((_with_port(self._endpoint()),))
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
    fields: list[tuple[str, str | ImageContent]] = [("model", model), ("prompt", request.prompt)]
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


def _explain(failed: ProviderFailed, server: ProviderEndpoint) -> ProviderFailed:
    """Reword the error for a request that is too large: here it has no context that could be compacted."""
    if isinstance(failed, ContextTooLong):
        return Refused(f"{server.who} says that the request is too large: use fewer or smaller images")
    return failed


def _with_port(server: ProviderEndpoint) -> str:
    has_port = ":" in server.host.rpartition("]")[2]
    return server.host if has_port else f"{server.host}:{443 if server.base_url.startswith('https') else 80}"
