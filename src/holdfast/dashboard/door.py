"""Who may come in: the key of the API once, then a cookie that only this server can write and no script can read.

The cookie names a visit and when it ends, signed with a secret that is made from the key: it is good after a restart, and no
longer once the key is changed. Every change needs a second token, made from the same visit, that a page of a
stranger cannot know. Visits that were ended are remembered in the store, so that logging out holds on every server of it.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from holdfast.model.times import DAY
from holdfast.store import meta
from holdfast.store.database import Database, Transaction

VISIT = 14 * DAY
LEFT = "dashboard_left"
"""Where the store keeps the visits that were ended before their time."""
FIELD, HEADER = "csrf", "x-csrf-token"


class Visitor(msgspec.Struct, frozen=True):
    """Somebody who has the key. `token` must come with every change that is asked for."""

    visit: str
    until: int
    token: str


class Seal:
    """What a key makes of a cookie: its name, and a mark that nobody without the key can put on it."""

    def __init__(self, key: str) -> None:
        self.key = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        self._secret = hashlib.sha256(b"holdfast dashboard\n" + self.key).digest()
        self.cookie = f"holdfast_{self.sign('cookie')[:8]}"
        """Servers on several ports of one machine share a cookie's name unless it tells them apart."""

    def sign(self, text: str) -> str:
        return hmac.new(self._secret, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def visit_of(self, value: str, now: int) -> tuple[str, int] | None:
        """The visit that a cookie is of and when it ends, if it is one of ours that still counts."""
        until, _, rest = value.partition(".")
        visit, _, signature = rest.partition(".")
        if not (until.isascii() and until.isdecimal() and signature.isascii()):
            return None
        if not hmac.compare_digest(signature, self.sign(f"{until}.{visit}")) or int(until) <= now:
            return None
        return visit, int(until)


class Door:
    def __init__(self, key: str, database: Database) -> None:
        self._seal = Seal(key)
        self._database = database
        self._ended: set[str] = set()
        self.cookie = self._seal.cookie

    def opens(self, key: str) -> bool:
        """Whether this is the key. The comparison takes the same time for every wrong one."""
        given = hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).digest()
        return hmac.compare_digest(given, self._seal.key)

    def admit(self, now: int) -> str:
        """The cookie of a new visit."""
        place = f"{now + VISIT}.{secrets.token_hex(16)}"
        return f"{place}.{self._seal.sign(place)}"

    async def visitor(self, cookies: Mapping[str, str], now: int) -> Visitor | None:
        """Who has come, if the cookie is one of ours that still counts."""
        found = self._seal.visit_of(cookies.get(self.cookie, ""), now)
        if found is None:
            return None
        visit, until = found
        visitor = Visitor(visit, until, self._seal.sign(f"csrf.{visit}"))
        return visitor if await self.lasts(visitor, now) else None

    async def lasts(self, visitor: Visitor, now: int) -> bool:
        """Whether the visit goes on: neither its time is up nor was it ended, here or at another server of the store."""
        if visitor.until <= now or visitor.visit in self._ended:
            return False
        return visitor.visit not in await self._database.read(_left)

    async def leave(self, visitor: Visitor, now: int) -> None:
        """End the visit, wherever its cookie has got to."""
        await self._database.write(_leave, visitor, now)
        self._ended.add(visitor.visit)

    def allows(self, visitor: Visitor, token: str) -> bool:
        return hmac.compare_digest(token.encode("utf-8", "replace"), visitor.token.encode())


def is_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that a page of another server sends this."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


def _left(tx: Transaction) -> dict[str, int]:
    return msgspec.json.decode(meta.get(tx, LEFT) or "{}", type=dict[str, int])


def _leave(tx: Transaction, visitor: Visitor, now: int) -> None:
    kept = {visit: until for visit, until in _left(tx).items() if until > now}
    meta.put(tx, LEFT, msgspec.json.encode(kept | {visitor.visit: visitor.until}).decode())
