"""Where a provider is reached, and with which key."""

from urllib.parse import urlsplit

import msgspec

from holdfast.model.errors import AuthFailed

NO_KEY = "none"
"""What is sent to a server of one's own that asks for no key; the SDKs insist on some."""


class Server(msgspec.Struct, frozen=True):
    """An address and the key for it. Shown in messages by its host alone, since an address can hold a password."""

    provider: str
    base_url: str
    api_key: str

    @property
    def host(self) -> str:
        parts = urlsplit(self.base_url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

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
    return Server(provider, base_url or official, key or NO_KEY)
