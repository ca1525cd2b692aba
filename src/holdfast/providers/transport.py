"""Posts a request to a provider and streams the events of the response, or reads the whole response.

One connection pool per provider. Proxies come from `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, further
certificate authorities from `SSL_CERT_FILE` and `SSL_CERT_DIR`. Nothing is retried here.
"""

import asyncio
import base64
import ssl
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from holdfast import __version__
from holdfast.model.errors import BadReply, Refused, Unreachable
from holdfast.providers.body_chunks import CHUNK_BYTES, merge_small
from holdfast.providers.endpoint import ProviderEndpoint
from holdfast.providers.error_mapping import ProviderErrorResponse
from holdfast.providers.sse_parser import EventTooLarge, ServerEvent, SseParser
from holdfast.providers.timed_reader import ReadPace, TimedReader
from holdfast.providers.timeouts import RequestTimeouts, connection_error, proxy_failure, proxy_refusal, timeout_error

if TYPE_CHECKING:
    import aiohttp

MAX_ERROR_BYTES = 64 * 1024
MAX_REDIRECTS = 3
REPEATING_REDIRECTS = {307, 308}
"""Those that keep the method and the body."""
REDIRECTS = REPEATING_REDIRECTS | {301, 302, 303}
DRAIN_SECONDS = 0.05
"""How long to wait for the end of a response whose last event has come, so that its connection can be used again."""
PROXY_REFUSES = 407
PING = b"ping"
JSON = "application/json"


class ProviderTransport:
    """Posts to one URL. The HTTP library is imported at the first request."""

    def __init__(
        self,
        server: ProviderEndpoint,
        path: str,
        headers: Mapping[str, str],
        *,
        limits: RequestTimeouts,
        is_last: Callable[[ServerEvent], bool] = lambda _: False,
    ) -> None:
        """`path` is added to the base URL; `headers` have lower-case names; `is_last` finds the end of a reply."""
        parts = urlsplit(server.base_url)
        self._who = server.who
        self._url = urlunsplit((parts.scheme, server.host, parts.path.rstrip("/") + path, parts.query, ""))
        self._headers = {**headers, **_basic_auth(parts.username, parts.password)}
        self._proxy = _proxy_for(parts.scheme, server.host)
        self._limits = limits
        self._is_last = is_last
        self._session: aiohttp.ClientSession | None = None
        self._opening = asyncio.Lock()
        self._pace = ReadPace()

    async def post(self, body: Sequence[bytes]) -> AsyncGenerator[list[ServerEvent], None]:
        """The events before the last one, as many at a time as have arrived. Closing the generator closes the connection.

        The body is the chunks one after another. They are not joined, because together they can be many megabytes.
        Raises ProviderErrorResponse for an error status and for a response that is no event stream, Refused for a redirect,
        Unreachable for a broken or silent connection, and BadReply for an event that is too large.
        """
        session = self._session or await self._open()
        with self._translated_errors():
            response = await self._send(session, body)
            try:
                if response.status >= 400:
                    raise ProviderErrorResponse(response.status, response.headers, await self._read_error(response))
                reader = TimedReader(response.content, self._pace)
                try:
                    async for events in self._events(response, reader):
                        yield events
                finally:
                    reader.close()
            finally:
                response.close()  # a connection whose response has been read to its end is kept

    async def fetch(self, body: Sequence[bytes], *, max_bytes: int, content_type: str = JSON) -> bytes:
        """The whole body of a response that is no event stream.

        Raises as `post` does. The limit `first_seconds` is also that for the body.
        """
        session = self._session or await self._open()
        with self._translated_errors():
            response = await self._send(session, body, content_type)
            try:
                if response.status >= 400:
                    raise ProviderErrorResponse(response.status, response.headers, await self._read_error(response))
                return await self._read_all(response, max_bytes)
            finally:
                response.close()

    async def _read_all(self, response: "aiohttp.ClientResponse", max_bytes: int) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.first_seconds):
                while chunk := await response.content.readany():
                    body += chunk
                    if len(body) > max_bytes:
                        raise BadReply(f"{self._who} sent a response of more than {max_bytes:,} bytes")
        except TimeoutError as e:
            raise timeout_error(self._who, self._limits.first_seconds) from e
        return bytes(body)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translate the errors of the HTTP library."""
        import aiohttp

        try:
            yield
        except aiohttp.ClientConnectorCertificateError as e:
            raise Unreachable(f"the certificate of {self._who} is invalid ({e.certificate_error})") from e
        except aiohttp.ClientHttpProxyError as e:
            raise proxy_refusal(self._who, e.status) from None
        except aiohttp.ClientProxyConnectionError as e:
            raise proxy_failure(self._who) from e
        except (aiohttp.ClientResponseError, aiohttp.InvalidURL, UnicodeError) as e:  # these show headers and URLs
            raise connection_error(self._who) from OSError(type(e).__name__)
        except (aiohttp.ClientError, OSError) as e:
            raise connection_error(self._who) from e

    async def close(self) -> None:
        """Close the connections. The next request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _open(self) -> "aiohttp.ClientSession":
        async with self._opening:
            if self._session is None:
                # In a thread: the import and the certificates take a fifth of a second.
                context = await asyncio.to_thread(_ssl_context)
                self._session = _session(context, self._limits)
            return self._session

    async def _send(
        self, session: "aiohttp.ClientSession", body: Sequence[bytes], content_type: str = JSON
    ) -> "aiohttp.ClientResponse":
        """The response, after redirects to the same host that repeat the request."""
        import aiohttp

        url, size = self._url, sum(map(len, body))
        headers = {**self._headers, "content-type": content_type, "content-length": str(size)}
        for _ in range(MAX_REDIRECTS + 1):
            data = b"".join(body) if size <= CHUNK_BYTES else _iterate(body)
            try:
                async with asyncio.timeout(self._limits.first_seconds):
                    response = await session.post(
                        url, data=data, headers=headers, proxy=self._proxy, allow_redirects=False
                    )
            except aiohttp.ServerTimeoutError:
                raise
            except TimeoutError as e:
                raise timeout_error(self._who, self._limits.first_seconds) from e
            if response.status == PROXY_REFUSES:
                response.close()
                raise proxy_refusal(self._who, response.status)
            if response.status not in REDIRECTS:
                return response
            response.close()
            target = _redirect_target(url, response.headers.get("location", ""))
            if target is None or response.status not in REPEATING_REDIRECTS:
                break
            url = target
        raise Refused(f"{self._who} redirects the request ({response.status}): set base_url to the final address")

    async def _read_error(self, response: "aiohttp.ClientResponse") -> bytes:
        """As much of the body as arrives: the status alone says what to do."""
        import aiohttp

        body = b""
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                while len(body) < MAX_ERROR_BYTES and (chunk := await response.content.readany()):
                    body += chunk
        except (aiohttp.ClientError, OSError):  # a timeout is an OSError
            return body
        return body[:MAX_ERROR_BYTES]

    async def _events(
        self, response: "aiohttp.ClientResponse", reader: TimedReader
    ) -> AsyncGenerator[list[ServerEvent], None]:
        """Enforces two limits: the longer one between events, the shorter one between bytes of a reply that has begun.

        Servers send comments and pings while the model reasons. They count as bytes, not as events.
        """
        loop, limits = asyncio.get_running_loop(), self._limits
        parser = SseParser()
        received = bytearray()
        has_begun = False
        deadline = loop.time() + limits.first_seconds
        while True:
            idle = loop.time() + limits.idle_seconds if has_begun else deadline
            try:
                chunk = await reader.read(min(deadline, idle))
            except TimeoutError as e:
                raise timeout_error(self._who, limits.first_seconds if deadline <= idle else limits.idle_seconds) from e
            try:
                found = parser.feed(chunk) if chunk else parser.finish()
            except EventTooLarge as e:
                raise BadReply(f"{self._who} sent an event that is too large: try again") from e
            events = [event for event in found if event.name != PING]
            last = next((place for place, event in enumerate(events) if self._is_last(event)), None)
            if last is not None:
                yield events[:last]
                await _drain(response.content)
                return
            if events:
                has_begun = True
                received.clear()
                deadline = loop.time() + limits.first_seconds
                yield events
            elif not has_begun and len(received) < MAX_ERROR_BYTES:
                received += chunk
            if not chunk:
                break
        if not has_begun and received.strip():
            raise ProviderErrorResponse(response.status, response.headers, bytes(received))


