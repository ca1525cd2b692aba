"""The webhook bridge: signed JSON in both directions, and the example program."""

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from aiohttp import web

from holdfast.clock import SystemClock
from holdfast.gateway.platforms import webhook
from holdfast.gateway.port import (
    Attachment,
    DeliveryUnknown,
    Incoming,
    Outgoing,
    Platform,
    PlatformOptions,
    Rejected,
    RetryLater,
    Sent,
)
from holdfast.model.errors import Invalid
from holdfast.safe_fetch import TooLarge
from holdfast.store.repos import inbox
from holdfast.store.sqlite.driver import open_sqlite
from tests.gateway.crash_loop import ROOT, CrashLoop
from tests.gateway.synapse import free_port

SECRET = "a secret of some length"
CONFIG = """
model = "scripted:echo"
[agent]
titles = false
[gateway.bridge]
kind = "webhook"
listen = "127.0.0.1:{port}"
url = "{url}"
secret = "{secret}"
allow = ["*"]
tell_queued = false
"""


class Far:
    """The other side of a bridge: it receives what Holdfast sends."""

    def __init__(self) -> None:
        self.taken: list[dict[str, object]] = []
        self.statuses: list[int] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert webhook.is_signed(SECRET.encode(), headers, body, time.time())
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 200:
            self.taken.append({**json.loads(body), "idempotency-key": headers["idempotency-key"]})
        return web.json_response({"id": f"id{len(self.taken)}"}, status=status, headers={"Retry-After": "3"})


@asynccontextmanager
async def serving(handle: object, path: str = "/") -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", path, handle)  # type: ignore[arg-type]
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}{path}"
    await runner.cleanup()


def signed(body: bytes, secret: str = SECRET, at: float | None = None) -> dict[str, str]:
    timestamp = str(int(at or time.time()))
    return {webhook.TIMESTAMP: timestamp, webhook.SIGNATURE: webhook.sign(secret.encode(), timestamp, body)}


def payload(text: str, message: str = "m1", **more: object) -> bytes:
    return json.dumps({"chat": "c", "message": message, "person": "p", "text": text, **more}).encode()


class Gateway:
    def __init__(self, home: Path, port: int, loop: CrashLoop) -> None:
        self.home = home
        self.url = f"http://127.0.0.1:{port}/"
        self.loop = loop
        self._client = httpx2.AsyncClient()

    async def post(self, body: bytes, headers: dict[str, str] | None = None) -> int:
        answer = await self._client.post(self.url, content=body, headers=signed(body) if headers is None else headers)
        return answer.status_code

    async def ready(self) -> None:
        async with asyncio.timeout(30):
            while True:
                self.loop.check()
                try:
                    await self._client.post(self.url, content=b"")
                except httpx2.ConnectError:
                    await asyncio.sleep(0.1)
                else:
                    return

    async def close(self) -> None:
        await self._client.aclose()


@asynccontextmanager
async def gateway(home: Path, url: str, model: str = "scripted:echo", more: str = "") -> AsyncIterator[Gateway]:
    port = free_port()
    home.mkdir()
    config = CONFIG.format(port=port, url=url, secret=SECRET).replace("scripted:echo", model)
    (home / "config.toml").write_text(config + more)
    async with CrashLoop(home, ()) as loop:
        opened = Gateway(home, port, loop)
        await opened.ready()
        yield opened
        await opened.close()


