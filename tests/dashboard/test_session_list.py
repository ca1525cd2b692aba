"""The list of sessions: its filters, its order, and actions on several sessions."""

import io
import json
import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from bench import population
from holdfast.model.event import ModelSaid, Rewound, SessionOpened, TurnEnded, TurnStarted, Usage, UserSaid
from holdfast.model.message import Text
from holdfast.model.times import DAY, moment
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions
from tests.api.serving import Server, ask, session
from tests.dashboard.store_writer import now, stock

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
expect.set_options(timeout=30_000)
NAMES = ("alpha", "beta", "gamma", "delta")
FIRST = 61_000
CHANNEL = "matrix:sorted"


def fill(tx: Transaction) -> None:
    """Four sessions that differ in everything that can be filtered and sorted; no sweep ends one of a chat as idle."""
    for number, title in enumerate(NAMES):
        session_id, at = population.session_id(FIRST + number), now() - (10 + number) * DAY
        folder = f"/srv/100%_{title}/ünder 😀" if number else None
        fact = SessionOpened(
            source="chat", model=f"scripted:model-{number % 2}", title=title, workdir=folder, channel=CHANNEL
        )
        sessions.create(tx, session_id, fact, at=at)
        spent = Usage(tokens_in=100 * number, cost=float(number))
        said = [ModelSaid(turn_id="t", parts=(Text("ok"),), usage=spent) for _ in range(4 - number)]
        outcome = "failed" if number in (1, 2) else "done"
        end = TurnEnded(turn_id="t", outcome=outcome, reason='the words "outcome":"failed"')  # type: ignore[arg-type] # one of two
        undone = [Rewound(to_seq=1)] if number == 2 else []
        turn = [TurnStarted(turn_id="t"), UserSaid(turn_id="t", parts=(Text("go"),)), *said, end, *undone]
        log.append_unheld(tx, session_id, turn, at=at)


@pytest.fixture(scope="module")
def filled(server: Server) -> Server:
    stock(server.home, fill)
    return server


def day(ago: int) -> str:
    return f"{moment(now() - ago * DAY):%Y-%m-%d}"


@pytest.mark.parametrize(
    ("query", "titles"),
    [
        ("model=scripted:model-1", ["beta", "delta"]),
        ("folder=100%25_b", ["beta"]),
        ("folder=/%C3%BCnder+%F0%9F%98%80", ["beta", "gamma", "delta"]),
        ("folder=100x", []),
        ("state=failed", ["beta"]),
        ("state=waiting&source=chat&model=scripted:model-0", ["alpha", "gamma"]),
        ("sort=cost&until=DAY9", ["gamma", "delta", "beta", "alpha"]),
        ("sort=messages&until=DAY9", ["alpha", "beta", "gamma", "delta"]),
        ("sort=title&until=DAY9", ["alpha", "beta", "delta", "gamma"]),
        ("sort=tokens&until=DAY9", ["gamma", "delta", "beta", "alpha"]),
        ("since=DAY12&until=DAY11", ["beta", "gamma"]),
        ("cost=3.5", ["gamma"]),
        ("cost=3&q=ok&model=scripted:model-0", ["gamma"]),
        ("q=ok&folder=delta", ["delta"]),
        ("q=ok&state=failed", ["beta"]),
    ],
)
def test_filters_and_order_are_in_the_address(page: Page, filled: Server, query: str, titles: list[str]) -> None:
    query = re.sub(r"DAY(\d+)", lambda found: day(int(found[1])), query)
    page.goto(f"{filled.url}/?channel={CHANNEL}&{query}")

    expect(page.locator(".row .title")).to_have_text(titles)


def test_the_filters_are_used_with_the_keyboard_and_survive_a_reload(page: Page, filled: Server) -> None:
    page.goto(f"{filled.url}/?channel={CHANNEL}")
    page.locator(".more-filters summary").press("Enter")
    page.get_by_label("Cost at least").fill("3")
    expect(page.locator(".row .title")).to_have_text(["beta", "gamma", "delta"])
    page.get_by_label("Sort by").select_option("cost")
    expect(page.locator(".row .title")).to_have_text(["gamma", "delta", "beta"])
    expect(page.locator(".row .cost").first).to_contain_text("$4.00")
    assert "cost=3" in page.url and "sort=cost" in page.url
    page.reload()
    expect(page.locator(".row .title")).to_have_text(["gamma", "delta", "beta"])
    page.get_by_role("link", name="Messages").click()
    expect(page.locator(".row .title")).to_have_text(["beta", "gamma", "delta"])
    page.get_by_role("link", name="Clear filters").click()

    expect(page).to_have_url(f"{filled.url}/")


def test_the_models_to_filter_by_are_read_only_when_the_filters_are_opened(page: Page, filled: Server) -> None:
    """They need a scan of all sessions; the list of a large store must not wait for it."""
    page.goto(f"{filled.url}/?channel={CHANNEL}")
    options = page.locator("#model-filter option")
    expect(options).to_have_text(["All models"])
    page.locator(".more-filters summary").click()
    expect(options.filter(has_text="scripted:model-1")).to_have_count(1)
    page.locator("#model-filter").select_option("scripted:model-1")
    expect(page.locator(".row .title")).to_have_text(["beta", "delta"])
    page.reload()

    expect(page.locator("#model-filter")).to_have_value("scripted:model-1")
    expect(options.filter(has_text="scripted:model-0")).to_have_count(1)


