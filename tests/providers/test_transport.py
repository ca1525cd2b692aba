"""What arrives over the network, bad input included: the reply, or an error that names the problem and no key."""

import asyncio
import base64
import gzip
import json
import socket
import ssl
import struct
import zlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast.model.errors import AuthFailed, BadReply, ProviderFailed, RateLimited, Refused, Unreachable
from holdfast.model.message import Text
from holdfast.model.provider import ModelReply
from holdfast.providers.anthropic.provider import AnthropicProvider
from holdfast.providers.openai.provider import OpenAiProvider
from holdfast.providers.timeouts import RequestTimeouts
from tests.providers.messages import asking, user
from tests.providers.raw_server import Answer, RawServer, chunked, raw_server, respond

KEY = "sk-very-secret-key-0123456789"
SOON = RequestTimeouts(connect_seconds=5.0, first_seconds=0.6, idle_seconds=0.4)
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with raw_server() as running:
        yield running


def event(document: object, end: str = "\n\n") -> bytes:
    return f"data: {json.dumps(document)}{end}".encode()


def piece(content: str | None = None, finish: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]}


HELLO = event(piece("Hel")) + event(piece("lo."))
STOP = event(piece(finish="stop"))
DONE = b"data: [DONE]\n\n"
WHOLE = HELLO + STOP + DONE


async def ask(url: str, *, limits: RequestTimeouts = SOON, key: str = KEY) -> str:
    """The text of the reply. An error must not contain the key, nor must its cause."""
    provider = OpenAiProvider(key, url, limits=limits)
    try:
        *_, reply = [item async for item in provider.ask(asking(user("hi")))]
    except ProviderFailed as e:
        assert KEY not in f"{e} {e!r} {e.__cause__} {e.__cause__!r}"
        assert "hunter2" not in f"{e} {e!r} {e.__cause__} {e.__cause__!r}"
        raise
    finally:
        await provider.close()
    assert isinstance(reply, ModelReply)
    return "".join(part.text for part in reply.parts if isinstance(part, Text))


def deflated(body: bytes) -> bytes:
    return zlib.compress(body)


GOOD: dict[str, Answer] = {
    "at once": respond(WHOLE),
    "byte by byte": chunked(*(WHOLE[n : n + 1] for n in range(len(WHOLE)))),
    "with CRLF": respond(WHOLE.replace(b"\n", b"\r\n")),
    "with CR": respond(WHOLE.replace(b"\n", b"\r")),
    "with a byte order mark": respond(b"\xef\xbb\xbf" + WHOLE),
    "with comments": respond(b": hello\n\n" + HELLO + b":\n\n: still here\n\n" + STOP + DONE),
    "with other fields": respond(b"id: 1\nretry: 5\nevent: chunk\n" + WHOLE),
    "without the last line break": respond((HELLO + STOP).rstrip()),
    "without [DONE]": respond(HELLO + STOP),
    "with gzip": respond(gzip.compress(WHOLE), "content-encoding: gzip"),
    "with deflate": respond(deflated(WHOLE), "content-encoding: deflate"),
    "with a trailer": chunked(HELLO, STOP + DONE, trailer="x-checksum: 1\r\n"),
    "as plain text": respond(WHOLE, type="text/plain"),
    "with events without data": respond(b"data\n\ndata: \n\n" + WHOLE),
    "over two lines": respond(
        b'data: {"choices": [\ndata: '
        + json.dumps(piece("Hello.")["choices"]).encode()[1:-1]
        + b"\ndata: ]}\n\n"
        + STOP
    ),
}


@pytest.mark.parametrize("answer", GOOD.values(), ids=GOOD)
async def test_a_stream_is_read_in_any_form(server: RawServer, answer: Answer) -> None:
    server.answers.append(answer)

    assert await ask(f"http://{server.host}/v1") == "Hello."


