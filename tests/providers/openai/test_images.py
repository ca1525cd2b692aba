"""The client of the images API: what it sends, what it accepts, and how it names what went wrong."""

import io
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from PIL import Image

from holdfast.model.errors import AuthFailed, BadReply, ProviderFailed, RateLimited, Refused, Unreachable
from holdfast.model.image_service import ImageContent, ImageRequest
from holdfast.providers.openai.images import OpenAiImages
from holdfast.safe_fetch import SafeFetcher
from tests.fakes.images_server import ImagesHandler, ImagesServer, edited, sample, sample_mask

KEY = "sk-very-secret-key-0123456789"
FIRST = ImageContent("image/png", sample(), "first.png")
SECOND = ImageContent("image/jpeg", sample("JPEG"), 'se"co\r\nnd ü.jpg')
MASK = ImageContent("image/png", sample_mask(), "mask.png")
HANG_SECONDS = 0.5


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def server() -> Iterator[ImagesServer]:
    with ImagesServer() as running:
        yield running


class Waits:
    """Records delays instead of waiting."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.reports: list[str] = []

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)


@asynccontextmanager
async def client(server: ImagesServer, waits: Waits | None = None, **options: object) -> AsyncIterator[OpenAiImages]:
    sleep = (waits or Waits()).sleep
    service = OpenAiImages(KEY, server.url, sleep=sleep, chance=lambda: 0.0, **options)  # type: ignore[arg-type]
    try:
        yield service
    finally:
        await service.close()


async def make(
    server: ImagesServer, request: ImageRequest, waits: Waits | None = None, **options: object
) -> list[ImageContent]:
    async with client(server, waits, **options) as service:
        try:
            return await service.make(request, waits.reports.append if waits else lambda _: None)
        except ProviderFailed as e:
            assert KEY not in f"{e} {e!r} {e.__cause__} {e.__cause__!r}"
            raise


def pixel(content: bytes, place: tuple[int, int]) -> object:
    return Image.open(io.BytesIO(content)).convert("RGB").getpixel(place)


async def test_an_image_is_generated(server: ImagesServer) -> None:
    [image] = await make(server, ImageRequest(prompt="a “tree”", size="1024x1024"), model="painter")
    [request] = server.requests

    assert request.path == "/v1/images/generations"
    assert request.body == {"model": "painter", "prompt": "a “tree”", "n": 1, "size": "1024x1024"}
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert (image.media_type, image.name) == ("image/png", "image.png")
    assert pixel(image.content, (90, 60)) == (255, 255, 255)


async def test_an_edit_sends_both_inputs_and_the_mask_byte_for_byte(server: ImagesServer) -> None:
    request = ImageRequest(prompt="inverted — bitte", inputs=(FIRST, SECOND), mask=MASK, count=2)
    [image] = await make(server, request, model="painter")
    [received] = server.requests
    sent = [(part.name, part.file_name, part.media_type, part.content) for part in received.parts]

    assert received.path == "/v1/images/edits"
    assert sent == [
        ("model", "", "", b"painter"),
        ("prompt", "", "", "inverted — bitte".encode()),
        ("n", "", "", b"2"),
        ("image[]", "first.png", "image/png", FIRST.content),
        ("image[]", "se_co__nd _.jpg", "image/jpeg", SECOND.content),
        ("mask", "mask.png", "image/png", MASK.content),
    ]
    assert image.content == edited(FIRST.content, MASK.content)
    assert pixel(image.content, (0, 0)) == pixel(FIRST.content, (0, 0))
    assert pixel(image.content, (48, 32)) != pixel(FIRST.content, (48, 32))


async def test_a_single_input_has_the_plain_name(server: ImagesServer) -> None:
    await make(server, ImageRequest(prompt="inverted", inputs=(FIRST,)))

    assert [part.name for part in server.requests[0].parts] == ["model", "prompt", "n", "image"]


async def test_a_url_of_the_service_itself_is_fetched(server: ImagesServer) -> None:
    server.files["/made/1.png"] = sample()
    server.acts.append(lambda handler: handler.answer_json(200, {"data": [{"url": f"{server.origin}/made/1.png"}]}))

    [image] = await make(server, ImageRequest(prompt="a tree"))
    assert image.content == sample()


async def test_a_url_of_another_private_address_is_not_fetched(server: ImagesServer) -> None:
    with ImagesServer() as other:
        other.files["/made/1.png"] = sample()
        server.acts.append(lambda handler: handler.answer_json(200, {"data": [{"url": f"{other.origin}/made/1.png"}]}))

        with pytest.raises(BadReply, match="private address"):
            await make(server, ImageRequest(prompt="a tree"))


async def test_a_name_with_a_private_address_is_not_fetched(server: ImagesServer) -> None:
    server.acts.append(lambda handler: handler.answer_json(200, {"data": [{"url": "http://public.example/1.png"}]}))

    async def resolve(host: str, port: int) -> list[str]:
        return ["10.0.0.1"]

    with pytest.raises(BadReply, match=r"public.example has the private address 10.0.0.1"):
        await make(server, ImageRequest(prompt="a tree"), fetcher=SafeFetcher(resolve=resolve))


def says(status: int, body: str, kind: str = "application/json") -> Callable[[ImagesHandler], None]:
    return lambda handler: handler.answer(status, body.encode(), kind)


def carries(text: str) -> Callable[[ImagesHandler], None]:
    return says(200, json.dumps({"data": [{"b64_json": text}]}))


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (says(200, "<html>Welcome</html>", "text/html"), "invalid response"),
        (says(200, "[]"), "invalid response"),
        (says(200, "{}"), "without an image"),
        (says(200, '{"data": [{}]}'), "without an image"),
        (says(200, '{"data": [{"b64_json": 7}]}'), "invalid response"),
        (carries("not base64!"), "not valid base64"),
        (carries("aGVsbG8="), "not a PNG, JPEG, GIF or WebP"),
        (carries("PHN2Zz48L3N2Zz4="), "not a PNG, JPEG, GIF or WebP"),
        (carries("iVBORw0KGgo="), "not a PNG, JPEG, GIF or WebP"),
        (carries("A" * 40_000), "more than|the limit is"),
        (says(200, '{"data": [{"url": "file:///etc/passwd"}]}'), "not an http or https URL"),
    ],
)
async def test_a_bad_reply_is_named(server: ImagesServer, act: Callable[[ImagesHandler], None], why: str) -> None:
    server.acts.append(act)

    with pytest.raises(BadReply, match=why):
        await make(server, ImageRequest(prompt="a tree"), max_image_bytes=20_000)
    assert len(server.requests) == 1


async def test_a_reply_without_end_is_cut_off(server: ImagesServer) -> None:
    server.acts.append(says(200, "x" * 200_000))

    with pytest.raises(BadReply, match="more than"):
        await make(server, ImageRequest(prompt="a tree"), max_image_bytes=20_000)


async def test_a_refusal_by_moderation_is_not_repeated(server: ImagesServer) -> None:
    server.acts.append(
        lambda handler: handler.answer_error(400, "Rejected by the safety system.", "moderation_blocked")
    )

    with pytest.raises(Refused, match="Rejected by the safety system"):
        await make(server, ImageRequest(prompt="something vile"))
    assert len(server.requests) == 1


async def test_a_rate_limit_is_waited_for(server: ImagesServer) -> None:
    waits = Waits()
    server.acts.append(lambda handler: handler.answer_error(429, "Slow down.", "rate_limit_exceeded", retry_after="7"))
    images = await make(server, ImageRequest(prompt="a tree"), waits)

    assert (len(images), len(server.requests), waits.seconds) == (1, 2, [7.0])
    assert "next attempt in 7 s" in waits.reports[0]


async def test_a_service_that_stays_busy_is_given_up(server: ImagesServer) -> None:
    waits = Waits()
    server.acts += [lambda handler: handler.answer_error(429, "Slow down.", "rate_limit_exceeded")] * 3

    with pytest.raises(RateLimited):
        await make(server, ImageRequest(prompt="a tree"), waits)
    assert waits.seconds == [1.0, 2.0]


async def test_an_overloaded_service_is_asked_again(server: ImagesServer) -> None:
    server.acts.append(lambda handler: handler.answer_error(503, "Overloaded.", "server_error"))

    assert len(await make(server, ImageRequest(prompt="a tree"))) == 1


@pytest.mark.parametrize("status", [500, 502, 504])
async def test_an_error_that_may_have_cost_money_is_not_repeated(server: ImagesServer, status: int) -> None:
    server.acts.append(lambda handler: handler.answer_error(status, "Oh dear.", "server_error"))

    with pytest.raises(Unreachable, match="Oh dear"):
        await make(server, ImageRequest(prompt="a tree"))
    assert len(server.requests) == 1


async def test_silence_is_not_repeated(server: ImagesServer) -> None:
    server.acts.append(server.hang)

    with pytest.raises(Unreachable, match="sent nothing for"):
        await make(
            server, ImageRequest(prompt="a tree"), timeout_seconds=HANG_SECONDS
        )  # a second request would get an image


async def test_a_body_that_never_ends_is_given_up(server: ImagesServer) -> None:
    def begin(handler: ImagesHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "1000")
        handler.end_headers()
        handler.wfile.write(b"{")
        handler.wfile.flush()
        server.hang(handler)

    server.acts.append(begin)
    with pytest.raises(Unreachable, match="sent nothing for"):
        await make(server, ImageRequest(prompt="a tree"), timeout_seconds=HANG_SECONDS)


async def test_inputs_that_are_too_large_for_the_service_are_named(server: ImagesServer) -> None:
    server.acts.append(says(413, "Payload Too Large", "text/plain"))

    with pytest.raises(Refused, match="fewer or smaller images"):
        await make(server, ImageRequest(prompt="inverted", inputs=(FIRST,)))


async def test_a_wrong_key_is_named_but_not_shown(server: ImagesServer) -> None:
    server.acts.append(lambda handler: handler.answer_error(401, f"Incorrect API key: {KEY}", "invalid_api_key"))

    with pytest.raises(AuthFailed, match="rejected the API key"):
        await make(server, ImageRequest(prompt="a tree"))
