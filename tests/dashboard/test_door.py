"""Promise 24: nobody else gets in. Without a browser: what a browser would not do, too."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.api.serving import KEY, Server, ask, session

PAGES = [
    "/",
    "/ui/census",
    "/ui/live?pulse=1",
    "/ui/space",
    "/ui/space/data",
    "/ui/space/day",
    "/ui/processes",
    "/ui/workers",
    "/ui/gateways",
    "/ui/dead",
    "/ui/cron",
    "/ui/health",
    "/ui/health/charts",
    "/ui/fleet",
    "/ui/s/hf-00000000000000000000000001",
    "/ui/live?s=hf-00000000000000000000000001:0",
    "/ui/s/hf-00000000000000000000000001/export",
    "/ui/nowhere",
]


Visit = Callable[[Server], tuple[httpx.Client, str]]


@pytest.fixture
def visit() -> Iterator[Visit]:
    """Gives a client that has logged in, and the token that changes need."""
    with ExitStack() as clients:

        def enter(server: Server) -> tuple[httpx.Client, str]:
            client = clients.enter_context(httpx.Client(base_url=server.url, timeout=30))
            assert client.post("/ui/login", data={"key": KEY}).status_code == 303
            found = re.search(r'name="csrf" content="([0-9a-f]{64})"', client.get("/").text)
            assert found is not None
            return client, found[1]

        yield enter


@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_shown_without_a_login(server: Server, path: str) -> None:
    for headers in ({}, {"cookie": "holdfast=1"}, {"hx-request": "true"}, {"accept": "text/event-stream"}):
        answer = httpx.get(server.url + path, headers=headers)
        assert answer.status_code in (303, 401)
        assert answer.status_code == 401 or answer.headers["location"].startswith("/ui/login")
        assert answer.content == b""


def test_a_wrong_key_does_not_open(server: Server) -> None:
    for key in ("", "x", KEY + "x", KEY[:-1], "ü\udc80".encode("utf-8", "surrogatepass")):
        answer = httpx.post(f"{server.url}/ui/login", data={"key": key})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers


def test_the_cookie_cannot_be_read_by_scripts_nor_sent_by_strangers(server: Server) -> None:
    answer = httpx.post(f"{server.url}/ui/login", data={"key": KEY})

    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie
    assert KEY not in cookie


def test_a_changed_or_invented_cookie_is_worth_nothing(server: Server, visit: Visit) -> None:
    client, _ = visit(server)
    [(name, value)] = client.cookies.items()
    until, nonce, signature = value.split(".")
    for forged in (f"9{until}.{nonce}.{signature}", f"{until}.{nonce}.{'0' * 64}", "a.b.c", "..", "1.ü.x", ""):
        headers = {"cookie": f"{name}={forged}".encode()}
        assert httpx.get(f"{server.url}/", headers=headers).status_code == 303


def test_logging_out_ends_the_visit_for_every_copy_of_its_cookie_and_after_a_restart(own: Server, visit: Visit) -> None:
    client, token = visit(own)
    cookies = dict(client.cookies.items())
    assert httpx.get(f"{own.url}/", cookies=cookies).status_code == 200

    assert client.post("/ui/logout", data={"csrf": token}).status_code == 303
    assert httpx.get(f"{own.url}/", cookies=cookies).status_code == 303
    own.stop()
    own.restart()
    assert httpx.get(f"{own.url}/", cookies=cookies).status_code == 303


def test_a_login_outlives_a_restart(own: Server, visit: Visit) -> None:
    client, token = visit(own)
    own.kill()
    own.restart()

    assert client.get("/").status_code == 200
    assert client.post("/ui/workers/sweep", data={"csrf": token}).status_code == 303


@pytest.mark.parametrize("token", ["", "x", "0" * 64, "ü"])
def test_no_change_is_made_without_the_token(server: Server, visit: Visit, token: str) -> None:
    client, _ = visit(server)
    with server.http() as http:
        name = session(ask(http, "hello"))
    for path in (f"/ui/s/{name}/trash", f"/ui/s/{name}/say", "/ui/new", "/ui/workers/sweep", "/ui/logout"):
        assert client.post(path, data={"csrf": token, "words": "x"}).status_code == 403
    assert "in the trash" not in client.get(f"/ui/s/{name}").text


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}],
)
def test_a_page_of_a_stranger_can_change_nothing_even_with_the_token(
    server: Server, visit: Visit, headers: dict[str, str]
) -> None:
    client, token = visit(server)

    assert client.post("/ui/workers/sweep", data={"csrf": token}, headers=headers).status_code == 403
    assert httpx.post(f"{server.url}/ui/login", data={"key": KEY}, headers=headers).status_code == 401


def test_pages_do_not_open_the_api_nor_the_key_of_the_api_a_page(server: Server, visit: Visit) -> None:
    client, _ = visit(server)

    assert client.get("/v1/models").status_code == 401
    with server.http(follow_redirects=False) as http:
        assert http.get("/").status_code == 303


@pytest.mark.parametrize("path", ["/", "/ui/login", "/ui/health", "/ui/nowhere", "/ui/static/app.js"])
def test_every_answer_has_a_strict_policy(server: Server, visit: Visit, path: str) -> None:
    client, _ = visit(server)

    answer = client.get(path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in policy


def test_after_the_login_one_goes_where_one_wanted_but_never_elsewhere(server: Server) -> None:
    for wanted, goes in (
        ("/ui/health", "/ui/health"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil", "/"),
    ):
        answer = httpx.post(f"{server.url}/ui/login", params={"next": wanted}, data={"key": KEY})
        assert answer.headers["location"] == goes


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ui/s/hf-nobody0000", 404),
        ("/ui/s/%00", 404),
        ("/?state=dancing", 400),
        ("/?cursor=garbage", 400),
        ("/?q=%22", 200),
        ("/ui/static/../door.py", 404),
        ("/ui/static/%2e%2e%2fdoor.py", 404),
        ("/ui/nowhere", 404),
        ("/ui/processes/proc-nobody", 404),
    ],
)
def test_silly_addresses_are_answered_plainly(server: Server, visit: Visit, path: str, status: int) -> None:
    client, _ = visit(server)

    assert client.get(path).status_code == status


def test_silly_forms_are_answered_plainly(server: Server, visit: Visit) -> None:
    client, token = visit(server)
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