async def until(holds: object, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # type: ignore[operator]
            await asyncio.sleep(0.05)


@pytest.mark.clients
async def test_a_message_is_answered_and_a_duplicate_is_recognised(tmp_path: Path) -> None:
    far = Far()
    async with serving(far.handle) as url, gateway(tmp_path / "home", url) as near:
        statuses = [await near.post(payload("hello")) for _ in range(3)]
        await near.post(payload("again", "m2"))
        await until(lambda: len(far.taken) >= 2)

    assert statuses == [200, 200, 200]
    assert [one["text"] for one in far.taken] == ["You said: hello", "You said: again"]
    assert far.taken[0]["reply_to"] == "m1"
    assert far.taken[0]["idempotency-key"] == far.taken[0]["key"]


@pytest.mark.clients
async def test_only_signed_requests_are_stored_and_malformed_ones_are_dead_letters(tmp_path: Path) -> None:
    far, body = Far(), payload("hello")
    async with serving(far.handle) as url, gateway(tmp_path / "home", url) as near:
        assert await near.post(body, {}) == 401
        assert await near.post(body, signed(body, secret="another secret altogether")) == 401
        assert await near.post(body, signed(body, at=time.time() - 3600)) == 401
        assert await near.post(body, signed(b"another body")) == 401
        long = {webhook.TIMESTAMP: "9" * 5000, webhook.SIGNATURE: "v1=no"}
        assert await near.post(body, long) == 401
        assert await near.post(b"x" * 3_000_000) == 413
        assert await near.post(b"\xff\xfe no json") == 200
        assert await near.post(b'{"chat": 5}') == 200
        assert await near.post(payload("end")) == 200
        await until(lambda: bool(far.taken))

    database = await open_sqlite(tmp_path / "home" / "holdfast.db")
    assert len(await database.read(inbox.list_dead, 10)) == 2
    await database.close()


def platform(url: str, **more: object) -> AbstractAsyncContextManager[Platform]:
    given = {"listen": "127.0.0.1:1", "url": url, "secret": SECRET, **more}
    return webhook.connect(PlatformOptions("w", given), SystemClock())


async def test_the_status_of_the_bridge_determines_the_delivery_result() -> None:
    far = Far()
    far.statuses = [429, 503, 400, 500]
    message = Outgoing(chat="c", text="hello", key="k1")
    async with serving(far.handle) as url, platform(url) as here:
        results = [await here.send(message) for _ in range(5)]
    async with platform(f"http://127.0.0.1:{free_port()}/") as nowhere:
        away = await nowhere.send(message)

    assert [type(result) for result in results] == [RetryLater, RetryLater, Rejected, DeliveryUnknown, Sent]
    assert results[0].after_seconds == 3  # type: ignore[union-attr]
    assert results[4] == Sent("id1")
    assert isinstance(away, RetryLater)


async def test_attachments_arrive_as_urls_or_in_the_message(tmp_path: Path) -> None:
    async def file(request: web.Request) -> web.Response:
        return web.Response(body=b"from afar")

    application = web.Application()
    application.router.add_get("/file", file)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/file"
    files = [{"name": "a", "url": url}, {"name": "b", "data": "aGVsbG8="}]
    async with platform(url, trusted_hosts=["127.0.0.1"]) as here:
        read: Incoming = here.read(payload("see", attachments=files).decode())
        for one in read.attachments:
            await here.fetch(one, tmp_path / one.name, 100)
        with pytest.raises(TooLarge):
            await here.fetch(read.attachments[0], tmp_path / "c", 3)
    await runner.cleanup()

    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"from afar", b"hello"]


