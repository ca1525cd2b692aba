"""URLs from outside lead to no private address: not directly, not by a redirect, not by a changing DNS response."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from holdfast.model.errors import Invalid, Unavailable
from holdfast.safe_fetch import SafeFetcher, TooLarge, is_public

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PRIVATE = [
    "127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
    "224.0.0.1", "240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "::1", "::", "fe80::1", "fe80::1%eth0",
    "fc00::1", "fd12:3456::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "192.0.0.8", "192.88.99.1", "fec0::1", "3fff::1", "5f00::1",
    "100::1", "100:0:0:1::1", "::127.0.0.1", "2001::7f00:1", "2002:7f00:1::", "2002:a00:1::", "2001:db8::1", "no address", "",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "203.0.114.7", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


class Server:
    """A server on loopback that counts requests."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []
        self.port = 0
        self.answer: Handler = self._content

    async def _content(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"content")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.path_qs, request.headers["Host"], request.headers.get("Authorization", "")))
        return await self.answer(request)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server, application = Server(), web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()


class Names:
    """A name server in memory; each name has its answers, one after another."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        known = self.answers[host.replace(".", "_")]
        return known.pop(0) if len(known) > 1 else known[0]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_recognised(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_recognised(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "127.1"]
)
async def test_a_service_on_loopback_sees_no_request(tmp_path: Path, host: str) -> None:
    async with serving() as server:
        with pytest.raises((Invalid, Unavailable)):
            await SafeFetcher().save(f"http://{host}:{server.port}/secret", tmp_path / "kept", 100)

        assert server.seen == []
    assert not (tmp_path / "kept").exists()


async def test_a_trusted_host_is_fetched_by_name_and_port(tmp_path: Path) -> None:
    async with serving() as server:
        url = f"http://localhost:{server.port}/a?b=c"
        await SafeFetcher([f"LOCALHOST:{server.port}"]).save(url, tmp_path / "a", 100)
        await SafeFetcher(["localhost"]).save(url, tmp_path / "b", 100)
        with pytest.raises(Invalid, match="trusted_hosts"):
            await SafeFetcher(["localhost:1"]).save(url, tmp_path / "c", 100)

        assert server.seen == [("/a?b=c", f"localhost:{server.port}", "")] * 2
    assert (tmp_path / "a").read_bytes() == b"content"


async def test_a_redirect_to_a_private_address_is_not_followed(tmp_path: Path) -> None:
    async with serving() as outside, serving() as inside:

        async def away(request: web.Request) -> web.StreamResponse:
            return web.Response(status=302, headers={"Location": f"http://127.0.0.1:{inside.port}/secret"})

        outside.answer = away
        names = Names(far_example=[["127.0.0.1"]], **{"127_0_0_1": [["127.0.0.1"]]})
        fetcher = SafeFetcher(["far.example"], names.resolve)
        with pytest.raises(Invalid):
            await fetcher.save(f"http://far.example:{outside.port}/", tmp_path / "kept", 100)

        assert len(outside.seen) == 1
        assert inside.seen == []


async def test_a_name_is_resolved_once_and_the_connection_goes_to_that_address(tmp_path: Path) -> None:
    async with serving() as server:
        names = Names(far_example=[["127.0.0.1"], ["192.0.2.1"]])
        await SafeFetcher(["far.example"], names.resolve).save(f"http://far.example:{server.port}/", tmp_path / "a", 9)
        rebinding = Names(evil_example=[["1.1.1.1", "127.0.0.1"]])
        with pytest.raises(Invalid):
            await SafeFetcher((), rebinding.resolve).save(f"http://evil.example:{server.port}/", tmp_path / "b", 9)

        assert names.asked == ["far.example"]
        assert [host for _, host, _ in server.seen] == [f"far.example:{server.port}"]


async def test_a_host_name_with_letters_beyond_ascii_is_asked_for_as_dns_writes_it(tmp_path: Path) -> None:
    async with serving() as server:

        async def redirect(request: web.Request) -> web.StreamResponse:
            if request.path == "/":
                return web.Response(status=302, headers={"Location": f"http://bücher.example:{server.port}/ä"})
            return web.Response(body=b"content")

        server.answer = redirect
        names = Names(**{"xn--mnchen-3ya_example": [["127.0.0.1"]], "xn--bcher-kva_example": [["127.0.0.1"]]})
        fetcher = SafeFetcher(["xn--mnchen-3ya.example", "xn--bcher-kva.example"], names.resolve)
        found = await fetcher.load(f"http://MÜNCHEN.example:{server.port}/", 100)

        assert found.body == b"content"
        assert [host for _, host, _ in server.seen] == [
            f"xn--mnchen-3ya.example:{server.port}",
            f"xn--bcher-kva.example:{server.port}",
        ]


async def test_our_headers_are_not_sent_to_another_host(tmp_path: Path) -> None:
    async with serving() as first, serving() as second:

        async def away(request: web.Request) -> web.StreamResponse:
            return web.Response(status=307, headers={"Location": f"http://other.example:{second.port}/x"})

        first.answer = away
        names = Names(far_example=[["127.0.0.1"]], other_example=[["127.0.0.1"]])
        fetcher = SafeFetcher(["far.example", "other.example"], names.resolve)
        url = f"http://far.example:{first.port}/"
        await fetcher.save(url, tmp_path / "kept", 100, {"Authorization": "Bearer ours"})

        assert first.seen[0][2] == "Bearer ours"
        assert second.seen[0][2] == ""


async def test_endless_redirects_oversized_and_slow_downloads_are_aborted(tmp_path: Path) -> None:
    async with serving() as server:
        url = f"http://localhost:{server.port}/"

        async def around(request: web.Request) -> web.StreamResponse:
            return web.Response(status=302, headers={"Location": url})

        async def never(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse()
            await answer.prepare(request)
            await request.content.read()
            while True:
                await answer.write(b"")
                await asyncio.sleep(0.01)

        with pytest.raises(TooLarge):
            await SafeFetcher(["localhost"]).save(url, tmp_path / "kept", 3)
        server.answer = around
        with pytest.raises(Unavailable, match="redirected"):
            await SafeFetcher(["localhost"]).save(url, tmp_path / "kept", 100)
        server.answer = never
        with pytest.raises(Unavailable, match="not complete"):
            await SafeFetcher(["localhost"], total_seconds=0.3).save(url, tmp_path / "kept", 100)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://1.1.1.1/",
        "http://",
        "http://u:p@1.1.1.1/",
        "http://[",
        "",
        "http://☃.xn--☃/",
        f"http://{'ä' * 64}.example/",
    ],
)
async def test_an_invalid_url_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(Invalid):
        await SafeFetcher().save(url, tmp_path / "kept", 100)
