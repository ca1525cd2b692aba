"""The API key: where it is stored, and the check of a request's key."""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from holdfast.model.errors import Invalid
from holdfast.settings import Settings
from holdfast.store import durable_file
from holdfast.store.atomic_file import translate

KEY_FILE = "api-key"
PREFIX = "hfk-"
MIN_KEY_LENGTH = 16
"""In characters."""


def key_file(settings: Settings) -> Path:
    return settings.home / KEY_FILE


def key_location(settings: Settings) -> str:
    """Where a person finds the key, as the end of a sentence."""
    return "as configured" if settings.api.key is not None else f"in {key_file(settings)}"


def load_or_create_key(settings: Settings) -> str:
    """Return the configured key, else the one in the home directory, which the first start creates.

    Raises Invalid for an unusable key, and NotSaved if none can be created.
    """
    if settings.api.key is not None:
        return _long_enough(settings.api.key.reveal(), "[api] key or HOLDFAST_API_KEY")
    path = key_file(settings)
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    except OSError as e:
        raise Invalid(f"cannot read {path}: {e.strerror}") from e
    try:
        return _make(path)
    except OSError as e:
        raise translate(e, path) from e


def _read(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise Invalid(f"other users can read the API key; run: chmod 600 {path}")
    try:
        key = path.read_text("ascii").strip()
    except UnicodeDecodeError as e:
        raise Invalid(f"{path} does not contain a key; delete it, and the next start creates a new one") from e
    if not key:
        raise Invalid(f"{path} is empty; delete it, and the next start creates a new one")
    return _long_enough(key, f"the key in {path}")


def _long_enough(key: str, what: str) -> str:
    """Raise Invalid for a key that is too short."""
    if len(key) < MIN_KEY_LENGTH:
        raise Invalid(
            f"{what} has {len(key)} characters and needs at least {MIN_KEY_LENGTH}; choose a longer one, "
            "or omit it and Holdfast creates one"
        )
    return key


def _make(path: Path) -> str:
    """Create the key file atomically and readable only by its owner: written to a temporary name, then linked."""
    durable_file.make_folders(path.parent, mode=0o700)
    key = PREFIX + secrets.token_urlsafe(32)
    draft = path.with_name(f"{KEY_FILE}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, f"{key}\n".encode("ascii"))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        path.hardlink_to(draft)
    except FileExistsError:  # another process created it first: use its key
        return _read(path)
    finally:
        draft.unlink()
    durable_file.sync_folder(path.parent)
    return key


def with_bearer_key(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request; a key in `x-api-key`, as Anthropic's clients send it, becomes a bearer key."""
    given = list(headers)
    names = {name.lower(): value for name, value in given}
    if b"authorization" in names or not names.get(b"x-api-key", b"").strip():
        return given
    return [*given, (b"authorization", b"Bearer " + names[b"x-api-key"].strip())]


class KeyCheck:
    """Accepts one key. The comparison takes constant time."""

    def __init__(self, key: str) -> None:
        self._digest = _digest(key)

    def accepts(self, authorization: str | None) -> bool:
        scheme, _, given = (authorization or "").partition(" ")
        return hmac.compare_digest(_digest(given.strip()), self._digest) and scheme.lower() == "bearer"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
