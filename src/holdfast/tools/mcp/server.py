"""The configuration of one MCP server, and the names made from it."""

import re

import msgspec

from holdfast.settings import McpOAuthSettings

MAX_MESSAGE_BYTES = 32_000_000
"""The longest message of a server that is read into memory; arbitrary."""


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is started with `command`, or reached at `url`."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    trust: bool = False
    """Whether its tools may run without approval."""
    oauth: McpOAuthSettings = McpOAuthSettings()

    @property
    def uses_oauth(self) -> bool:
        """Whether Holdfast logs in if the server asks for it; not if the credentials are configured as a header."""
        return bool(self.url) and not any(name.lower() == "authorization" for name in self.headers)


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits of connections."""

    ping_seconds: float = 60.0
    connect_seconds: float = 60.0
    """Some servers are downloaded at their first start."""
    call_seconds: float = 600.0


def safe_name(text: str) -> str:
    """Only characters that all providers and file systems accept."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)