@pytest.mark.parametrize("query", ["since=soon", "until=2026-99-99", "cost=much", "cost=nan", "cost=inf", "sort=luck"])
def test_a_senseless_filter_is_an_error_page(page: Page, filled: Server, query: str) -> None:
    answer = page.goto(f"{filled.url}/?{query}")

    assert answer is not None and answer.status == 400
    page.goto(f"{filled.url}/?sort=title&cursor=x")
    expect(page.locator("main")).to_contain_text("Invalid cursor")


def test_a_sorted_list_has_pages(page: Page, server: Server) -> None:
    def many(tx: Transaction) -> None:
        for number in range(120):
            fact = SessionOpened(source="batch", title=f"row {number:03}")
            sessions.create(tx, population.session_id(62_000 + number), fact, at=now() - 20 * DAY)

    stock(server.home, many)
    page.goto(f"{server.url}/?sort=title&source=batch")
    expect(page.locator(".row")).to_have_count(50)
    page.locator(".more").scroll_into_view_if_needed()
    expect(page.locator(".row")).to_have_count(100)
    page.locator(".more").scroll_into_view_if_needed()

    expect(page.locator(".row .title")).to_have_text([f"row {number:03}" for number in range(120)])


@pytest.mark.parametrize("width", [1440, 390])
def test_several_sessions_are_ended_trashed_and_restored(page: Page, server: Server, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    word = f"chosen{width}"
    with server.http() as http:
        ids = [session(ask(http, f"{word} {number}")) for number in range(3)]
    address = f"{server.url}/?q={word}"
    page.goto(address)
    expect(page.locator(".row")).to_have_count(3)
    expect(page.locator("#bulk")).to_be_hidden()
    for one in ids[:2]:
        page.locator(f"#row-{one} .pick-row input").check()
    expect(page.locator("#bulk-count")).to_have_text("2 selected")
    page.locator("#bulk").get_by_role("button", name="End").click()
    page.locator("#confirm button[value=yes]").click()
    page.wait_for_url(f"{server.url}/")
    page.goto(address)
    expect(page.locator(f"#row-{ids[0]} .state")).to_contain_text("ended")
    expect(page.locator(f"#row-{ids[2]} .state")).to_have_text("idle")
    page.locator(f"#row-{ids[0]} .pick-row input").check()
    expect(page.locator("#bulk").get_by_role("button", name="End")).to_be_hidden()
    page.locator(f"#row-{ids[1]} .pick-row input").check()
    page.locator("#bulk").get_by_role("button", name="Move to trash").click()
    page.locator("#confirm button[value=yes]").click()
    page.wait_for_url(f"{server.url}/")
    page.goto(address)
    expect(page.locator(".row")).to_have_count(1)
    page.goto(f"{address}&trash=1")
    expect(page.locator(".row")).to_have_count(2)
    page.locator(f"#row-{ids[0]} .pick-row input").check()
    page.locator("#bulk").get_by_role("button", name="Restore").click()
    page.wait_for_url(f"{server.url}/")
    page.goto(address)

    expect(page.locator(".row")).to_have_count(2)


def test_selected_sessions_are_exported_as_one_file(page: Page, server: Server) -> None:
    with server.http() as http:
        ids = [session(ask(http, f"takeaway {number}")) for number in range(2)]
    for form, holds in (("jsonl", '"format":"holdfast-log"'), ("html", "<!doctype html>"), ("md", "# takeaway")):
        page.goto(f"{server.url}/?q=takeaway")
        expect(page.locator(".row")).to_have_count(2)
        page.locator(".row .title").first.focus()
        page.keyboard.press("x")
        page.keyboard.press("j")
        page.keyboard.press("x")
        page.locator("#bulk-format").select_option(form)
        with page.expect_download() as started:
            page.locator("#bulk").get_by_role("button", name="Export").click()
        archive = zipfile.ZipFile(io.BytesIO(Path(started.value.path()).read_bytes()))
        assert sorted(archive.namelist()) == sorted(f"{one}.{form}" for one in ids)
        assert all(holds in archive.read(name).decode() for name in archive.namelist())


def test_a_session_that_does_not_allow_an_action_is_left_as_it_is_and_named(page: Page, server: Server) -> None:
    with server.http() as http:
        free = session(ask(http, "free to end"))
        asked = {"model": server.model("silent"), "messages": [{"role": "user", "content": "busy"}], "stream": True}
        with http.stream("POST", "/v1/chat/completions", json=asked) as stream:
            running = stream.headers["x-session-id"]
            page.goto(f"{server.url}/")
            expect(page.locator(f"#row-{running} .state")).to_have_text("running")
            answers = [
                page.request.post(
                    f"{server.url}/ui/bulk",
                    form={"action": action, f"pick-{running}": "1", **extra},
                    headers={
                        "x-csrf-token": page.locator("meta[name=csrf]").get_attribute("content") or "",
                        "hx-request": "true",
                    },
                )
                for action, extra in (("end", {f"pick-{free}": "1"}), ("trash", {}), ("explode", {}), ("end", {}))
            ]
            http.post(f"/v1/sessions/{running}/interrupt")
        states = {one: http.get(f"/v1/sessions/{one}").json()["state"] for one in (free, running)}

    assert [one.status for one in answers] == [200, 409, 400, 409]
    assert "Ended 1 session; 1 session left as before" in answers[0].text()
    assert json.dumps(states[free]) == '"ended"'