@pytest.mark.clients
async def test_the_example_bridge_carries_messages_both_ways_once(tmp_path: Path) -> None:
    said: list[str] = []

    async def platform_takes(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer platform token"
        said.append((await request.json())["message"]["text"]["content"])
        return web.json_response({"code": 0})

    port = free_port()
    async with serving(platform_takes) as url, gateway(tmp_path / "home", f"http://127.0.0.1:{port}/out") as near:
        settings = {
            "listen": f"127.0.0.1:{port}", "secret": SECRET, "holdfast": near.url, "platform": url,
            "platform_token": "platform token", "platform_secret": "theirs", "delivered": str(tmp_path / "delivered.db"),
        }  # fmt: skip
        (tmp_path / "settings.json").write_text(json.dumps(settings))
        bridge = await asyncio.create_subprocess_exec(
            sys.executable, str(ROOT / "examples" / "bridge" / "bridge.py"), str(tmp_path / "settings.json"),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert bridge.stdout is not None
        await bridge.stdout.readline()
        try:
            async with httpx2.AsyncClient() as client:
                for number in (1, 1, 2, 1, 3):
                    assert await call(client, port, number) == 200
                assert await call(client, port, 4, "wrong") == 401
            await until(lambda: len(said) >= 3)
        finally:
            bridge.terminate()
            await bridge.wait()

    assert said == ["You said: message 1", "You said: message 2", "You said: message 3"]


async def call(client: httpx2.AsyncClient, port: int, number: int, secret: str = "theirs") -> int:
    message = {"message_id": f"id{number}", "tag": "text", "text": {"content": f"message {number}"}}
    event = {"employee_code": "e1", "message": message}
    body = json.dumps({"event_type": "message_from_bot_subscriber", "event": event}).encode()
    headers = {"Signature": hashlib.sha256(body + secret.encode()).hexdigest()}
    return (await client.post(f"http://127.0.0.1:{port}/callback", content=body, headers=headers)).status_code


@pytest.mark.clients
async def test_a_file_that_the_model_sends_goes_out_with_the_reply(tmp_path: Path) -> None:
    far, work = Far(), tmp_path / "work"
    work.mkdir()
    (work / "plan.txt").write_text("a plan")
    words = 'Please.\nuse tool send_file {"path": "plan.txt"}\nuse tool send_file {"path": "none.txt"}'
    async with (
        serving(far.handle) as url,
        gateway(tmp_path / "home", url, "scripted:tools", f'workdir = "{work}"\n') as opened,
    ):
        await opened.post(payload(words))
        await until(lambda: len(far.taken) >= 2)

    assert [one.get("file") for one in far.taken] == [None, {"name": "plan.txt", "data": "YSBwbGFu"}]


@pytest.mark.clients
async def test_an_endless_attachment_is_aborted(tmp_path: Path) -> None:
    sent, gone, limit = [0], asyncio.Event(), 300_000

    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            while sent[0] < 4 * 1024**3:
                await answer.write(b"x" * 65536)
                sent[0] += 65536
        finally:
            gone.set()
        return answer

    async with serving(endless) as url, platform(url, trusted_hosts=["127.0.0.1"]) as here:
        with pytest.raises(TooLarge):
            await here.fetch(Attachment(ref=url, name="huge"), tmp_path / "kept", limit)
        await asyncio.wait_for(gone.wait(), 20)

    assert (tmp_path / "kept").stat().st_size <= limit
    assert sent[0] < 2**30


def test_a_timestamp_of_any_length_causes_no_error() -> None:
    body, secret = b"{}", SECRET.encode()
    for timestamp in ("9" * 5000, "1" * 21, "", "-1", "1e3", "\u0663", "0" * 4301):
        headers = {webhook.TIMESTAMP: timestamp, webhook.SIGNATURE: webhook.sign(secret, timestamp, body)}
        assert not webhook.is_signed(secret, headers, body, 1_800_000_000.0)
        assert not webhook.is_signed(secret, {**headers, webhook.SIGNATURE: "v1=no"}, body, 1_800_000_000.0)


async def test_an_attachment_on_a_private_address_is_not_fetched_unless_its_host_is_trusted(tmp_path: Path) -> None:
    asked: list[str] = []

    async def secret(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(body=b"secret")

    async with serving(secret) as url, platform(url) as here:
        with pytest.raises(Invalid):
            await here.fetch(Attachment(ref=url, name="x"), tmp_path / "x", 100)

    assert asked == []


@pytest.mark.clients
async def test_a_message_with_an_attachment_that_cannot_be_read_is_answered_and_says_so(tmp_path: Path) -> None:
    far = Far()
    files = [{"name": "bad.png", "data": "%%%"}, {"name": "good.txt", "data": "aGVsbG8="}]
    async with serving(far.handle) as url, gateway(tmp_path / "home", url) as near:
        await near.post(payload("look at this", attachments=files))
        await until(lambda: len(far.taken) >= 2)

    database = await open_sqlite(tmp_path / "home" / "holdfast.db")
    assert await database.read(inbox.list_dead, 10) == []
    await database.close()
    told, reply = (one["text"] for one in far.taken)
    assert told == "! The attachment bad.png could not be read: its content is not valid base64."
    assert "look at this" in reply
    assert "bad.png was not saved: its content is not valid base64" in reply
    assert "good.txt" in reply