async def test_a_delta_of_ten_megabytes_arrives_whole(server: RawServer) -> None:
    text = "0123456789" * 1_000_000
    server.answers.append(respond(event(piece(text)) + STOP + DONE))

    assert await ask(f"http://{server.host}/v1", limits=RequestTimeouts()) == text


async def test_a_body_of_many_chunks_is_sent_whole_and_again_after_a_redirect(server: RawServer) -> None:
    said = [user("0123456789" * 10_000) for _ in range(20)]
    server.answers += [respond(b"", "location: /v1/there", status=307), respond(WHOLE)]
    provider = OpenAiProvider(KEY, f"http://{server.host}/v1", limits=RequestTimeouts())

    *_, reply = [item async for item in provider.ask(asking(*said))]
    await provider.close()

    assert isinstance(reply, ModelReply)
    assert [len(body) > 2_000_000 for body in server.bodies] == [True, True]
    assert server.bodies[0] == server.bodies[1]
    assert json.loads(server.bodies[0])["messages"][-1]["content"].count("0123456789" * 10_000) == 20
    assert not [head for head in server.heads if "transfer-encoding" in head.lower()]


async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def stall_after_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    await reader.read()


async def stall_between_events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + HELLO)
    await reader.read()


async def send_only_comments(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + HELLO)
    while not reader.at_eof():
        writer.write(b": still here\n\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(chunked(HELLO).removesuffix(b"0\r\n\r\n"))
    await writer.drain()
    taken = writer.get_extra_info("socket")
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def refuse_and_leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(respond(b"{" * 99, status=401)[:-50])
    await writer.drain()
    writer.close()


ERROR = {"error": {"message": f"no such key: {KEY}", "type": "server_error"}}
LATE = "retry-after: Tue, 17 Nov 2026 10:00:30 GMT", "date: Tue, 17 Nov 2026 10:00:00 GMT"
BAD: dict[str, tuple[Answer, type[ProviderFailed], str]] = {
    "a page": (respond(b"<html><body>Welcome!</body></html>", type="text/html"), BadReply, "check the URL"),
    "nothing": (respond(b""), BadReply, "before the reply was complete"),
    "half a stream": (respond(HELLO), BadReply, "before the reply was complete"),
    "half an event": (respond(HELLO + b'data: {"choi'), BadReply, "not JSON"),
    "no JSON": (respond(b"data: hello\n\n"), BadReply, "not JSON"),
    "bytes that are no UTF-8": (respond(b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n'), BadReply, "not JSON"),
    "an error as JSON": (respond(json.dumps(ERROR).encode(), type="application/json"), Unreachable, "no such key"),
    "an error in the stream": (respond(HELLO + event(ERROR)), Unreachable, "no such key"),
    "an error as a string": (respond(HELLO + event({"error": "overloaded"})), Unreachable, "overloaded"),
    "a broken gzip": (respond(b"never" * 9, "content-encoding: gzip"), Unreachable, "connection"),
    "a broken chunk": (chunked(HELLO).replace(b"0\r\n\r\n", b"zz\r\n"), Unreachable, "connection"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9\r\n\r\n", Unreachable, "connection"),
    "a stall before the response": (stall, Unreachable, "sent nothing for 0.6 s"),
    "a stall before the events": (stall_after_headers, Unreachable, "sent nothing for 0.6 s"),
    "a stall between events": (stall_between_events, Unreachable, "sent nothing for 0.4 s"),
    "comments for ever": (send_only_comments, Unreachable, "sent nothing for 0.6 s"),
    "a reset": (reset, Unreachable, "connection"),
    "a closed connection": (leave, Unreachable, "connection"),
    "a redirect elsewhere": (respond(b"", "location: http://localhost:1/v1", status=308), Refused, "base_url"),
    "a redirect that drops the body": (respond(b"", "location: /v2", status=302), Refused, "base_url"),
    "a redirect to nowhere": (respond(b"", status=307), Refused, "base_url"),
    "a redirect to a broken address": (respond(b"", "location: http://[::1", status=307), Refused, "base_url"),
    "an overload in seconds": (respond(b"{}", "retry-after: 7", status=503), Unreachable, "in 7 s"),
    "a rate limit in seconds": (respond(b"{}", "retry-after: 7", status=429), RateLimited, "in 7 s"),
    "a rate limit as a date": (respond(b"{}", *LATE, status=429), RateLimited, "in 30 s"),
    "an error whose body breaks off": (refuse_and_leave, AuthFailed, "rejected the API key"),
    "an error that is no JSON": (respond(b"<h1>Bad gateway</h1>", status=502), Unreachable, "502"),
}  # fmt: skip


@pytest.mark.parametrize(("answer", "kind", "words"), BAD.values(), ids=BAD)
async def test_a_bad_response_is_a_named_error(
    server: RawServer, answer: Answer, kind: type[ProviderFailed], words: str
) -> None:
    server.answers.extend([answer] * 5)

    with pytest.raises(kind, match=words):
        await ask(f"http://{server.host}/v1")


async def test_a_redirect_on_the_same_host_is_followed_with_the_body(server: RawServer) -> None:
    server.answers += [respond(b"", "location: /v2/chat", status=308), respond(WHOLE)]

    assert await ask(f"http://{server.host}/v1") == "Hello."

    assert server.heads[1].startswith("POST /v2/chat ")
    assert server.bodies[0] == server.bodies[1]


async def test_the_connection_is_used_again(server: RawServer) -> None:
    server.answers += [chunked(WHOLE), respond(WHOLE), respond(b"{}", status=500), respond(WHOLE)]
    provider = OpenAiProvider(KEY, f"http://{server.host}/v1")

    for _ in range(2):
        assert [item async for item in provider.ask(asking(user("hi")))]
    with pytest.raises(Unreachable):
        [item async for item in provider.ask(asking(user("hi")))]
    assert [item async for item in provider.ask(asking(user("hi")))]
    await provider.close()

    assert server.connections == 1


async def test_the_connection_is_used_again_if_the_end_follows_the_last_event(server: RawServer) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = b"0\r\n\r\n"
        writer.write(chunked(WHOLE).removesuffix(end))
        for _ in range(10):  # the client reads the last event meanwhile
            await asyncio.sleep(0)
        writer.write(end)

    server.answers += [answer, answer]
    provider = OpenAiProvider(KEY, f"http://{server.host}/v1")
    for _ in range(2):
        assert [item async for item in provider.ask(asking(user("hi")))]
    await provider.close()

    assert server.connections == 1


async def test_a_reply_is_complete_although_the_server_never_ends_the_response(server: RawServer) -> None:
    async def linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + WHOLE)
        await reader.read()

    server.answers.append(linger)

    assert await ask(f"http://{server.host}/v1", limits=RequestTimeouts()) == "Hello."


async def test_a_url_may_contain_a_user_a_query_and_a_path(server: RawServer) -> None:
    server.answers.append(respond(WHOLE))

    assert await ask(f"http://me:hunter2@{server.host}/a/v1/?version=3") == "Hello."

    assert server.heads[0].startswith("POST /a/v1/chat/completions?version=3 ")
    assert f"authorization: basic {base64.b64encode(b'me:hunter2').decode()}".lower() in server.heads[0].lower()
    assert KEY not in server.heads[0]


async def test_a_proxy_is_used_unless_the_host_is_excluded(server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://me:hunter2@{server.host}")
    server.answers += [respond(WHOLE), respond(WHOLE)]

    assert await ask("http://model.example/v1") == "Hello."
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert await ask(f"http://{server.host}/v1") == "Hello."

    assert server.heads[0].startswith("POST http://model.example/v1/chat/completions ")
    assert f"proxy-authorization: basic {base64.b64encode(b'me:hunter2').decode()}".lower() in server.heads[0].lower()
    assert server.heads[1].startswith("POST /v1/chat/completions ")


@pytest.mark.parametrize(("scheme", "sent"), [("https", "CONNECT model.example:443 "), ("http", "POST http://model.")])
async def test_a_proxy_that_refuses_the_credentials_is_named(
    server: RawServer, monkeypatch: pytest.MonkeyPatch, scheme: str, sent: str
) -> None:
    monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://me:hunter2@{server.host}")
    server.answers.append(respond(b"not hunter2", "proxy-authenticate: Basic", status=407))

    with pytest.raises(Unreachable, match=r"proxy refused .* \(407\)"):
        await ask(f"{scheme}://model.example/v1")

    assert server.heads[0].startswith(sent)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_does_not_answer_is_named(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://me:hunter2@127.0.0.1:1")

    with pytest.raises(Unreachable, match=r"proxy for openai at model\.example"):
        await ask(f"{scheme}://model.example/v1")


@pytest.mark.parametrize(
    "proxy", ["socks5://me:hunter2@127.0.0.1:1", "http://me:hunter2@[::1", "http://me:hunter2@", "http://hunter2:abc"]
)
async def test_a_proxy_that_is_not_a_web_address_is_refused(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)

    with pytest.raises(Unreachable, match="not an http or https proxy"):
        await ask("https://model.example/v1")


@pytest.mark.parametrize("host", ["api..example", "a" * 64 + ".example"])
async def test_a_host_that_cannot_have_an_address_is_a_named_error(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreachable, match="connection to openai at"):
        await ask(f"https://{host}/v1")

    monkeypatch.setenv("ALL_PROXY", f"http://me:hunter2@{host}")
    with pytest.raises(Unreachable, match="connection to openai at"):
        await ask("https://model.example/v1")


async def test_an_address_of_ipv6_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "::1")
    async with raw_server(address="::1") as server:
        server.answers.append(respond(WHOLE))

        assert await ask(f"http://{server.host}/v1") == "Hello."

    assert server.host.startswith("[::1]:")


def certificate(folder: Path, *, days: int) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that is its own authority, valid for so many days; and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "certificate.pem", folder / "key.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return public, private


@pytest.mark.parametrize(
    ("days", "trusted", "problem"),
    [(30, True, ""), (30, False, "self-signed certificate"), (-1, True, "certificate has expired")],
    ids=["of our own authority", "of an unknown authority", "expired"],
)
async def test_a_certificate_is_checked_against_configured_authorities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, trusted: bool, problem: str
) -> None:
    public, private = certificate(tmp_path, days=days)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(public, private)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(public))

    async with raw_server(context) as server:
        server.answers.append(respond(WHOLE))
        if problem:
            with pytest.raises(Unreachable, match=problem):
                await ask(f"https://{server.host}/v1")
        else:
            assert await ask(f"https://{server.host}/v1") == "Hello."


async def test_a_redirect_to_an_unencrypted_address_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public, private = certificate(tmp_path, days=30)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(public, private)
    monkeypatch.setenv("SSL_CERT_FILE", str(public))

    async with raw_server() as plain, raw_server(context) as server:
        server.answers.append(respond(b"", f"location: http://{plain.host}/v1", status=308))
        with pytest.raises(Refused, match="base_url"):
            await ask(f"https://{server.host}/v1")

        assert plain.heads == []


async def test_pings_and_events_without_names_are_read(server: RawServer) -> None:
    events = [
        {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo."}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    ]
    stream = b"event: ping\ndata: {}\n\n".join(event(one) for one in events)
    server.answers.append(respond(stream))
    provider = AnthropicProvider(KEY, f"http://{server.host}")

    *_, reply = [item async for item in provider.ask(asking(user("hi")))]
    await provider.close()

    assert isinstance(reply, ModelReply)
    assert reply.parts == (Text("Hello."),)
    assert f"x-api-key: {KEY}" in server.heads[0]
