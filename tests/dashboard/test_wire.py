"""The one stream that all pages of a browser share, and that ends with the visit."""

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
from tests.dashboard.conftest import enter

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
expect.set_options(timeout=30_000)
WINDOWS = 10
"""More than the six connections that a browser opens to one server."""


def streams(server: Server) -> int:
    """How many streams have ended so far."""
    return (server.home / "logs" / "holdfast.log").read_text().count("GET /ui/live")


def logged_in(server: Server) -> dict[str, str]:
    with httpx.Client(base_url=server.url) as client:
        client.post("/ui/login", data={"key": KEY})
        return dict(client.cookies.items())


def test_more_windows_than_a_browser_has_connections_are_all_live(browser: Browser, server: Server) -> None:
    with server.http() as http:
        names = [session(ask(http, f"window {n}")) for n in range(WINDOWS)]
    context = browser.new_context()
    first = enter(context, server)
    pages = [context.new_page() for _ in names]
    for page, name in zip(pages, names, strict=True):
        page.goto(f"{server.url}/ui/s/{name}")
    for name in names:
        with server.http() as http:
            ask(http, f"news of {name}", headers={"x-session-id": name})

    for page, name in zip(pages, names, strict=True):
        expect(page.locator(".said.user", has_text=f"news of {name}")).to_have_count(1)
        expect(page.locator(".said.user")).to_have_count(2)
        expect(page.locator("#link")).to_have_text("Live")
    expect(first.locator(f"#row-{names[-1]}")).to_contain_text("Messages 4")
    context.close()


def test_two_windows_of_one_session_hear_the_same(browser: Browser, server: Server) -> None:
    with server.http() as http:
        name = session(ask(http, "hello"))
    context = browser.new_context()
    pages = [enter(context, server), context.new_page()]
    for page in pages:
        page.goto(f"{server.url}/ui/s/{name}")
    pages[0].fill("#words", "said in one of them")
    pages[0].press("#words", "Enter")

    for page in pages:
        expect(page.locator(".said.user", has_text="said in one of them")).to_have_count(1)
        expect(page.locator(".said.model:not(.drafting)")).to_have_count(2)
    pages[0].close()
    with server.http() as http:
        ask(http, "said after one was closed", headers={"x-session-id": name})
    expect(pages[1].locator(".said.user", has_text="said after one was closed")).to_have_count(1)
    context.close()


def test_without_a_worker_to_share_each_page_has_a_stream_of_its_own(browser: Browser, server: Server) -> None:
    context = browser.new_context()
    context.add_init_script("window.SharedWorker = function () { throw new Error('refused') }")
    page = enter(context, server)
    with server.http() as http:
        name = session(ask(http, "hello"))
        page.goto(f"{server.url}/ui/s/{name}")
        ask(http, "and again", headers={"x-session-id": name})

    expect(page.locator(".said.user", has_text="and again")).to_have_count(1)
    assert page.troubles == []  # type: ignore[attr-defined]
    context.close()


def test_a_hidden_page_lets_go_of_its_stream_and_takes_it_up_again(page: Page, server: Server) -> None:
    with server.http() as http:
        name = session(ask(http, "hello"))
    page.goto(f"{server.url}/ui/s/{name}")
    expect(page.locator("#link")).to_have_text("Live")
    before = streams(server)
    turn = "Object.defineProperty(document, 'hidden', { value: HIDDEN, configurable: true });"
    turn += "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(turn.replace("HIDDEN", "true"))
    wait_until(lambda: streams(server) > before, "the stream to be closed")
    with server.http() as http:
        ask(http, "while nobody looked", headers={"x-session-id": name})
    page.evaluate(turn.replace("HIDDEN", "false"))

    expect(page.locator(".said.user", has_text="while nobody looked")).to_have_count(1)


def test_a_connection_that_is_silent_is_given_up_and_made_anew(browser: Browser, own: Server) -> None:
    context = browser.new_context()
    context.add_init_script("delete window.SharedWorker")  # so that the clock of the page is the clock of the wire
    page = enter(context, own)
    with own.http() as http:
        name = session(ask(http, "hello"))
    page.clock.install()
    page.goto(f"{own.url}/ui/s/{name}")
    expect(page.locator("#link")).to_have_text("Live")
    own.process.signal(signal.SIGSTOP)
    try:
        page.clock.fast_forward(40_000)
        expect(page.locator("#link")).to_have_text("Reconnecting")
    finally:
        own.process.signal(signal.SIGCONT)
    with own.http() as http:
        ask(http, "said meanwhile", headers={"x-session-id": name})
    page.clock.run_for(20_000)

    expect(page.locator(".said.user", has_text="said meanwhile")).to_have_count(1)
    expect(page.locator("#link")).to_have_text("Live")
    context.close()


def test_who_has_logged_out_hears_no_more(server: Server) -> None:
    cookies = logged_in(server)
    with server.http() as http:
        name = session(ask(http, "hello"))
    heard: Queue[str] = Queue()

    def listen() -> None:
        with httpx.stream("GET", f"{server.url}/ui/live?s={name}:0", cookies=cookies, timeout=60) as answer:
            for line in answer.iter_lines():
                heard.put(line)
        heard.put("the end")

    listener = Thread(target=listen)
    listener.start()
    assert heard.get(timeout=30)
    with httpx.Client(base_url=server.url, cookies=cookies) as client:
        found = re.search(r'name="csrf" content="(\w+)"', client.get("/").text)
        assert found is not None
        assert client.post("/ui/logout", data={"csrf": found[1]}).status_code == 303
    with server.http() as http:
        ask(http, "a secret", headers={"x-session-id": name})
    listener.join(30)

    lines = list(heard.queue)
    assert lines[-1] == "the end"
    assert not [line for line in lines if "a secret" in line]


def test_a_page_that_is_open_at_a_logout_goes_to_the_door(browser: Browser, server: Server) -> None:
    context = browser.new_context()
    page = enter(context, server)
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
def test_what_cannot_be_watched_is_refused(server: Server, asked: str) -> None:
    assert httpx.get(f"{server.url}/ui/live?{asked}", cookies=logged_in(server)).status_code == 400


def test_a_session_that_is_not_there_does_not_silence_the_others(server: Server) -> None:
    with server.http() as http:
        name = session(ask(http, "hello"))
    asked = f"{server.url}/ui/live?s=hf-nobody:0&s={name}:0"
    with httpx.stream("GET", asked, cookies=logged_in(server), timeout=60) as answer:
        told: dict[str, set[str]] = {}
        for line in answer.iter_lines():
            if line.startswith("data: "):
                one = json.loads(line[6:])
                told.setdefault(one.get("of", ""), set()).add(one["name"])
            if "items" in told.get(name, ()) and "hf-nobody" in told:
                break

    assert told["hf-nobody"] == {"gone"}


def test_five_hundred_streams_hear_of_a_change_and_the_server_leaves_at_once(own: Server) -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    cookies = logged_in(own)
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
    """The second position that is no zero: something has happened since the stream began."""
    heard = (json.loads(line[6:]).get("data") for line in lines if line.startswith("data: "))
    places = (place for place in heard if place)
    return max(int(next(places)), int(next(places)))
