"""Who may come: a file of users, each with a digest of their key. The key itself is shown once and kept nowhere.

The file is written whole, under a lock, and read anew whenever it has changed, so that a user who was added or removed
is so for a running broker at its next request.
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
from holdfast.store.private import new_file

PREFIX = "hfu-"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
NOBODY = hashlib.sha256(secrets.token_bytes(32)).hexdigest()
"""What a key of a user who does not exist is compared with, so that it takes as long as any other."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """One user. `worker_key` opens their worker, for the broker alone."""

    name: str
    digest: str
    worker_key: str
    added_at: int
    uid: int | None = None


class Book(msgspec.Struct, frozen=True):
    """The file."""

    users: dict[str, User] = {}
    next_uid: int | None = None
    """The uid of the next user. None is ever given to a second one."""


def digest(key: str) -> str:
    """Keys are 256 bits of chance, so one round of a hash is enough to keep them secret."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def make_key(name: str) -> str:
    """A key says whose it is, so that one user is looked up and one digest compared."""
    return f"{PREFIX}{name}.{secrets.token_urlsafe(32)}"


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise Invalid(
            f"{name!r} is no name for a user: it has 1 to 32 of a-z, 0-9, - and _, and begins with a letter or a digit"
        )
    return name


class Users:
    """The users as the file has them now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._book = Book()
        self._seen: tuple[int, int, int] | None = None

    def book(self) -> Book:
        """Raises Corrupt if somebody has spoiled the file, and Unavailable if it cannot be read now."""
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen != self._seen:
                self._book = msgspec.json.decode(self._path.read_bytes(), type=Book)
                self._seen = seen
        except FileNotFoundError as e:
            if (
                self._seen is not None
            ):  # it is never deleted: to believe that nobody is left would end what all of them do
                raise Unavailable(f"{self._path} was there and is not") from e
        except msgspec.DecodeError as e:
            raise Corrupt(f"{self._path} is not what was written there: {e}") from e
        except OSError as e:
            raise Unavailable(f"{self._path} cannot be read: {e.strerror}") from e
        return self._book

    def all(self) -> dict[str, User]:
        return self.book().users

    def get(self, name: str) -> User:
        """Raises NotFound."""
        user = self.all().get(name)
        if user is None:
            raise NotFound(f"there is no user {name!r}; holdfast broker status shows all")
        return user

    def of_key(self, key: str) -> User | None:
        """Whose key this is. The comparison takes the same time for every wrong one."""
        name = key.removeprefix(PREFIX).partition(".")[0] if key.startswith(PREFIX) else ""
        user = self.all().get(name)
        is_right = hmac.compare_digest(digest(key), user.digest if user else NOBODY)
        return user if is_right else None

    def add(
        self, name: str, *, first_uid: int | None, at: int, make_home: Callable[[User], object]
    ) -> tuple[User, str]:
        """A new user and their key. `make_home` is done before they count. Raises Conflict if the name is taken."""
        with self._changing() as book:
            if name in book.users:
                raise Conflict(f"there is a user {name} already")
            uid = None if first_uid is None else max(first_uid, book.next_uid or 0)
            key = make_key(name)
            user = User(name=name, digest=digest(key), worker_key=secrets.token_urlsafe(32), added_at=at, uid=uid)
            make_home(user)
            self._write(Book(book.users | {name: user}, book.next_uid if uid is None else uid + 1))
        return user, key

    def new_key(self, name: str) -> str:
        """Another key for a user; the old one, and every login made with it, counts no longer."""
        with self._changing() as book:
            user, key = self.get(name), make_key(name)
            fresh = msgspec.structs.replace(user, digest=digest(key), worker_key=secrets.token_urlsafe(32))
            self._write(Book(book.users | {name: fresh}, book.next_uid))
        return key

    def remove(self, name: str) -> None:
        with self._changing() as book:
            self.get(name)
            self._write(Book({other: user for other, user in book.users.items() if other != name}, book.next_uid))

    @contextmanager
    def _changing(self) -> Iterator[Book]:
        """The file as it is, while nobody else changes it."""
        lock = os.open(self._path.with_name("users.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.book()
        finally:
            os.close(lock)

    def _write(self, book: Book) -> None:
        with new_file(self._path, replace=True) as file:
            file.write(msgspec.json.format(msgspec.json.encode(book)).decode("ascii"))
