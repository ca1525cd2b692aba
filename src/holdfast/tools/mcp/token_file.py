"""The login of one MCP server in a private file: tokens, the registered client, and where to refresh the tokens.

The file belongs to one URL: if the configured URL changes, the login is not sent to the new one. Several processes
share the file. The one that refreshes the tokens holds a lock, because many servers accept a refresh token only once.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from holdfast.store import durable_file

FOLDER = "mcp"
"""In Holdfast's home, which tools cannot read."""
LOCK_POLL_SECONDS = 0.05
NOTHING = b"null"


class RegisteredClient(msgspec.Struct):
    """The part of a registered client that decides where a person is redirected to."""

    redirect_uris: tuple[str, ...] | None = None


class StoredLogin(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The contents of the file. The documents are those of the MCP library, as JSON."""

    url: str = ""
    tokens: msgspec.Raw = msgspec.Raw(NOTHING)
    client: msgspec.Raw = msgspec.Raw(NOTHING)
    metadata: msgspec.Raw = msgspec.Raw(NOTHING)
    """What the authorization server says about itself."""
    resource: msgspec.Raw = msgspec.Raw(NOTHING)
    """What the MCP server says about its authorization."""
    expires_at: float | None = None


class TokenFile:
    def __init__(self, folder: Path, name: str, url: str) -> None:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        self.path = folder / f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)}-{digest}.json"
        self._url = url

    def read(self) -> StoredLogin:
        """The stored login; an empty one if there is none, or only one for another URL."""
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=StoredLogin)
        except (FileNotFoundError, msgspec.DecodeError):
            return StoredLogin(url=self._url)
        return found if found.url == self._url else StoredLogin(url=self._url)

    def write(self, login: StoredLogin) -> None:
        """Replace the file; afterwards the login survives a power failure."""
        durable_file.make_folders(self.path.parent, mode=0o700)
        staging = self.path.with_suffix(f".{os.getpid()}.tmp")
        descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(login))
        finally:
            os.close(descriptor)
        durable_file.rename(staging, self.path)

    def delete(self) -> bool:
        """Remove the login; False if there was none."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    def has_tokens(self) -> bool:
        return bytes(self.read().tokens) != NOTHING

    def forget_tokens(self) -> None:
        """Remove the tokens, and keep the registered client for the next login."""
        if self.has_tokens():
            self.write(msgspec.structs.replace(self.read(), tokens=msgspec.Raw(NOTHING), expires_at=None))

    def redirect_port(self) -> int:
        """The port of the registered client's redirect address; 0 if there is none."""
        client = msgspec.json.decode(self.read().client, type=RegisteredClient | None)
        address = next(iter(client.redirect_uris or ()), "") if client else ""
        return urlsplit(address).port or 0

    def version(self) -> object:
        """Differs after every change of the file."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the lock of this login among all processes."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Another process holds it, so no event of this one can report its release.
            while not _try_lock(descriptor):  # noqa: ASYNC110
                await asyncio.sleep(LOCK_POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
