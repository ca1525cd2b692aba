"""Links to sessions: what a visitor without a login sees, and what they can never reach."""

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast.model.event import MessageRemoved, ModelSaid, Rewound, SessionOpened, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Image, Text
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions
from tests.api.serving import KEY, Server, ask, session
from tests.dashboard.conftest import open_page
from tests.dashboard.store_writer import now, stock
from tests.dashboard.test_pages import AXE
from tests.dashboard.test_session_page import ATTACKS, CODE, PIXEL

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]


@pytest.fixture
def visitor(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, verify=False) as http:
        yield http


def make_share(server: Server, session_id: str) -> str:
    """Share a session; returns the path of the link."""
    with server.http() as http:
        answer = http.post(f"/v1/sessions/{session_id}/shares", json={"days": 1})
    assert answer.status_code == 201
    document = answer.json()
    assert document["url"] == server.url + document["path"] and "secrets" in document["warning"]
    return str(document["path"])


def test_a_session_is_shared_viewed_without_a_login_and_revoked(page: Page, browser: Browser, server: Server) -> None:
    with server.http() as http:
        name = session(ask(http, CODE))
    page.goto(f"{server.url}/ui/s/{name}")
    page.locator("#shares summary").click()
    page.get_by_role("button", name="Create link").click()
    expect(page.locator("#confirm")).to_contain_text("Anyone who has the link can read this session")
    page.locator("#confirm button[value=yes]").click()
    url = page.locator("#share-body .code code").inner_text()
    with server.http() as http:
        ask(http, "said after it was shared", headers={"x-session-id": name})

    stranger = browser.new_context(viewport={"width": 390, "height": 844})
    guest = open_page(stranger, server)
    guest.goto(url)
    expect(guest.locator(".message.user")).to_have_count(1)
    expect(guest.locator(".message.model .code .k").first).to_have_text("def")
    assert guest.locator(".message.model .code .k").first.evaluate("one => getComputedStyle(one).color") != (
        guest.locator("h1").evaluate("one => getComputedStyle(one).color")
    ), "the stylesheet is allowed"
    expect(guest.locator("main")).not_to_contain_text("said after it was shared")
    assert guest.locator("form, button:visible, script, a[href*='/ui/']").count() == 0
    assert guest.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name=re.compile("Revoke link")).click()
    expect(page.locator(".share-list")).to_contain_text("Revoked")
    answer = guest.goto(url)
    assert answer is not None and answer.status == 404
    expect(guest.locator("body")).to_contain_text("expired or was revoked")
    assert guest.problems == []  # type: ignore[attr-defined]
    stranger.close()


def test_a_shared_page_is_private_to_its_link(server: Server, visitor: httpx.Client) -> None:
    with server.http() as http:
        name, other = session(ask(http, "for your eyes")), session(ask(http, "not shared"))
    path = make_share(server, name)
    answer = visitor.get(path)

    assert answer.status_code == 200 and "for your eyes" in answer.text
    assert name not in answer.text and other not in answer.text and "/ui/" not in answer.text
    headers = answer.headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "script" not in policy
    assert headers["referrer-policy"] == "no-referrer" and headers["cache-control"] == "no-store"
    assert "noindex" in headers["x-robots-tag"] and '<meta name="robots" content="noindex' in answer.text
    assert "set-cookie" not in headers
    log_text = (server.home / "logs" / "holdfast.log").read_text()
    assert "GET /share/*** 200" in log_text and path.rpartition("/")[2] not in log_text


def test_whatever_is_wrong_with_a_link_the_answer_is_the_same(server: Server, visitor: httpx.Client) -> None:
    with server.http() as http:
        name = session(ask(http, "gone soon"))
        path = make_share(server, name)
        [item] = http.get(f"/v1/sessions/{name}/shares").json()["shares"]
        assert http.delete(f"/v1/shares/{item['id']}").json()["state"] == "revoked"
        assert http.delete(f"/v1/shares/{item['id']}").status_code == 409
        trashed = session(ask(http, "thrown away"))
        in_trash = make_share(server, trashed)
        http.delete(f"/v1/sessions/{trashed}")
        assert http.post(f"/v1/sessions/{trashed}/shares", json={}).status_code in (404, 409)
        assert http.post(f"/v1/sessions/{name}/shares", json={"days": 0}).status_code == 400
    wrong = [path, in_trash, "/share/x", "/share/", "/share/%00", f"{path}x", f"{path}/image/2/0", f"{path}/export"]
    wrong += [f"{path}/image/{'9' * 5000}/0", f"{path}/image/2/{'9' * 5000}"]
    answers = [visitor.get(one) for one in (*wrong, f"{path}?page=0", f"{path}?page=x", f"{path}?page=9999999999999")]

    assert {(one.status_code, one.text) for one in answers} == {
        (404, "This link does not exist, has expired or was revoked.")
    }
    assert visitor.post(path).status_code == 404
    assert visitor.get(f"/ui/s/{name}/shares").status_code == 303, "the list of links needs a login"
    assert visitor.post(f"/v1/sessions/{name}/shares", json={}).status_code == 401


