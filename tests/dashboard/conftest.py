"""Servers and a browser for the tests of the dashboard; each test has a separate browser context.

One server serves all modules that need no special store. The browser is closed after each module: while it is open, this
thread can run no other event loop.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, StorageState, sync_playwright

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


@contextmanager
def serving(home: Path, **config: object) -> Iterator[Server]:
    """A server that must log no error."""
    with Server(home, **config) as running:  # type: ignore[arg-type] # see `write_config`
        yield running
        running.stop()
    refuse_errors(running)


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("dashboard") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def server(shared_server: Server) -> Server:
    """The server of a module. A module that needs a special store has a fixture of this name."""
    return shared_server


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may kill."""
    with serving(tmp_path / "home") as running:
        yield running


def refuse_errors(server: Server) -> None:
    """Requests may be rejected, but the log must contain no unexpected error."""
    log = (server.home / "logs" / "holdfast.log").read_text()
    assert [line for line in log.splitlines() if " ERROR " in line or "Traceback" in line] == []


def open_page(context: BrowserContext, server: Server) -> Page:
    """A page that records script errors, dialogs, policy violations and requests to other servers in `problems`."""
    context.set_default_timeout(LIMIT_MS)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"script: {error}"))
    page.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda one: one.url.startswith(server.url) or problems.append(f"foreign request: {one.url}"))
    page.on(
        "console",
        lambda one: "Content Security Policy" in one.text and problems.append(f"policy: {one.text}"),
    )
    page.problems = problems  # type: ignore[attr-defined] # read when the test has ended
    return page


def wait_until(page: Page, condition: str) -> None:
    """Wait for a JavaScript expression. Unlike `wait_for_function`, this evaluates nothing that the page's policy forbids."""
    end = time.monotonic() + LIMIT_MS / 1000
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"never true: {condition}"
        page.wait_for_timeout(50)


def log_in(context: BrowserContext, server: Server) -> Page:
    """A page of a context that has logged in."""
    page = open_page(context, server)
    page.goto(f"{server.url}/ui/login")
    page.fill("#key", KEY)
    page.click("text=Log in")
    page.wait_for_url(f"{server.url}/")
    return page


@pytest.fixture(scope="module")
def login(browser: Browser, server: Server) -> StorageState:
    """The cookie of one login, for all tests of a module that do not log out."""
    context = browser.new_context()
    log_in(context, server)
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def page(browser: Browser, server: Server, login: StorageState) -> Iterator[Page]:
    context = browser.new_context(storage_state=login)
    opened = open_page(context, server)
    yield opened
    assert opened.problems == []  # type: ignore[attr-defined]
    context.close()


@pytest.fixture
def own_page(browser: Browser, own: Server) -> Iterator[Page]:
    context = browser.new_context()
    opened = log_in(context, own)
    yield opened
    assert opened.problems == []  # type: ignore[attr-defined]
    context.close()
