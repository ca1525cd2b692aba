"""Login: with the API key once, then with a signed cookie that no script can read.

The cookie contains a login id and an expiry, signed with a secret derived from the key: it survives a restart and becomes
invalid when the key changes. Every POST also needs a CSRF token derived from the login id. Logouts are recorded in the
store, so that they apply to every server of it.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request

from holdfast.model.text import parse_decimal
from holdfast.model.times import DAY
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import meta

LOGIN_LIFETIME = 14 * DAY
LOGOUTS_KEY = "dashboard_left"
"""The key of the logged-out login ids in the store."""
CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf-token"


class BrowserLogin(msgspec.Struct, frozen=True):
    """A logged-in browser. Every POST must carry `csrf_token`."""

    id: str
    expires_at: int
    csrf_token: str


class CookieSigner:
    """Signs and verifies login cookies with a secret derived from the API key."""

    def __init__(self, key: str) -> None:
        self.key = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        self._secret = hashlib.sha256(b"holdfast dashboard\n" + self.key).digest()
        self.cookie = f"holdfast_{self.sign('cookie')[:8]}"
        """Derived from the key: browsers share cookies between the ports of one host."""

    def sign(self, text: str) -> str:
        return hmac.new(self._secret, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def verify(self, value: str, now: int) -> tuple[str, int] | None:
        """The login id and expiry of a cookie, if its signature is valid and it has not expired."""
        expiry, _, rest = value.partition(".")
        login_id, _, signature = rest.partition(".")
        expires_at = parse_decimal(expiry)
        if expires_at is None or not signature.isascii():
            return None
        if not hmac.compare_digest(signature, self.sign(f"{expiry}.{login_id}")) or expires_at <= now:
            return None
        return login_id, expires_at


class LoginAuth:
    """Checks keys, cookies and CSRF tokens, and issues cookies."""

    def __init__(self, key: str, database: Database) -> None:
        self._signer = CookieSigner(key)
        self._database = database
        self._logged_out: set[str] = set()
        self.cookie = self._signer.cookie

    def is_valid_key(self, key: str) -> bool:
        """Whether this is the API key. Compares in constant time."""
        given = hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).digest()
        return hmac.compare_digest(given, self._signer.key)

    def issue_cookie(self, now: int) -> str:
        """The cookie of a new login."""
        content = f"{now + LOGIN_LIFETIME}.{secrets.token_hex(16)}"
        return f"{content}.{self._signer.sign(content)}"

    async def authenticate(self, cookies: Mapping[str, str], now: int) -> BrowserLogin | None:
        """The login of a request, if its cookie is valid and not logged out."""
        found = self._signer.verify(cookies.get(self.cookie, ""), now)
        if found is None:
            return None
        login_id, expires_at = found
        login = BrowserLogin(login_id, expires_at, self._signer.sign(f"csrf.{login_id}"))
        return login if await self.is_active(login, now) else None

    async def is_active(self, login: BrowserLogin, now: int) -> bool:
        """Whether the login has neither expired nor been logged out, on any server of the store."""
        if login.expires_at <= now or login.id in self._logged_out:
            return False
        return login.id not in await self._database.read(_read_logouts)

    async def log_out(self, login: BrowserLogin, now: int) -> None:
        """Invalidate the login on every server of the store."""
        await self._database.write(_record_logout, login, now)
        self._logged_out.add(login.id)

    def is_valid_token(self, login: BrowserLogin, token: str) -> bool:
        return hmac.compare_digest(token.encode("utf-8", "replace"), login.csrf_token.encode())


def is_cross_site(headers: Mapping[str, str]) -> bool:
    """Whether a page of another site sent this request, according to the browser."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


def is_https(request: Request) -> bool:
    """Whether the browser used HTTPS: to this server, or, by its Origin header, to a proxy in front of it."""
    return "https" in (request.url.scheme, urlsplit(request.headers.get("origin", "")).scheme)


def _read_logouts(tx: Transaction) -> dict[str, int]:
    return msgspec.json.decode(meta.get(tx, LOGOUTS_KEY) or "{}", type=dict[str, int])


def _record_logout(tx: Transaction, login: BrowserLogin, now: int) -> None:
    kept = {login_id: expires_at for login_id, expires_at in _read_logouts(tx).items() if expires_at > now}
    meta.put(tx, LOGOUTS_KEY, msgspec.json.encode(kept | {login.id: login.expires_at}).decode())
