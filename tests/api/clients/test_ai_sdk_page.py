"""The example page with `useChat` in a browser: reloads and a killed server lose nothing."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.api.ai_sdk_client import INSTALLED, NODE, ROOT
from tests.api.serving import BRISKLY, KEY, SLOWLY, Server
from tests.dashboard.conftest import CHROMIUM, FLAGS

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
EXAMPLE = ROOT / "examples" / "ai-sdk"
LIMIT = 60_000


@contextmanager
def example(server: Server) -> Iterator[str]:
    """The address of the example's server, which runs in front of this one."""
    assert (INSTALLED / "node_modules").is_dir(), "the clients are not installed: make .venv/ready-clients"
    environment = {"HOLDFAST_URL": server.url, "HOLDFAST_API_KEY": KEY, "PORT": "0", "PATH": os.environ["PATH"]}
    process = subprocess.Popen(
        [str(NODE), "server.mjs"],
        cwd=_installed(server.home.parent),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("Open ").strip()
    finally:
        process.kill()
        process.communicate()


def _installed(folder: Path) -> Path:
    """A copy of the example with its dependencies."""
    copy = folder / "example"
    if not copy.exists():
        shutil.copytree(EXAMPLE, copy)
        (copy / "node_modules").symlink_to(INSTALLED / "node_modules")
    return copy


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser.new_context().new_page()
        browser.close()


def send(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()


def test_the_page_shows_the_whole_reply_after_a_reload_and_after_a_killed_server(tmp_path: Path, page: Page) -> None:
    with Server(tmp_path / "home", alone="slow") as server, example(server) as url:
        page.goto(url)
        send(page, "hello")
        reply = page.locator("article[data-role=assistant]")
        expect(reply).to_contain_text("word9", timeout=LIMIT)
        page.reload()
        expect(page.locator("small")).to_have_text("streaming", timeout=LIMIT)
        expect(reply).to_contain_text("word20", timeout=LIMIT)
        server.kill()
        expect(page.get_by_role("alert")).to_contain_text("connecting again", timeout=LIMIT)
        server.restart()
        expect(reply).to_have_text(f"Agent{SLOWLY}", timeout=LIMIT)
        expect(page.locator("article")).to_have_count(2)
        page.reload()
        expect(reply).to_have_text(f"Agent{SLOWLY}", timeout=LIMIT)
        assert KEY not in page.content()


def test_the_page_stops_regenerates_and_asks(tmp_path: Path, page: Page) -> None:
    with Server(tmp_path / "home", alone="asks", approval_seconds=120) as server, example(server) as url:
        page.goto(url)
        send(page, "clean up")
        expect(page.locator(".asked")).to_contain_text("rm -rf gone", timeout=LIMIT)
        page.reload()
        page.get_by_role("button", name="Deny").click(timeout=LIMIT)
        expect(page.locator("article[data-role=assistant]")).to_contain_text("Asked.", timeout=LIMIT)
        expect(page.locator("summary")).to_contain_text("terminal: denied")


def test_two_tabs_follow_one_reply(tmp_path: Path, page: Page) -> None:
    with Server(tmp_path / "home", alone="brisk") as server, example(server) as url:
        page.goto(url)
        send(page, "hello")
        expect(page.locator("article[data-role=assistant]")).to_contain_text("piece1", timeout=LIMIT)
        other = page.context.new_page()
        other.goto(page.url)
        for tab in (page, other):
            expect(tab.locator("article[data-role=assistant]")).to_have_text(f"Agent{BRISKLY}", timeout=LIMIT)
        page.get_by_role("button", name="Regenerate").click()
        expect(page.locator("small")).to_have_text("ready", timeout=LIMIT)
        expect(page.locator("article[data-role=assistant]")).to_have_text(f"Agent{BRISKLY}", timeout=LIMIT)
        expect(page.locator("article")).to_have_count(2)
