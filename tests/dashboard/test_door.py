"""Promise 24: nobody else gets in. Without a browser: what a browser would not do, too."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from holdfast.dashboard import app, deeds
from holdfast.dashboard.door import VISIT, Door
from holdfast.store.sqlite import open_sqlite
from tests.api.serving import KEY, Server, ask, session

ID = "hf-00000000000000000000000001"
PLACES = {"{id}": ID, "{seq:int}": "1", "{number:int}": "0"}


def address(route: str) -> str:
    for name, value in PLACES.items():
        route = route.replace(name, value)
    return route


PAGES = [*(address(route) for route, _ in app.GETS), "/ui/live?pulse=1", f"/ui/live?s={ID}:0", "/ui/nowhere"]
CHANGES = [
    *(address(route) for route, _ in app.POSTS if "{deed" not in route),
    *(f"/ui/s/{ID}/{deed}" for deed in deeds.DEEDS),
    "/ui/logout",
]
"""Every address that changes something: a new one is among them by itself."""


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


def test_a_login_outlives_restarts_until_it_is_ended_or_the_key_is_changed(own: Server, visit: Visit) -> None:
    (stays, token), (leaves, theirs) = visit(own), visit(own)
    copy = dict(leaves.cookies.items())
    assert httpx.get(f"{own.url}/", cookies=copy).status_code == 200

    assert leaves.post("/ui/logout", data={"csrf": theirs}).status_code == 303
    assert httpx.get(f"{own.url}/", cookies=copy).status_code == 303
    own.kill()
    own.restart()
    assert httpx.get(f"{own.url}/", cookies=copy).status_code == 303
    assert stays.get("/").status_code == 200
    assert stays.post("/ui/workers/sweep", data={"csrf": token}).status_code == 303

    config = own.home / "config.toml"
    config.write_text(config.read_text().replace(KEY, "hfk-another-one"))
    own.stop()
    own.restart()
    assert stays.get("/").status_code == 303
    assert stays.post("/ui/login", data={"key": KEY}).status_code == 401


@pytest.mark.parametrize("path", CHANGES)
def test_no_change_is_made_without_the_token(server: Server, visit: Visit, path: str) -> None:
    client, _ = visit(server)

    for token in ("", "x", "0" * 64, "ü"):
        assert client.post(path, data={"csrf": token}).status_code == 403
    assert client.post(path, headers={"hx-request": "true"}).status_code == 403
    assert client.get(path).status_code in (404, 405), "nothing changes by being looked at"


@pytest.mark.parametrize("path", CHANGES)
def test_no_change_is_made_without_a_login(server: Server, path: str) -> None:
    assert httpx.post(server.url + path, data={"csrf": "0" * 64}).status_code == 303


def test_the_token_of_another_visit_does_not_count(server: Server, visit: Visit) -> None:
    (client, _), (_, theirs) = visit(server), visit(server)

    assert client.post("/ui/workers/sweep", data={"csrf": theirs}).status_code == 403


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


async def test_a_visit_ends_by_itself(tmp_path: Path) -> None:
    database = await open_sqlite(tmp_path / "holdfast.db")
    door = Door(KEY, database)
    cookies = {door.cookie: door.admit(1_000)}

    assert await door.visitor(cookies, 1_000 + VISIT - 1) is not None
    assert await door.visitor(cookies, 1_000 + VISIT) is None
    assert await Door("another key", database).visitor(cookies, 2_000) is None
    await database.close()


def test_a_login_makes_a_visit_of_its_own_whatever_cookie_came_with_it(server: Server, visit: Visit) -> None:
    client, _ = visit(server)
    [(name, first)] = client.cookies.items()
    answer = client.post("/ui/login", data={"key": KEY})

    assert answer.cookies[name] != first


def test_the_cookie_is_for_https_alone_where_a_proxy_speaks_it(server: Server) -> None:
    headers = {"origin": server.url.replace("http:", "https:")}
    answer = httpx.post(f"{server.url}/ui/login", data={"key": KEY}, headers=headers)

    assert answer.status_code == 303
    assert "secure" in answer.headers["set-cookie"].lower()


def test_who_is_inside_is_not_asked_for_the_key_again(server: Server, visit: Visit) -> None:
    client, _ = visit(server)

    assert client.get("/ui/login?next=/ui/health").headers["location"] == "/ui/health"
    assert client.put("/ui/login").status_code == 405


def test_the_door_says_where_the_key_lies_whatever_the_home_is(server: Server) -> None:
    shown = httpx.get(f"{server.url}/ui/login").text

    assert "<code>api-key</code> in Holdfast's home" in shown
    assert "~/.holdfast/api-key" not in shown, "the home of this server is another one"


def test_what_a_stranger_sends_is_not_even_read(server: Server) -> None:
    answer = httpx.post(f"{server.url}/ui/new", content=b"words=" + b"x" * 20_000_000)

    assert answer.status_code == 303


def test_a_form_that_is_too_large_is_refused(server: Server, visit: Visit) -> None:
    client, token = visit(server)

    assert client.post("/ui/new", data={"csrf": token, "words": "x" * 1_100_000}).status_code == 400


def test_nothing_private_stays_in_a_cache(server: Server, visit: Visit) -> None:
    client, token = visit(server)
    for path in ("/", "/ui/login", "/ui/health", "/ui/space/data", "/ui/nowhere"):
        assert client.get(path).headers["cache-control"] == "no-store"
    answer = client.post("/ui/logout", data={"csrf": token})

    assert answer.headers["clear-site-data"] == '"cache"'
    assert answer.headers["cache-control"] == "no-store"


def test_the_key_is_written_nowhere(server: Server, visit: Visit) -> None:
    visit(server)
    httpx.post(f"{server.url}/ui/login", data={"key": KEY + "x"})

    assert KEY not in (server.home / "logs" / "holdfast.log").read_text()


def test_a_strange_name_of_the_server_is_refused(server: Server, visit: Visit) -> None:
    client, _ = visit(server)

    assert client.get("/", headers={"host": "evil.example"}).status_code == 403


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
        ("/.//evil.example", "/"),
        ("/ui/logout", "/"),
        ("/ui/login?next=/ui/login", "/"),
        ("/?q=words", "/?q=words"),
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
