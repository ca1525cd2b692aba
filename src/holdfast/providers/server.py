"""Where a provider is reached, and with which key."""

from urllib.parse import urlsplit

import msgspec

from holdfast.model.errors import AuthFailed, Unreachable

NO_KEY = "none"
"""What is sent to a server of one's own that asks for no key; the SDKs insist on some."""


class Server(msgspec.Struct, frozen=True):
    """An address and the key for it. Shown in messages by its host alone, since an address can hold a password."""

    provider: str
    base_url: str
    host: str
    api_key: str

    @property
    def who(self) -> str:
        return f"{self.provider} at {self.host}"


def locate(provider: str, *, api_key: str, base_url: str | None, official: str) -> Server:
    """The server to ask. Raises AuthFailed for a key that cannot be one, before it can get into any message."""
    key = api_key.strip()
    if not key and base_url is None:
        raise AuthFailed(f"there is no key for {provider}: set {provider.upper()}_API_KEY or choose another model")
    if not (key.isascii() and key.isprintable()):
        raise AuthFailed(f"the key for {provider} holds characters that no key has: copy it again")
    address = official if base_url is None else base_url
    return Server(provider, address, _host(provider, address), key or NO_KEY)


def _host(provider: str, address: str) -> str:
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port else ""
    except ValueError as e:
        raise Unreachable(f"the address for {provider} cannot be read: check its base_url") from e
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Unreachable(f"the address for {provider} is none of the web: check its base_url")
    return parts.hostname + port