def long_session(tx: Transaction) -> str:
    found, _ = sessions.create(tx, "hf-00000000000000000000share1", SessionOpened(source="api", title="Long"), at=now())
    for number in range(400):
        turn = f"turn-{number}"
        parts = (Text(f"message {number} {ATTACKS[1]}"), *([Image(PIXEL)] if number in (0, 399) else []))
        events = [
            TurnStarted(turn_id=turn),
            UserSaid(turn_id=turn, parts=parts),
            ModelSaid(turn_id=turn, parts=(Text(ATTACKS[number % len(ATTACKS)]),)),
            TurnEnded(turn_id=turn, outcome="done"),
        ]
        log.append_unheld(tx, found.id, events, at=now())
    return found.id


def test_a_long_session_is_shared_in_pages_and_an_attack_is_text(browser: Browser, server: Server) -> None:
    [name] = stock(server.home, long_session)
    path = make_share(server, name)
    stock(server.home, lambda tx: log.append_unheld(tx, name, [UserSaid(turn_id="t", parts=(Image(PIXEL),))], at=now()))
    context = browser.new_context(bypass_csp=True)
    guest = context.new_page()
    guest.goto(server.url + path)
    expect(guest.locator(".message.user").first).to_contain_text("message 0")
    expect(guest.locator(".image img")).to_have_js_property("naturalWidth", 1)
    guest.evaluate(AXE)
    found = guest.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    assert [one["id"] for one in found] == []
    while guest.get_by_role("link", name="Later").count():
        guest.get_by_role("link", name="Later").click()
        assert guest.evaluate("window.hit") is None
        assert guest.locator("img[src=x], script, [onerror]").count() == 0

    expect(guest.locator(".message.user").last).to_contain_text("message 399")
    assert guest.request.get(f"{server.url}{path}/image/1599/1").status == 200
    assert guest.request.get(f"{server.url}{path}/image/1602/0").status == 404, "it came after the session was shared"
    context.close()


def test_what_was_undone_is_not_shared_even_if_that_was_later(server: Server, visitor: httpx.Client) -> None:
    with server.http() as http:
        name = session(ask(http, "kept words"))
        ask(http, "a slip of the tongue", headers={"x-session-id": name})
    path = make_share(server, name)
    picture = [UserSaid(turn_id="t", parts=(Image(PIXEL),))]
    [shown] = stock(server.home, lambda tx: log.append_unheld(tx, name, picture, at=now()))
    later = make_share(server, name)
    assert "a slip of the tongue" in visitor.get(path).text
    assert visitor.get(f"{later}/image/{shown.seq}/0").status_code == 200
    with server.http() as http:
        first = http.get(f"/v1/sessions/{name}/events").json()["events"]
        ends = [event["seq"] for event in first if event["kind"] == "turn_ended"]
    stock(server.home, lambda tx: log.append_unheld(tx, name, [Rewound(to_seq=ends[0], why="undo")], at=now()))

    for one in (path, later):
        text = visitor.get(one).text
        assert "kept words" in text and "a slip of the tongue" not in text
    assert visitor.get(f"{later}/image/{shown.seq}/0").status_code == 404


def test_an_undone_first_message_is_not_the_title_of_a_link(server: Server, visitor: httpx.Client) -> None:
    with server.http() as http:
        name = session(ask(http, "a password by mistake"))
    before = make_share(server, name)
    assert "<h1><bdi>a password by mistake</bdi></h1>" in visitor.get(before).text
    stock(server.home, lambda tx: log.append_unheld(tx, name, [Rewound(to_seq=1, why="undo")], at=now()))
    after = make_share(server, name)

    for one in (before, after):
        text = visitor.get(one).text
        assert "<h1><bdi>Shared session</bdi></h1>" in text and "password" not in text


def test_a_message_that_a_client_removed_is_not_shared(server: Server, visitor: httpx.Client) -> None:
    with server.http() as http:
        name = session(ask(http, "kept words"))
        ask(http, "removed words", headers={"x-session-id": name})
        events = http.get(f"/v1/sessions/{name}/events").json()["events"]
    path = make_share(server, name)
    said = [event["seq"] for event in events if event["kind"] == "user_said"]
    stock(server.home, lambda tx: log.append_unheld(tx, name, [MessageRemoved(seq=said[-1])], at=now()))

    text = visitor.get(path).text
    shown = re.findall(r'data-seq="(\d+)"', text)
    assert str(said[0]) in shown and str(said[-1]) not in shown


def test_an_exported_file_opens_without_a_server(
    page: Page, browser: Browser, server: Server, tmp_path: object
) -> None:
    with server.http() as http:
        name = session(ask(http, CODE))
    text = page.request.get(f"{server.url}/ui/s/{name}/export?format=html").text()
    context = browser.new_context(offline=True)
    reader = context.new_page()
    problems: list[str] = []
    reader.on("console", lambda one: problems.append(one.text))
    reader.on("request", lambda one: problems.append(one.url))
    reader.set_content(text)

    expect(reader.locator(".message.model .code .k").first).to_have_text("def")
    expect(reader.locator(".message.model table td").first).to_have_text("x")
    assert reader.locator("main").evaluate("one => getComputedStyle(one).maxWidth") != "none"
    assert problems == []
    assert KEY not in text
    context.close()
