"""The event stream that all pages of a browser share, and that ends with the login."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from queue import Queue
from threading import Thread

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.serving import KEY, Server, ask, session
from tests.crash.programs import wait_until
from tests.dashboard.conftest import log_in

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
expect.set_options(timeout=30_000)
WINDOWS = 7
"""More than the six connections that a browser opens to one server."""


def count_ended_streams(server: Server) -> int:
    """The number of streams that have ended."""
    return (server.home / "logs" / "holdfast.log").read_text().count("GET /ui/live")


def login_cookies(server: Server) -> dict[str, str]:
    with httpx.Client(base_url=server.url, verify=False) as client:
        client.post("/ui/login", data={"key": KEY})
        return dict(client.cookies.items())


def test_more_windows_than_browser_connections_are_all_live(browser: Browser, server: Server) -> None:
    with server.http() as http:
        names = [session(ask(http, f"window {n}")) for n in range(WINDOWS)]
    context = browser.new_context()
    first = log_in(context, server)
    pages = [context.new_page() for _ in names]
    for page, name in zip(pages, names, strict=True):
        page.goto(f"{server.url}/ui/s/{name}")
    for name in names:
        with server.http() as http:
            ask(http, f"news of {name}", headers={"x-session-id": name})

    for page, name in zip(pages, names, strict=True):
        expect(page.locator(".message.user", has_text=f"news of {name}")).to_have_count(1)
        expect(page.locator(".message.user")).to_have_count(2)
        expect(page.locator("#connection")).to_have_text("Live")
    expect(first.locator(f"#row-{names[-1]}")).to_contain_text("Messages 4")
    context.close()


def test_two_windows_of_one_session_get_the_same_updates(browser: Browser, server: Server) -> None:
    with server.http() as http:
        name = session(ask(http, "hello"))
    context = browser.new_context()
    pages = [log_in(context, server), context.new_page()]
    for page in pages:
        page.goto(f"{server.url}/ui/s/{name}")
    pages[0].fill("#message-text", "said in one of them")
    pages[0].press("#message-text", "Enter")

    for page in pages:
        expect(page.locator(".message.user", has_text="said in one of them")).to_have_count(1)
        expect(page.locator(".message.model:not(.drafting)")).to_have_count(2)
    pages[0].close()
    with server.http() as http:
        ask(http, "said after one was closed", headers={"x-session-id": name})
    expect(pages[1].locator(".message.user", has_text="said after one was closed")).to_have_count(1)
    context.close()


def test_without_a_shared_worker_each_page_has_its_own_stream(browser: Browser, server: Server) -> None:
    context = browser.new_context()
    context.add_init_script("window.SharedWorker = function () { throw new Error('refused') }")
    page = log_in(context, server)
    with server.http() as http:
        name = session(ask(http, "hello"))
        page.goto(f"{server.url}/ui/s/{name}")
        ask(http, "and again", headers={"x-session-id": name})

    expect(page.locator(".message.user", has_text="and again")).to_have_count(1)
    assert page.problems == []  # type: ignore[attr-defined]
    context.close()


def test_a_hidden_page_releases_its_stream_and_reconnects_when_shown(page: Page, server: Server) -> None:
    with server.http() as http:
        name = session(ask(http, "hello"))
    page.goto(f"{server.url}/ui/s/{name}")
    expect(page.locator("#connection")).to_have_text("Live")
    before = count_ended_streams(server)
    turn = "Object.defineProperty(document, 'hidden', { value: HIDDEN, configurable: true });"
    turn += "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(turn.replace("HIDDEN", "true"))
    wait_until(lambda: count_ended_streams(server) > before, "the stream to be closed")
    with server.http() as http:
        ask(http, "while nobody looked", headers={"x-session-id": name})
    page.evaluate(turn.replace("HIDDEN", "false"))

    expect(page.locator(".message.user", has_text="while nobody looked")).to_have_count(1)


def test_a_silent_connection_is_replaced(browser: Browser, own: Server) -> None:
    context = browser.new_context()
    context.add_init_script("delete window.SharedWorker")  # so that the stream uses the page's clock
    page = log_in(context, own)
    with own.http() as http:
        name = session(ask(http, "hello"))
    page.clock.install()
    page.goto(f"{own.url}/ui/s/{name}")
    expect(page.locator("#connection")).to_have_text("Live")
    own.process.signal(signal.SIGSTOP)
    try:
        page.clock.fast_forward(40_000)
        expect(page.locator("#connection")).to_have_text("Reconnecting")
    finally:
        own.process.signal(signal.SIGCONT)
    with own.http() as http:
        ask(http, "said meanwhile", headers={"x-session-id": name})
    page.clock.run_for(20_000)

    expect(page.locator(".message.user", has_text="said meanwhile")).to_have_count(1)
    expect(page.locator("#connection")).to_have_text("Live")
    context.close()


def test_a_logout_ends_the_stream(server: Server) -> None:
    cookies = login_cookies(server)
    with server.http() as http:
        name = session(ask(http, "hello"))
    received: Queue[str] = Queue()

    def listen() -> None:
        with httpx.stream("GET", f"{server.url}/ui/live?s={name}:0", cookies=cookies, timeout=60) as answer:
            for line in answer.iter_lines():
                received.put(line)
        received.put("closed")

    listener = Thread(target=listen)
    listener.start()
    assert received.get(timeout=30)
    with httpx.Client(base_url=server.url, cookies=cookies, verify=False) as client:
        found = re.search(r'name="csrf" content="(\w+)"', client.get("/").text)
        assert found is not None
        assert client.post("/ui/logout", data={"csrf": found[1]}).status_code == 303
    with server.http() as http:
        ask(http, "a secret", headers={"x-session-id": name})
    listener.join(30)

    lines = list(received.queue)
    assert lines[-1] == "closed"
    assert not [line for line in lines if "a secret" in line]


def test_a_logout_sends_other_open_pages_to_the_login(browser: Browser, server: Server) -> None:
    context = browser.new_context()
    page = log_in(context, server)
    other = context.new_page()
    other.goto(f"{server.url}/ui/health")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(re.compile("/ui/login"))
    with server.http() as http:
        ask(http, "something happens")

    other.wait_for_url(re.compile(r"/ui/login\?next=%2Fui%2Fhealth"))
    context.close()


@pytest.mark.parametrize(
    "asked", ["s=x", "s=x:y", "s=:1", "s=x:" + "9" * 20, "&".join(f"s=x{n}:1" for n in range(201))]
)
def test_invalid_subscriptions_are_rejected(server: Server, asked: str) -> None:
    assert httpx.get(f"{server.url}/ui/live?{asked}", cookies=login_cookies(server), verify=False).status_code == 400


def test_an_unknown_session_does_not_stop_the_other_updates(server: Server) -> None:
    with server.http() as http:
        name = session(ask(http, "hello"))
    asked = f"{server.url}/ui/live?s=hf-nobody:0&s={name}:0"
    with httpx.stream("GET", asked, cookies=login_cookies(server), timeout=60) as answer:
        updates: dict[str, set[str]] = {}
        for line in answer.iter_lines():
            if line.startswith("data: "):
                one = json.loads(line[6:])
                updates.setdefault(one.get("of", ""), set()).add(one["name"])
            if "items" in updates.get(name, ()) and "hf-nobody" in updates:
                break

    assert updates["hf-nobody"] == {"gone"}


@pytest.mark.soak
def test_five_hundred_streams_get_updates_and_the_server_stops_at_once(own: Server) -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    cookies = login_cookies(own)
    with ExitStack() as stack, own.http() as http:
        name = session(ask(http, "hello"))
        many = stack.enter_context(httpx.Client(base_url=own.url, limits=limits, cookies=cookies, timeout=60))
        paths = ["/ui/live?pulse=1", f"/ui/live?s={name}:0"]
        answers = [stack.enter_context(many.stream("GET", paths[n % 2])) for n in range(500)]
        lines = [one.iter_lines() for one in answers]
        ask(http, "and now all of you", headers={"x-session-id": name})
        for n, one in enumerate(lines):
            assert next(line for line in one if "and now all of you" in line) if n % 2 else _position(one) > 0
        with httpx.Client(base_url=own.url, cookies=cookies) as client:
            assert client.get("/").status_code == 200

        assert own.stop() == 0


def _position(lines: Iterator[str]) -> int:
    """The second nonzero position: the store has changed since the stream began."""
    data = (json.loads(line[6:]).get("data") for line in lines if line.startswith("data: "))
    places = (place for place in data if place)
    return max(int(next(places)), int(next(places)))
