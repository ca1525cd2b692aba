"""Every action on a session with the keyboard alone: on a wide screen in light mode, and on a phone in dark mode."""

import re

import pytest
from playwright.sync_api import Browser, Locator, Page, StorageState, expect

from tests.api.serving import Server, ask, session
from tests.dashboard.conftest import open_page

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
expect.set_options(timeout=30_000)
MAX_TABS = 150


def tab_to(page: Page, target: Locator) -> None:
    """Move to an element with the Tab key alone."""
    expect(target).to_be_visible()
    for _ in range(MAX_TABS):
        page.keyboard.press("Tab")
        if target.evaluate("one => one === document.activeElement"):
            return
    raise AssertionError(f"{target} cannot be reached with Tab")


class KeyboardUser:
    """Somebody without a mouse."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, name: str, *, confirm: bool = False) -> None:
        """Press a button of the session's actions, which a phone shows as a sheet."""
        target = self.page.get_by_role("button", name=name, exact=True)
        self.open_actions()
        tab_to(self.page, target)
        self.page.keyboard.press("Enter")
        if confirm:
            self.confirm()

    def confirm(self) -> None:
        dialog = self.page.locator("#confirm")
        expect(dialog).to_be_visible()
        tab_to(self.page, dialog.get_by_role("button", name="Confirm"))
        self.page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()

    def open_actions(self) -> None:
        link = self.page.get_by_role("link", name="Actions")
        if link.is_visible() and not self.page.locator("#session-actions").is_visible():
            tab_to(self.page, link)
            self.page.keyboard.press("Enter")

    def type_into(self, selector: str, text: str) -> None:
        self.open_actions()
        tab_to(self.page, self.page.locator(selector))
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_every_action_on_a_session_needs_no_mouse(
    browser: Browser, server: Server, login: StorageState, width: int, scheme: str
) -> None:
    with server.http() as http:
        name = session(ask(http, f"without a mouse {width}"))
    context = browser.new_context(storage_state=login, viewport={"width": width, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type] # one of two
    page = open_page(context, server)
    page.goto(f"{server.url}/?q=%22mouse+{width}%22")
    expect(page.locator(".row")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"/ui/s/{name}"))
    page.goto(f"{server.url}/ui/s/{name}")
    user = KeyboardUser(page)
    pill = page.locator("#head .pill")

    page.keyboard.press("n")
    page.keyboard.type("one more")
    page.keyboard.press("Enter")
    expect(page.locator(".message.model:not(.drafting)")).to_have_count(2)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.locator(".item .timestamp").first).to_be_focused()
    user.type_into("#title", "Renamed with keys")
    page.keyboard.press("Enter")
    expect(page.locator("#head h1")).to_have_text("Renamed with keys")
    user.press("Pin")
    expect(page.locator("#head .tag", has_text="pinned")).to_have_count(1)
    user.press("Unpin")
    with page.expect_navigation():
        user.press("Undo turn", confirm=True)
    expect(page.locator(".message.user.undone")).to_have_count(1)
    user.press("End", confirm=True)
    expect(pill).to_have_text("ended")
    user.press("Reopen")
    expect(pill).to_have_text("idle")
    user.open_actions()
    tab_to(page, page.locator("#shares summary"))
    page.keyboard.press("Enter")
    user.press("Create link", confirm=True)
    expect(page.locator("#share-body .code code")).to_contain_text("/share/")
    tab_to(page, page.get_by_role("button", name=re.compile("Revoke link")))
    page.keyboard.press("Enter")
    expect(page.locator(".share-list")).to_contain_text("Revoked")
    with page.expect_navigation():
        user.press("Move to trash", confirm=True)
    expect(page.locator("#head .tag", has_text="in trash")).to_have_count(1)
    with page.expect_navigation():
        user.press("Restore")
    expect(page.locator("#composer")).to_have_count(1)
    user.press("Fork")
    page.wait_for_url(lambda url: name not in url)

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.problems == []  # type: ignore[attr-defined]
    context.close()
