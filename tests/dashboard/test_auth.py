"""Promise 24: login, cookies and CSRF protection, also against requests that a browser would not send."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import msgspec
import pytest

from holdfast.dashboard import actions, app
from holdfast.dashboard.auth import LOGIN_LIFETIME, LoginAuth
from holdfast.process_lookup import current_identity
from holdfast.store.database import Transaction
from holdfast.store.repos import leases, workers
from holdfast.store.sqlite.driver import open_sqlite
from tests.api.serving import KEY, Server, ask, session
from tests.dashboard.store_writer import now, stock

get, post = partial(httpx.get, verify=False), partial(httpx.post, verify=False)
"""Requests without a login. They need no certificates, and to load them takes longer than the request."""
ID = "hf-00000000000000000000000001"
PLACES = {"{id}": ID, "{seq:count}": "1", "{number:count}": "0"}


def address(route: str) -> str:
    for name, value in PLACES.items():
        route = route.replace(name, value)
    return route


PAGES = [*(address(route) for route, _ in app.GET_ROUTES), "/ui/live?pulse=1", f"/ui/live?s={ID}:0", "/ui/nowhere"]
CHANGES = [
    *(address(route) for route, _ in app.POST_ROUTES if "{action" not in route),
    *(f"/ui/s/{ID}/{action}" for action in actions.ACTIONS),
    "/ui/logout",
]
"""Every URL that changes something, taken from the routes, so that new ones are included."""


LogIn = Callable[[Server], tuple[httpx.Client, str]]


@pytest.fixture
def log_in() -> Iterator[LogIn]:
    """Returns a logged-in client and its CSRF token."""
    with ExitStack() as clients:

        def connect(server: Server) -> tuple[httpx.Client, str]:
            client = clients.enter_context(httpx.Client(base_url=server.url, timeout=30, verify=False))
            assert client.post("/ui/login", data={"key": KEY}).status_code == 303
            found = re.search(r'name="csrf" content="([0-9a-f]{64})"', client.get("/").text)
            assert found is not None
            return client, found[1]

        yield connect


@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_shown_without_a_login(server: Server, path: str) -> None:
    for headers in ({}, {"cookie": "holdfast=1"}, {"hx-request": "true"}, {"accept": "text/event-stream"}):
        answer = get(server.url + path, headers=headers)
        assert answer.status_code in (303, 401)
        assert answer.status_code == 401 or answer.headers["location"].startswith("/ui/login")
        assert answer.content == b""


def test_a_wrong_key_is_rejected(server: Server) -> None:
    for key in ("", "x", KEY + "x", KEY[:-1], "ü\udc80".encode("utf-8", "surrogatepass")):
        answer = post(f"{server.url}/ui/login", data={"key": key})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers


def test_the_cookie_is_hidden_from_scripts_and_other_sites(server: Server) -> None:
    answer = post(f"{server.url}/ui/login", data={"key": KEY})

    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie
    assert KEY not in cookie


def test_a_forged_cookie_is_rejected(server: Server, log_in: LogIn) -> None:
    client, _ = log_in(server)
    [(name, value)] = client.cookies.items()
    until, nonce, signature = value.split(".")
    for forged in (f"9{until}.{nonce}.{signature}", f"{until}.{nonce}.{'0' * 64}", "a.b.c", "..", "1.ü.x", ""):
        headers = {"cookie": f"{name}={forged}".encode()}
        assert get(f"{server.url}/", headers=headers).status_code == 303


def test_a_login_survives_restarts_until_logout_or_a_new_key(own: Server, log_in: LogIn) -> None:
    (stays, token), (leaves, theirs) = log_in(own), log_in(own)
    copy = dict(leaves.cookies.items())
    assert get(f"{own.url}/", cookies=copy).status_code == 200

    assert leaves.post("/ui/logout", data={"csrf": theirs}).status_code == 303
    assert get(f"{own.url}/", cookies=copy).status_code == 303
    own.kill()
    own.restart()
    assert get(f"{own.url}/", cookies=copy).status_code == 303
    assert stays.get("/").status_code == 200
    assert stays.post("/ui/workers/sweep", data={"csrf": token}).status_code == 303

    config = own.home / "config.toml"
    config.write_text(config.read_text().replace(KEY, "hfk-another-one-that-is-long"))
    own.stop()
    own.restart()
    assert stays.get("/").status_code == 303
    assert stays.post("/ui/login", data={"key": KEY}).status_code == 401


@pytest.mark.parametrize("path", CHANGES)
def test_every_action_needs_the_csrf_token(server: Server, log_in: LogIn, path: str) -> None:
    client, _ = log_in(server)

    for token in ("", "x", "0" * 64, "ü"):
        assert client.post(path, data={"csrf": token}).status_code == 403
    assert client.post(path, headers={"hx-request": "true"}).status_code == 403
    assert client.get(path).status_code in (404, 405), "a GET request changes nothing"


@pytest.mark.parametrize("path", CHANGES)
def test_every_action_needs_a_login(server: Server, path: str) -> None:
    assert post(server.url + path, data={"csrf": "0" * 64}).status_code == 303


def test_the_csrf_token_of_another_login_is_rejected(server: Server, log_in: LogIn) -> None:
    (client, _), (_, theirs) = log_in(server), log_in(server)

    assert client.post("/ui/workers/sweep", data={"csrf": theirs}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}],
)
def test_a_cross_site_request_is_rejected_even_with_the_token(
    server: Server, log_in: LogIn, headers: dict[str, str]
) -> None:
    client, token = log_in(server)

    assert client.post("/ui/workers/sweep", data={"csrf": token}, headers=headers).status_code == 403
    assert post(f"{server.url}/ui/login", data={"key": KEY}, headers=headers).status_code == 401


async def test_a_login_expires(tmp_path: Path) -> None:
    database = await open_sqlite(tmp_path / "holdfast.db")
    auth = LoginAuth(KEY, database)
    cookies = {auth.cookie: auth.issue_cookie(1_000)}

    assert await auth.authenticate(cookies, 1_000 + LOGIN_LIFETIME - 1) is not None
    assert await auth.authenticate(cookies, 1_000 + LOGIN_LIFETIME) is None
    assert await LoginAuth("another key", database).authenticate(cookies, 2_000) is None
    await database.close()


def test_every_login_gets_a_new_cookie(server: Server, log_in: LogIn) -> None:
    client, _ = log_in(server)
    [(name, first)] = client.cookies.items()
    answer = client.post("/ui/login", data={"key": KEY})

    assert answer.cookies[name] != first


def test_the_cookie_is_secure_behind_an_https_proxy(server: Server) -> None:
    headers = {"origin": server.url.replace("http:", "https:")}
    answer = post(f"{server.url}/ui/login", data={"key": KEY}, headers=headers)

    assert answer.status_code == 303
    assert "secure" in answer.headers["set-cookie"].lower()


def test_a_link_to_a_session_starts_with_https_behind_an_https_proxy(server: Server, log_in: LogIn) -> None:
    client, token = log_in(server)
    with server.http() as http:
        name = session(ask(http, "shared through a proxy"))
    headers = {"origin": server.url.replace("http:", "https:")}
    shown = client.post(f"/ui/s/{name}/share", data={"days": "1", "csrf": token}, headers=headers).text

    assert f"https://127.0.0.1:{server.port}/share/" in shown


def test_the_login_page_redirects_a_logged_in_browser(server: Server, log_in: LogIn) -> None:
    client, _ = log_in(server)

    assert client.get("/ui/login?next=/ui/health").headers["location"] == "/ui/health"
    assert client.put("/ui/login").status_code == 405


def test_the_login_page_names_the_default_location_of_the_key(server: Server) -> None:
    shown = get(f"{server.url}/ui/login").text

    assert "Default location: <code>~/.holdfast/api-key</code>" in shown


def test_the_body_of_an_unauthenticated_request_is_not_read(server: Server) -> None:
    answer = post(f"{server.url}/ui/new", content=b"words=" + b"x" * 20_000_000)

    assert answer.status_code == 303


def test_a_form_that_is_too_large_is_rejected(server: Server, log_in: LogIn) -> None:
    client, token = log_in(server)

    assert client.post("/ui/new", data={"csrf": token, "words": "x" * 1_100_000}).status_code == 400


def test_private_pages_are_not_cached(server: Server, log_in: LogIn) -> None:
    client, token = log_in(server)
    for path in ("/", "/ui/login", "/ui/health", "/ui/space/data", "/ui/nowhere"):
        assert client.get(path).headers["cache-control"] == "no-store"
    answer = client.post("/ui/logout", data={"csrf": token})

    assert answer.headers["clear-site-data"] == '"cache"'
    assert answer.headers["cache-control"] == "no-store"


def test_the_key_is_never_logged(server: Server, log_in: LogIn) -> None:
    log_in(server)
    post(f"{server.url}/ui/login", data={"key": KEY + "x"})

    assert KEY not in (server.home / "logs" / "holdfast.log").read_text()


def test_an_unknown_host_is_rejected(server: Server, log_in: LogIn) -> None:
    client, _ = log_in(server)

    assert client.get("/", headers={"host": "evil.example"}).status_code == 403


def test_a_login_does_not_open_the_api_nor_the_key_a_page(server: Server, log_in: LogIn) -> None:
    client, _ = log_in(server)

    assert client.get("/v1/models").status_code == 401
    with server.http(follow_redirects=False) as http:
        assert http.get("/").status_code == 303


@pytest.mark.parametrize("path", ["/", "/ui/login", "/ui/health", "/ui/nowhere", "/ui/static/app.js"])
def test_every_response_has_a_strict_content_security_policy(server: Server, log_in: LogIn, path: str) -> None:
    client, _ = log_in(server)

    answer = client.get(path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in policy


def test_a_login_redirects_only_to_pages_of_the_dashboard(server: Server) -> None:
    for wanted, goes in (
        ("/ui/health", "/ui/health"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil", "/"),
        ("/.//evil.example", "/"),
        ("/ui/logout", "/"),
        ("/ui/login?next=/ui/login", "/"),
        ("/?q=words", "/?q=words"),
    ):
        answer = post(f"{server.url}/ui/login", params={"next": wanted}, data={"key": KEY})
        assert answer.headers["location"] == goes


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ui/s/hf-nobody0000", 404),
        ("/ui/s/%00", 404),
        (f"/ui/s/hf-nobody0000/raw/{'9' * 30}", 404),
        (f"/ui/s/hf-nobody0000/image/1/{'9' * 5000}", 404),
        ("/?state=dancing", 400),
        ("/?cursor=garbage", 400),
        ("/?q=%22", 200),
        ("/ui/static/../auth.py", 404),
        ("/ui/static/%2e%2e%2fauth.py", 404),
        ("/ui/nowhere", 404),
        ("/ui/processes/proc-nobody", 404),
    ],
)
def test_invalid_urls_get_an_error_page(server: Server, log_in: LogIn, path: str, status: int) -> None:
    client, _ = log_in(server)

    assert client.get(path).status_code == status


def test_invalid_forms_get_a_notice(server: Server, log_in: LogIn) -> None:
    client, token = log_in(server)
    with server.http() as http:
        name = session(ask(http, "hello"))
    base = f"/ui/s/{name}"
    wrong: list[tuple[str, dict[str, str], int]] = [
        (f"{base}/say", {"words": " "}, 400),
        (f"{base}/say", {"words": "x", "mode": "dance"}, 400),
        (f"{base}/fork", {"at": "99999"}, 400),
        (f"{base}/fork", {"at": "-1"}, 400),
        (f"{base}/rename", {"title": "\u200b"}, 400),
        (f"{base}/approve", {"answer": "allow", "turn_id": "t", "call_id": "c"}, 404),
        (f"{base}/uncompact", {}, 400),
        (f"{base}/dance", {}, 404),
        ("/ui/cron/add", {"when": "often", "prompt": "x"}, 400),
        ("/ui/cron/add", {"when": "0 7 * * *", "prompt": "x", "timezone": "Mars"}, 400),
        ("/ui/dead/replay", {"id": "nobody"}, 404),
        ("/ui/gateways/pair", {"code": "nobody"}, 404),
    ]
    for path, fields, status in wrong:
        answer = client.post(path, data={"csrf": token, **fields}, headers={"hx-request": "true"})
        assert (path, answer.status_code) == (path, status), answer.text
        assert 'class="notice bad"' in answer.text


@pytest.mark.parametrize("action", ["end", "trash", "reopen"])
def test_actions_work_on_the_session_of_a_dead_worker(server: Server, log_in: LogIn, action: str) -> None:
    client, token = log_in(server)
    with server.http() as http:
        name = session(ask(http, f"left behind, to {action}"))
        if action == "reopen":
            assert http.post(f"/v1/sessions/{name}/end").status_code == 200
    worker = f"worker-gone-{action}"
    who = msgspec.structs.replace(current_identity(), process_started="1")

    def leave_behind(tx: Transaction) -> None:
        """In one transaction, because the server's janitor declares the worker dead as soon as it sees it."""
        workers.register(tx, worker, "serve", who, version="1", at=now())
        leases.take(tx, name, worker)

    stock(server.home, leave_behind)

    answer = client.post(f"/ui/s/{name}/{action}", data={"csrf": token}, headers={"hx-request": "true"})

    assert answer.status_code in (200, 204), answer.text
    assert 'class="notice bad"' not in answer.text
