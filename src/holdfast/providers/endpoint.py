"""The URL and the API key of a provider."""

from urllib.parse import urlsplit

import msgspec

from holdfast.model.errors import AuthFailed, Unreachable

NO_KEY = "none"
"""Sent to a self-hosted server that needs no key: some require the header all the same."""


class ProviderEndpoint(msgspec.Struct, frozen=True):
    """A URL and its key. Messages show only the host, because a URL can contain a password."""

    provider: str
    base_url: str
    host: str
    api_key: str

    @property
    def who(self) -> str:
        return f"{self.provider} at {self.host}"


def resolve_endpoint(provider: str, *, api_key: str, base_url: str | None, official: str) -> ProviderEndpoint:
    """The endpoint to use. Raises AuthFailed for a malformed key, before it can appear in any message."""
    key = api_key.strip()
    if not key and base_url is None:
        raise AuthFailed(f"no API key for {provider}: set {provider.upper()}_API_KEY or choose another model")
    if not (key.isascii() and key.isprintable()):
        raise AuthFailed(f"the API key for {provider} contains invalid characters: copy it again")
    url = official if base_url is None else base_url
    return ProviderEndpoint(provider, url, _host(provider, url), key or NO_KEY)


def _host(provider: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError as e:
        raise Unreachable(f"the URL for {provider} is invalid: check its base_url") from e
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Unreachable(f"the URL for {provider} is not an http or https URL: check its base_url")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return name + port
