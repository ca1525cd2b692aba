"""The page of remembered facts: search, add, correct and forget, with text that attacks the page."""

import re

from playwright.sync_api import Page, expect

from holdfast.model.memory.fact import MODEL, NewFact
from holdfast.model.memory.owner import MemoryPlace
from holdfast.store.database import Transaction
from holdfast.store.repos import memory
from tests.api.serving import Server
from tests.dashboard.test_pages import ATTACK, stock


def save(tx: Transaction) -> None:
    new = NewFact(
        place=MemoryPlace("telegram:1"),
        scope="user",
        text=f"Planted {ATTACK}",
        author=MODEL,
        session_id="hf-1",
        turn_id="turn-1",
        call_id="call-1",
        sources=("fetch_url",),
    )
    memory.add(tx, new, seq=3, at=1)


def test_facts_are_added_found_corrected_and_forgotten(page: Page, server: Server) -> None:
    stock(server.home, save)
    page.goto(f"{server.url}/ui/memory")
    planted = page.locator(".record", has_text="Planted")
    expect(planted).to_contain_text(ATTACK)
    expect(planted).to_contain_text("unverified")
    expect(planted).to_contain_text("user of telegram:1")
    expect(planted.get_by_role("link")).to_have_attribute("href", "/ui/s/hf-1")

    page.get_by_text("Add a fact about the local user").click()
    page.locator("form[action='/ui/memory/add'] textarea").fill("The user likes 乌龙茶")
    page.get_by_role("button", name="Add").click()
    added = page.locator(".record", has_text="乌龙茶")
    expect(added).to_contain_text("by the dashboard")

    added.get_by_text("Correct").click()
    added.locator("textarea").fill("The user likes 绿茶")
    added.get_by_role("button", name="Save").click()
    expect(page.locator(".record", has_text="绿茶")).to_be_visible()
    expect(page.locator(".record", has_text="乌龙茶")).to_have_count(0)

    page.get_by_label("Words to search for").fill("绿茶")
    page.get_by_role("button", name="Search").click()
    expect(page).to_have_url(re.compile("q="))
    expect(page.locator(".record")).to_have_count(1)

    page.get_by_role("button", name="Forget").click()
    page.get_by_role("button", name="Confirm").click()
    expect(page.locator("main")).to_contain_text("No matching facts")
    assert page.evaluate("window.hit") is None
