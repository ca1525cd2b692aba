"""The file of users, each with a hash of their key. The key itself is shown once and stored nowhere.

The file is written atomically under a lock and reloaded when it changes, so that a running broker knows added and removed
users at the next request.
"""

import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast.model.errors import Conflict, Corrupt, Invalid, NotFound, Unavailable
from holdfast.store.atomic_file import new_file

KEY_PREFIX = "hfu-"
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
DUMMY_HASH = hashlib.sha256(secrets.token_bytes(32)).hexdigest()
"""Compared with the key of an unknown user, so that the check takes as long as any other."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """One user. `worker_key` is the API key of their worker; only the broker knows it."""

    name: str
    digest: str
    worker_key: str
    added_at: int
    uid: int | None = None


class UserFile(msgspec.Struct, frozen=True):
    """The content of the file."""

    users: dict[str, User] = {}
    next_uid: int | None = None
    """The uid of the next user. A uid is never reused."""


def hash_key(key: str) -> str:
    """Hash a key. Keys have 256 random bits, so one round is enough."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def make_key(name: str) -> str:
    """Create a key. It contains the user name, so that one user is looked up and one hash compared."""
    return f"{KEY_PREFIX}{name}.{secrets.token_urlsafe(32)}"


def check_name(name: str) -> str:
    if not NAME_PATTERN.fullmatch(name):
        raise Invalid(
            f"{name!r} is not a valid user name: use 1 to 32 of a-z, 0-9, - and _, starting with a letter or a digit"
        )
    return name


class Users:
    """Reads and writes the users in the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content = UserFile()
        self._seen: tuple[int, int, int] | None = None

    def load(self) -> UserFile:
        """Load the file if it changed. Raises Corrupt if it is damaged and Unavailable if it cannot be read."""
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen != self._seen:
                self._content = msgspec.json.decode(self._path.read_bytes(), type=UserFile)
                self._seen = seen
        except FileNotFoundError as e:
            if self._seen is not None:  # it is never deleted: an empty list would stop the workers of all users
                raise Unavailable(f"{self._path} has disappeared") from e
        except msgspec.DecodeError as e:
            raise Corrupt(f"{self._path} is damaged: {e}") from e
        except OSError as e:
            raise Unavailable(f"cannot read {self._path}: {e.strerror}") from e
        return self._content

    def all(self) -> dict[str, User]:
        return self.load().users

    def get(self, name: str) -> User:
        """Raises NotFound."""
        user = self.all().get(name)
        if user is None:
            raise NotFound(f"user {name!r} not found; `holdfast broker status` lists all users")
        return user

    def find_by_key(self, key: str) -> User | None:
        """Return the user of a key, if any. The comparison takes constant time."""
        name = key.removeprefix(KEY_PREFIX).partition(".")[0] if key.startswith(KEY_PREFIX) else ""
        user = self.all().get(name)
        is_right = hmac.compare_digest(hash_key(key), user.digest if user else DUMMY_HASH)
        return user if is_right else None

    def add(
        self, name: str, *, first_uid: int | None, at: int, make_home: Callable[[User], object]
    ) -> tuple[User, str]:
        """Add a user; return them and their key. `make_home` runs before the user is stored. Raises Conflict if the name is taken."""
        with self._locked() as file:
            if name in file.users:
                raise Conflict(f"user {name} already exists")
            uid = None if first_uid is None else max(first_uid, file.next_uid or 0)
            key = make_key(name)
            user = User(name=name, digest=hash_key(key), worker_key=secrets.token_urlsafe(32), added_at=at, uid=uid)
            make_home(user)
            self._write(UserFile(file.users | {name: user}, file.next_uid if uid is None else uid + 1))
        return user, key

    def new_key(self, name: str) -> str:
        """Replace the key of a user; the old key and all logins with it become invalid. Raises NotFound."""
        self.get(name)  # before the lock, whose directory the first user creates
        with self._locked() as file:
            user, key = self.get(name), make_key(name)
            fresh = msgspec.structs.replace(user, digest=hash_key(key), worker_key=secrets.token_urlsafe(32))
            self._write(UserFile(file.users | {name: fresh}, file.next_uid))
        return key

    def remove(self, name: str) -> None:
        with self._locked() as file:
            self.get(name)
            self._write(UserFile({other: user for other, user in file.users.items() if other != name}, file.next_uid))

    @contextmanager
    def _locked(self) -> Iterator[UserFile]:
        """Lock the file and load it."""
        lock = os.open(self._path.with_name("users.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.load()
        finally:
            os.close(lock)

    def _write(self, users: UserFile) -> None:
        with new_file(self._path, replace=True) as file:
            file.write(msgspec.json.format(msgspec.json.encode(users)).decode("ascii"))