async def _iterate(chunks: Sequence[bytes]) -> AsyncIterator[bytes]:
    for chunk in merge_small(chunks):
        yield chunk


async def _drain(content: "aiohttp.StreamReader") -> None:
    """Read to the end of the response, so that its connection can be used again."""
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while await content.readany():
                pass
    except TimeoutError:
        return


def _ssl_context() -> ssl.SSLContext:
    import aiohttp  # noqa: F401 - imported here, in a thread

    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None and paths.capath is None:
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def _session(context: ssl.SSLContext, limits: RequestTimeouts) -> "aiohttp.ClientSession":
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context, limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"user-agent": f"holdfast/{__version__}"},
    )


def _redirect_target(url: str, location: str) -> str | None:
    """The address that a redirect names, if it is on the same host and no less secure."""
    try:
        before, target = urlsplit(url), urlsplit(urljoin(url, location))
    except ValueError:
        return None
    if target.hostname != before.hostname or target.scheme not in {before.scheme, "https"}:
        return None
    return urlunsplit((target.scheme, target.netloc.rpartition("@")[2], target.path, target.query, ""))


def _proxy_for(scheme: str, host: str) -> str | None:
    """Raises Unreachable for a proxy of another kind."""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(host.replace("[", "").replace("]", ""), proxies):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not _is_web_address(proxy):
        raise Unreachable(f"the proxy for {host} is not an http or https proxy: change {scheme.upper()}_PROXY")
    return proxy


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _basic_auth(user: str | None, password: str | None) -> dict[str, str]:
    """The header for a URL that contains a user; it replaces the key."""
    if not user and not password:
        return {}
    pair = f"{unquote(user or '')}:{unquote(password or '')}".encode()
    return {"authorization": f"Basic {base64.b64encode(pair).decode()}"}
