"""One server and one browser for the tests of a module; each test has a browser context of its own.

The browser is no longer open when the next module begins: while it is, this thread can run no other event loop.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, sync_playwright

from tests.api.serving import KEY, Server

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
LIMIT_MS = 30_000


@pytest.fixture(scope="module")
def playing() -> Iterator[Playwright]:
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="module")
def browser(playing: Playwright) -> Iterator[Browser]:
    opened = playing.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("dashboard") / "home") as running:
        yield running
        running.stop()
    refuse_errors(running)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may kill."""
    with Server(tmp_path / "home") as running:
        yield running
        running.stop()
    refuse_errors(running)


def refuse_errors(server: Server) -> None:
    """A page may be refused, but nothing may have gone wrong that nobody thought of."""
    log = (server.home / "logs" / "holdfast.log").read_text()
    assert [line for line in log.splitlines() if " ERROR " in line or "Traceback" in line] == []


def enter(context: BrowserContext, server: Server) -> Page:
    """A page of somebody who has logged in. What a page complains about, or asks of strangers, fails the test at its end."""
    context.set_default_timeout(LIMIT_MS)
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(f"script: {error}"))
    page.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda one: one.url.startswith(server.url) or troubles.append(f"asked a stranger: {one.url}"))
    page.on(
        "console",
        lambda one: "Content Security Policy" in one.text and troubles.append(f"policy: {one.text}"),
    )
    page.troubles = troubles  # type: ignore[attr-defined] # read when the test has ended
    page.goto(f"{server.url}/ui/login")
    page.fill("#key", KEY)
    page.click("text=Log in")
    page.wait_for_url(f"{server.url}/")
    return page


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    context = browser.new_context()
    opened = enter(context, server)
    yield opened
    assert opened.troubles == []  # type: ignore[attr-defined]
    context.close()


@pytest.fixture
def own_page(browser: Browser, own: Server) -> Iterator[Page]:
    context = browser.new_context()
    opened = enter(context, own)
    yield opened
    assert opened.troubles == []  # type: ignore[attr-defined]
    context.close()
