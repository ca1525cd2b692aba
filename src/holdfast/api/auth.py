"""The key of the API: where it comes from, and whether a request has it."""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from holdfast.model.errors import Invalid
from holdfast.settings import Settings

NAME = "api-key"
PREFIX = "hfk-"


def key_file(settings: Settings) -> Path:
    return settings.home / NAME


def obtain(settings: Settings) -> str:
    """The key: the one that is set, else the one in the home, which is made at the first start."""
    if settings.api.key is not None:
        return settings.api.key.reveal()
    path = key_file(settings)
    try:
        return _read(path)
    except FileNotFoundError:
        return _make(path)


def _read(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise Invalid(f"others can read the key of the API; do: chmod 600 {path}")
    try:
        key = path.read_text("ascii").strip()
    except UnicodeDecodeError as e:
        raise Invalid(f"{path} holds no key; delete it, and the next start makes a new one") from e
    if not key:
        raise Invalid(f"{path} is empty; delete it, and the next start makes a new one")
    return key


def _make(path: Path) -> str:
    """Whole or not at all, and readable by nobody else: written under another name, then linked to its own."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = PREFIX + secrets.token_urlsafe(32)
    draft = path.with_name(f"{NAME}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, f"{key}\n".encode("ascii"))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        path.hardlink_to(draft)
    except FileExistsError:  # another process was faster: its key counts
        return _read(path)
    finally:
        draft.unlink()
    return key


class Lock:
    """Opens for one key. The comparison takes the same time for every wrong one."""

    def __init__(self, key: str) -> None:
        self._digest = _digest(key)

    def opens(self, authorization: str | None) -> bool:
        scheme, _, given = (authorization or "").partition(" ")
        return hmac.compare_digest(_digest(given.strip()), self._digest) and scheme.lower() == "bearer"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
