"""Fetches untrusted URLs without access to this machine or its network.

A URL in a message may point to a service that only this machine can reach. So for each request, including redirects,
the host name is resolved once, all its addresses must be public, and the connection uses one of these addresses, so that a
second DNS response changes nothing. Hosts in `trusted_hosts` may have any address. Proxies from the environment are
not used, because they would resolve the name themselves.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from holdfast.model.errors import Invalid, Unavailable

if TYPE_CHECKING:
    import httpx2

CHUNK = 64 * 1024
MAX_REDIRECTS = 5
CONNECT_SECONDS = 10.0
TOTAL_SECONDS = 60.0
"""How long a whole download may take, redirects included."""
PORTS = {"http": 80, "https": 443}
REDIRECTS = (301, 302, 303, 307, 308)
NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "fec0::/10", "3fff::/20", "5f00::/16", "100:0:0:1::/64"),
    )
)
"""Ranges for special use that releases of Python count as public: https://www.iana.org/assignments/iana-ipv6-special-registry"""
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host name."""
BeginContent = Callable[[], Callable[[bytes], object]]
"""Called when the content begins; returns the function that writes it."""


class TooLarge(Exception):
    """The content exceeds the limit; the caller handles this."""


async def resolve_host(host: str, port: int) -> list[str]:
    """Resolve a host once. Raises Unavailable."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as e:
        raise Unavailable(f"cannot resolve host {host}: {e}") from e
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def is_public(address: str) -> bool:
    """Whether an IP address is public, including an IPv4 address embedded in it."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        embedded = [found.ipv4_mapped, found.sixtofour, *(found.teredo or ())]
        embedded += [ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)] if found in NAT64 else []
        if found.ipv4_mapped is None and not _is_routable(found) and found not in NAT64:
            return False
        return all(_is_routable(one) for one in embedded if one is not None)
    return _is_routable(found)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _is_routable(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    closed = address.is_multicast or address.is_reserved or address.is_unspecified or address.is_link_local
    return address.is_global and not closed and not any(address in network for network in NOT_PUBLIC)


class FetchedContent(msgspec.Struct, frozen=True):
    """The content of a URL, after redirects."""

    url: str
    """Where it was found."""
    content_type: str
    """The header, unchanged; empty if there was none."""
    body: bytes


class SafeFetcher:
    """`trusted` names hosts, as `host` or `host:port`, whose addresses are not checked."""

    def __init__(
        self,
        trusted: Iterable[str] = (),
        resolve: Resolve = resolve_host,
        total_seconds: float = TOTAL_SECONDS,
        user_agent: str = "",
    ) -> None:
        self._trusted = frozenset(one.strip().lower() for one in trusted)
        self._resolve = resolve
        self._total_seconds = total_seconds
        self._user_agent = user_agent

    async def save(self, url: str, target: Path, max_bytes: int, headers: Mapping[str, str] | None = None) -> None:
        """Save the content of a URL; stops as soon as it exceeds the limit. A file that is not complete stays.

        `headers` are sent to the first host only. Raises TooLarge, Invalid for an address that must not be reached, or Unavailable.
        """
        with ExitStack() as stack:
            await self._get(url, max_bytes, dict(headers or {}), lambda: stack.enter_context(target.open("wb")).write)

    async def load(self, url: str, max_bytes: int) -> FetchedContent:
        """Return the content of a URL. Raises as `save` does."""
        body = bytearray()
        answer, found_at = await self._get(url, max_bytes, {}, lambda: body.extend)
        return FetchedContent(found_at, answer.headers.get("content-type", ""), bytes(body))

    async def _get(
        self, url: str, max_bytes: int, headers: dict[str, str], begin: BeginContent
    ) -> "tuple[httpx2.Response, str]":
        """Follow redirects and write the content. Returns the last response and its URL."""
        import httpx2

        timeout = httpx2.Timeout(CONNECT_SECONDS, read=self._total_seconds)
        try:
            async with (
                asyncio.timeout(self._total_seconds),
                httpx2.AsyncClient(timeout=timeout, trust_env=False, follow_redirects=False) as client,
            ):
                return await self._follow(client, url, max_bytes, headers, begin)
        except TimeoutError as e:
            raise Unavailable(f"the download was not complete after {self._total_seconds:g} s") from e
        except (httpx2.HTTPError, httpx2.InvalidURL) as e:
            raise Unavailable(f"the download failed: {type(e).__name__}: {e}") from e

    async def _follow(
        self,
        client: "httpx2.AsyncClient",
        url: str,
        max_bytes: int,
        headers: dict[str, str],
        begin: BeginContent,
    ) -> "tuple[httpx2.Response, str]":
        for _ in range(MAX_REDIRECTS + 1):
            parsed = _split(url)
            request = await self._request(client, parsed, headers)
            answer = await client.send(request, stream=True)
            try:
                location = answer.headers.get("location")
                if answer.status_code not in REDIRECTS or not location:
                    await _read_body(answer, max_bytes, begin)
                    return answer, url
            finally:
                await answer.aclose()
            url = urljoin(url, "%20".join(location.split()))
            if urlsplit(url)[:2] != (parsed.scheme, parsed.netloc):
                headers = {}
        raise Unavailable(f"the server redirected more than {MAX_REDIRECTS} times")

    async def _request(
        self, client: "httpx2.AsyncClient", parsed: SplitResult, headers: dict[str, str]
    ) -> "httpx2.Request":
        """A request to the checked address with the host name in its headers."""
        host, port = str(parsed.hostname), parsed.port or PORTS[parsed.scheme]
        address = await self._address(host, port)
        shown = f"[{address}]" if ":" in address else address
        path = (parsed.path or "/") + (f"?{parsed.query}" if parsed.query else "")
        named = {**headers, "Host": parsed.netloc, "Accept-Encoding": "identity"}
        if self._user_agent:
            named["User-Agent"] = self._user_agent
        # The certificate is checked for the host name, not for the address.
        return client.build_request(
            "GET", f"{parsed.scheme}://{shown}:{port}{path}", headers=named, extensions={"sni_hostname": host}
        )

    async def _address(self, host: str, port: int) -> str:
        addresses = await self._resolve(host, port)
        if not addresses:
            raise Unavailable(f"host {host} has no address")
        if self._trusted & {host.lower(), f"{host.lower()}:{port}"}:
            return addresses[0]
        for address in addresses:
            if not is_public(address):
                raise Invalid(
                    f"{host} has the private address {address}; add the host to trusted_hosts to fetch from it"
                )
        return addresses[0]


def _split(url: str) -> SplitResult:
    """Parse a URL. Raises Invalid if it is not an HTTP URL."""
    try:
        parsed = urlsplit(url)
        port = parsed.port
    except ValueError as e:
        raise Invalid(f"{url[:100]!r} is not a URL: {e}") from e
    if parsed.scheme not in PORTS or not parsed.hostname or port == 0:
        raise Invalid(f"{url[:100]!r} is not an http or https URL")
    if "@" in parsed.netloc:
        raise Invalid("a URL with a user name is not allowed")
    return parsed if parsed.netloc.isascii() else parsed._replace(netloc=_to_ascii(parsed.hostname, port))


def _to_ascii(host: str, port: int | None) -> str:
    """A host with letters beyond ASCII, and its port, as DNS, certificates and headers write it."""
    import idna

    try:
        encoded = idna.encode(host, uts46=True).decode()
    except idna.IDNAError as e:
        raise Invalid(f"{host[:100]!r} is not a host name: {e}") from e
    return encoded if port is None else f"{encoded}:{port}"


async def _read_body(answer: "httpx2.Response", max_bytes: int, begin: BeginContent) -> None:
    if not answer.is_success:
        raise Unavailable(f"the server returned status {answer.status_code}")
    write, size = begin(), 0
    async for chunk in answer.aiter_bytes(CHUNK):
        size += len(chunk)
        if size > max_bytes:
            raise TooLarge(f"it has more than {max_bytes:,} bytes")
        write(chunk)
