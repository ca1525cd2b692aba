"""All pages except a session's in a real browser, with checks for accessibility, phones and untrusted text."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from bench import population
from holdfast.dashboard.display_state import LABELS
from holdfast.model.event import SessionOpened
from holdfast.model.times import DAY
from holdfast.process_lookup import current_identity
from holdfast.store.database import Transaction
from holdfast.store.repos import contacts, inbox, log, outbox, platforms, schedules, sessions, workers
from holdfast.store.repos.inbox import NewInboundMessage
from holdfast.store.repos.outbox import Address, OutboundMessage
from holdfast.store.repos.schedules import Schedule, ScheduleSlot
from tests.api.serving import KEY, Server, ask, session
from tests.dashboard.conftest import log_in, serving, wait_until
from tests.dashboard.store_writer import now, stock

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
expect.set_options(timeout=30_000)
AXE = Path(__file__).with_name("axe.min.js").read_text("utf-8")
ATTACK = '<img src=x onerror="window.hit=1">'
PATHS = (
    "/",
    "/?q=build",
    "/?sort=cost&trash=1",
    "/ui/s/hf-00000000000000000000000990/shares",
    "/ui/s/hf-00000000000000000000000990",
    "/ui/questions",
    "/ui/space",
    "/ui/processes",
    "/ui/workers",
    "/ui/gateways",
    "/ui/cron",
    "/ui/memory",
    "/ui/dead",
    "/ui/health",
    "/ui/usage",
    "/ui/fleet",
)
PAINTED = """(() => {
  const pen = CanvasRenderingContext2D.prototype, { fillRect, arc, fillText } = pen;
  window.columns = [];
  pen.fillRect = function (...where) {
    if (this.canvas.id === "density") window.columns.push(where[3]); else window.painted = { discs: [], names: [] };
    fillRect.apply(this, where);
  };
  pen.arc = function (x, y, radius, ...rest) { if (radius > 12) window.painted.discs.push([x, y, radius]); arc.call(this, x, y, radius, ...rest); };
  pen.fillText = function (words, x, y) { window.painted.names.push([words, x, y, this.measureText(words).width / 2]); fillText.call(this, words, x, y); };
})()"""
"""Records the discs and labels that Space drew last, and the heights of the columns of its timeline."""
SPARE = """(one) => {
  const style = getComputedStyle(one), pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontSize} ${style.fontFamily}`;
  const room = one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return room - pen.measureText(one.placeholder).width;
}"""
"""How much wider a field is than its placeholder."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose store has a day of work and something for every page."""
    with serving(tmp_path_factory.mktemp("pages") / "home") as running:
        at = now()
        stock(running.home, lambda tx: population.hire(tx, "worker-pages", "chat", at))
        stock(running.home, lambda tx: population.people_at_work(tx, "worker-pages", at))
        stock(running.home, mail)
        yield running


@pytest.fixture(scope="module")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with more sessions and events in the last day than the pages show, and one group larger than the others."""
    with serving(tmp_path_factory.mktemp("crowded") / "home") as running:
        stock(running.home, lambda tx: population.crowd(tx, 1, 6_500, now()))
        stock(running.home, lambda tx: [population.add(tx, n, [], now(), source="api") for n in range(10_000, 12_500)])
        yield running


def mail(tx: Transaction) -> None:
    """A platform with a dead inbound message, a failed and a delayed delivery, and a person who asks to be paired."""
    platforms.take(tx, "telegram", "worker-pages", at=now())
    broken = NewInboundMessage(
        id="in-1", chat="chat-1", message="m-1", payload='{"text": "<b>what?</b>"}', digest="d", fault=ATTACK
    )
    inbox.put(tx, "telegram", [broken], at=now())
    outbox.put(tx, "out-1", Address("telegram", "chat-1"), OutboundMessage(text=f"never arrived {ATTACK}"), at=now())
    outbox.begin(tx, "out-1", "worker-pages")
    outbox.fail(tx, "out-1", f"403: {ATTACK}")
    outbox.put(tx, "out-2", Address("telegram", "chat-2"), OutboundMessage(text="later"), at=now())
    outbox.begin(tx, "out-2", "worker-pages")
    outbox.postpone(tx, "out-2", f"429: {ATTACK}", due=now() + 3600 * 1_000_000)
    unknown_person = contacts.Person("telegram", "42", f"Mallory {ATTACK}", "CODE-4242", "asked", now())
    contacts.request_pairing(tx, unknown_person)


def press(page: Page, name: str, *, sure: bool = False) -> None:
    page.get_by_role("button", name=name, exact=True).first.click()
    if sure:
        page.locator("#confirm button[value=yes]").click()


# list of sessions


def test_the_list_is_live(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/")
    with server.http() as http:
        name = session(ask(http, "Words that have just been said"))

    expect(page.locator(f"#row-{name} .title")).to_have_text("Words that have just been said")
    expect(page.locator("#counts")).to_contain_text("0 orphaned")


def test_the_list_reconnects_after_a_server_crash(own_page: Page, own: Server) -> None:
    own_page.goto(f"{own.url}/")
    own_page.evaluate("window.stayed = true")
    own.kill()
    expect(own_page.locator("#connection")).to_contain_text("Reconnecting")
    own.restart()
    with own.http() as http:
        name = session(ask(http, "Said after the restart"))

    expect(own_page.locator(f"#row-{name}")).to_have_count(1)
    expect(own_page.locator("#connection")).to_contain_text("Live")
    assert own_page.evaluate("window.stayed")


def test_search_runs_as_you_type(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/")
    page.locator("input[type=search]").press_sequentially("fixed 200 ms", delay=20)

    expect(page.locator(".snippet mark").first).to_have_text("fixed")
    page.fill("input[type=search]", "nobody ever said this")
    expect(page.locator(".result-count")).to_contain_text("No results")
    page.fill("input[type=search]", "")
    expect(page.locator(".row").nth(20)).to_be_attached()


def test_a_search_respects_the_filters(page: Page, server: Server) -> None:
    with server.http() as http:
        thrown, kept = session(ask(http, "a peregrine falcon")), session(ask(http, "another peregrine falcon"))
        assert http.delete(f"/v1/sessions/{thrown}").status_code == 200
    page.goto(f"{server.url}/?q=peregrine")
    expect(page.locator(f"#row-{kept}")).to_have_count(1)
    page.locator(".check", has_text="Trash").click()
    expect(page.locator(f"#row-{thrown}")).to_have_count(1)
    expect(page.locator(f"#row-{kept}")).to_have_count(0)
    page.goto(f"{server.url}/?q=peregrine&pinned=1")

    expect(page.locator(".result-count")).to_contain_text("No results")


def test_a_search_hit_links_to_its_message(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/?q=%22hundred+times%22")
    page.locator(".row .title").first.click()

    page.wait_for_url(re.compile(r"/ui/s/.*at=\d+#e\d+"))
    expect(page.locator(".item:target")).to_contain_text("hundred times")


@pytest.mark.parametrize("state", ["running", "quarantined", "ended", "waiting", "interrupted", "failed"])
def test_the_list_can_be_filtered(page: Page, server: Server, state: str) -> None:
    page.goto(f"{server.url}/")
    page.locator(".chips label", has_text=LABELS[state].capitalize()).click()

    expect(page.locator(f".row:not(.s-{state})")).to_have_count(0)
    expect(
        page.locator(".row").first if state not in ("interrupted", "failed") else page.locator(".empty")
    ).to_be_visible()


def test_the_list_loads_more_on_scrolling(page: Page, server: Server) -> None:
    def group(tx: Transaction) -> None:
        for number in range(130):
            fact = SessionOpened(source="gateway", channel="matrix:crowd", title=f"one of many, {number}")
            sessions.create(tx, population.session_id(70_000 + number), fact, at=now() - DAY)

    stock(server.home, group)
    page.goto(f"{server.url}/?channel=matrix:crowd")
    expect(page.locator(".row")).to_have_count(50)
    page.locator(".more").scroll_into_view_if_needed()
    expect(page.locator(".row")).to_have_count(100)
    page.locator(".more").scroll_into_view_if_needed()

    expect(page.locator(".row")).to_have_count(130)
    ids = page.locator(".row").evaluate_all("all => all.map((one) => one.id)")
    assert len(set(ids)) == 130


def test_the_keyboard_is_enough(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("input[type=search]")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(".row .title").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/ui/s/"))
    page.locator("main").click(position={"x": 5, "y": 5})
    page.keyboard.press("g")
    page.keyboard.press("h")

    page.wait_for_url(re.compile("/ui/health"))


# processes, workers, messages, schedules, health


def test_a_process_is_listed_read_and_stopped(page: Page, server: Server) -> None:
    call = 'use tool terminal {"command": "echo ready; sleep 600", "background": true}'
    with server.http() as http:
        ask(http, call, model=server.model("tools"))
    page.goto(f"{server.url}/ui/processes")
    card = page.locator(".record", has_text="echo ready; sleep 600")
    expect(card.locator(".pill").first).to_have_text("working")
    card.locator("h2 a").click()
    expect(page.locator("pre.output")).to_contain_text("ready")
    press(page, "Stop", sure=True)

    expect(page.locator(".pill").first).to_have_text("gone")
    page.goto(f"{server.url}/ui/processes")
    expect(card.locator(".pill").first).to_have_text("gone")


def test_workers_are_listed_and_swept(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/workers")
    expect(page.locator(".record", has_text="this server").locator(".pill")).to_have_text("alive")
    press(page, "Sweep now")

    expect(page.locator(".notice")).to_contain_text("checked")


def test_dead_letters_are_shown_and_retried(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/dead")
    expect(page.locator("#l-in-1")).to_contain_text(ATTACK)
    expect(page.locator("#o-out-1")).to_contain_text("never arrived")
    page.locator("#o-out-1").get_by_role("button", name="Retry").click()

    expect(page.locator("#o-out-1")).to_have_count(0)
    page.locator("#l-in-1").get_by_role("button", name="Dismiss").click()
    expect(page.locator("#l-in-1")).to_have_count(0)
    [kept] = stock(server.home, lambda tx: inbox.get(tx, "in-1"))
    assert kept.state == "dead" and kept.payload and kept.dismissed_at is not None
    stock(server.home, lambda tx: inbox.replay(tx, kept, at=now()))
    stock(server.home, lambda tx: inbox.mark_dead(tx, "in-1", "again"))
    expect(page.locator("#l-in-1")).to_have_count(1)
    press(page, "Retry all", sure=True)
    expect(page.locator(".empty")).to_contain_text("No dead letters")
    assert page.evaluate("window.hit") is None


def test_a_rate_limited_chat_is_listed_as_delayed(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/gateways")

    delayed = page.locator(".lines li", has_text="chat-2")
    expect(delayed).to_contain_text("1 message until")
    expect(delayed).to_contain_text("429")
    assert page.evaluate("window.hit") is None


def test_a_pairing_is_approved_and_revoked(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/gateways")
    expect(page.locator("#g-telegram")).to_contain_text("not configured here")
    person = page.locator(".lines li", has_text="Mallory")
    expect(person.locator(".pill")).to_have_text("asked")
    page.fill("#code", "CODE-4242")
    press(page, "Approve")
    expect(person.locator(".pill")).to_have_text("allowed")
    press(page, "Revoke", sure=True)

    expect(person).to_have_count(0)
    assert page.evaluate("window.hit") is None


def test_a_schedule_is_added_run_and_removed(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/cron")
    page.locator(".panel.new summary").click()
    page.fill("input[name=when]", "never")
    page.fill("textarea[name=prompt]", f"Good morning {ATTACK}")
    press(page, "Add")
    expect(page.locator(".notice.bad")).to_contain_text("is not a cron expression")
    page.fill("input[name=when]", "0 7 * * 1-5")
    press(page, "Add")
    page.goto(f"{server.url}/ui/cron")
    expect(page.locator(".record")).to_contain_text("Good morning")
    press(page, "Run now")
    page.wait_for_url(re.compile("/ui/s/"))
    expect(page.locator(".message.user")).to_contain_text("Good morning")
    page.goto(f"{server.url}/ui/cron")
    expect(page.locator(".slot.t-done, .slot.t-running")).to_have_count(1)
    press(page, "Remove", sure=True)

    expect(page.locator(".record")).to_have_count(0)
    assert page.evaluate("window.hit") is None


def test_health_reports_no_orphans_and_draws_charts(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/health")

    expect(page.locator(".tile").first.locator("dd").first).to_have_text("0")
    expect(page.locator(".tile.warn").first).to_contain_text(re.compile("Waiting\\s*[1-9].*1 question"))
    expect(page.locator(".uplot canvas")).to_have_count(3)
    names = set(population.TITLES)
    assert any(name.partition(" (")[0] in names for name in page.locator(".lines a.one").all_inner_texts())
    drawn = page.request.get(f"{server.url}/ui/health/charts").json()
    assert sum(drawn["turns"]) >= 30 and len(drawn["at"]) == 96


def test_a_whole_day_is_not_marked_as_truncated(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/space")
    page.wait_for_selector("#space-canvas[data-ready]")
    expect(page.locator("#space-limit")).to_be_hidden()
    page.goto(f"{server.url}/ui/health")

    expect(page.locator("h2").first).to_have_text("Last 24 hours")


def test_a_truncated_day_is_marked_as_truncated(browser: Browser, large_store: Server) -> None:
    context = browser.new_context()
    page = log_in(context, large_store)
    page.goto(f"{large_store.url}/ui/health")
    expect(page.locator(".tile").nth(1)).to_contain_text("> ")
    expect(page.locator("h2").first).to_contain_text("the newest 30,000 starts and ends")
    page.goto(f"{large_store.url}/ui/space")

    expect(page.locator("#space-limit")).to_have_text("newest 4,000 sessions")
    context.close()


# space


def test_space_shows_every_session_now_and_in_the_past(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/space")
    page.wait_for_selector("#space-canvas[data-ready]")
    shown = int(page.locator("#space-canvas").get_attribute("data-count") or 0)
    data = page.request.get(f"{server.url}/ui/space/data").json()
    assert shown == len(data["sprites"]) >= 40
    assert "running a tool" in (page.locator("#space-canvas").get_attribute("aria-label") or "")
    page.locator("#scrub").evaluate("one => { one.value = 50000; one.dispatchEvent(new Event('input')) }")
    expect(page.locator("#now-button")).to_be_enabled()
    wait_until(page, f"Number(document.querySelector('#space-canvas').dataset.count) < {shown}")
    page.locator("#scrub").evaluate("one => { one.value = 0; one.dispatchEvent(new Event('input')) }")
    expect(page.locator("#space-empty")).to_contain_text("No sessions at this time")
    page.click("#now-button")
    expect(page.locator("#clock")).to_have_text("now")
    expect(page.locator("#space-empty")).to_be_hidden()
    wait_until(page, f"Number(document.querySelector('#space-canvas').dataset.count) >= {shown}")
    page.locator("#space-canvas").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tooltip")).to_be_visible()
    page.keyboard.press("Enter")

    page.wait_for_url(re.compile("/ui/s/hf-"))


def test_the_timeline_counts_changes_and_not_initial_states(browser: Browser, own: Server) -> None:
    ids = stock(own.home, lambda tx: [population.add(tx, n, [], now() - 2 * DAY, source="chat") for n in range(60)])[0]
    turn = population.turn("turn-1", "What is up?", "Nothing.")
    stock(own.home, lambda tx: [log.append_unheld(tx, name, turn, at=now() - DAY // 2) for name in ids])
    context = browser.new_context()
    context.add_init_script(PAINTED)
    page = log_in(context, own)
    page.goto(f"{own.url}/ui/space")
    page.wait_for_selector("#space-canvas[data-ready]")
    columns = page.evaluate("window.columns.slice(-96)")
    context.close()

    assert columns[0] == 0
    assert max(columns) == max(columns[46:50]) > 0


def test_no_label_in_space_overlaps_another_group(browser: Browser, large_store: Server) -> None:
    for width, height in ((390, 844), (1360, 860), (800, 500)):
        context = browser.new_context(viewport={"width": width, "height": height})
        context.add_init_script(PAINTED)
        page = log_in(context, large_store)
        page.goto(f"{large_store.url}/ui/space")
        page.wait_for_selector("#space-canvas[data-ready]")
        wait_until(page, "window.painted.names.length > 5")
        painted = page.evaluate("window.painted")
        context.close()

        for (words, x, y, half), own_disc in zip(painted["names"], painted["discs"], strict=True):
            for disc in painted["discs"]:
                away = math.hypot(max(abs(x - disc[0]) - half, 0), max(abs(y - 4 - disc[1]) - 6, 0))
                assert disc == own_disc or away >= disc[2], f"{words} at {width}x{height}"


# fleet


class ServerWithPeer(Server):
    """A server that polls another one."""

    def __init__(self, home: Path, peer: Server) -> None:
        self._fleet = f'[fleet]\npeers = ["http://:{KEY}@127.0.0.1:{peer.port}/"]\n'
        super().__init__(home)

    def start(self) -> None:
        config = self.home / "config.toml"
        if self._fleet not in config.read_text():
            config.write_text(config.read_text() + self._fleet)
        super().start()


def test_an_offline_peer_is_shown_with_its_last_known_state(browser: Browser, tmp_path: Path) -> None:
    with Server(tmp_path / "other") as other:
        with other.http() as http:
            name = session(ask(http, "hello from afar"))
            assert http.patch(f"/v1/sessions/{name}", json={"title": f"Far away {ATTACK}"}).status_code == 200
        with ServerWithPeer(tmp_path / "home", other) as own:
            context = browser.new_context()
            page = log_in(context, own)
            page.goto(f"{own.url}/ui/fleet")
            expect(page.locator(".peer .pill").first).to_have_text("online")
            expect(page.locator(".peer .lines")).to_contain_text(f"Far away {ATTACK}")
            sprites = page.request.get(f"{own.url}/ui/space/data").json()["sprites"]
            assert [one["id"] for one in sprites if one.get("peer")] == [name]
            other.kill()

            expect(page.locator(".peer .pill").first).to_have_text("offline")
            expect(page.locator(".peer .warning")).to_contain_text("Its last known state")
            expect(page.locator(".peer .lines")).to_contain_text("Far away")
            assert KEY not in page.content()
            own.stop()
            own.restart()
            page.goto(f"{own.url}/ui/fleet")
            expect(page.locator(".peer .pill").first).to_have_text("offline")
            expect(page.locator(".peer .lines")).to_contain_text("Far away")
            expect(page.locator(".peer .record-head")).to_contain_text("last contact")
            assert page.evaluate("window.hit") is None
            assert page.problems == []  # type: ignore[attr-defined]
            context.close()


# untrusted text


def attacks(tx: Transaction) -> None:
    """Put an attack into every field that other people can fill."""
    name = f"hf-{ATTACK}"[:40]
    platforms.take(tx, "matrix", "worker-pages", at=now())
    platforms.record_state(tx, "matrix", "worker-pages", "down", at=now(), error=ATTACK)
    inbox.put(
        tx,
        "matrix",
        [NewInboundMessage(id=ATTACK, chat=ATTACK, message=ATTACK, payload=ATTACK, digest="a", fault=ATTACK)],
        at=now(),
    )
    outbox.put(tx, "out-attack", Address("matrix", ATTACK), OutboundMessage(text=ATTACK), at=now())
    outbox.begin(tx, "out-attack", "worker-pages")
    outbox.fail(tx, "out-attack", ATTACK)
    contacts.request_pairing(tx, contacts.Person("matrix", ATTACK, ATTACK, "CODE-6666", "asked", now()))
    workers.register(
        tx, name, ATTACK, msgspec.structs.replace(current_identity(), host=ATTACK), version=ATTACK, at=now()
    )
    one = Schedule("cron-attack", "0 7 * * *", ATTACK, ATTACK, f"telegram:{ATTACK}", None, "run", now() + DAY, now())
    schedules.add(tx, one)
    schedules.open_slot(tx, ScheduleSlot(one.id, now(), "failed", ATTACK, None, None, now(), now()))


def test_untrusted_text_never_becomes_markup(page: Page, server: Server) -> None:
    stock(server.home, attacks)
    call = json.dumps({"command": f"true # {ATTACK}", "background": True})
    with server.http() as http:
        ask(http, f"use tool terminal {call}", model=server.model("tools"))
    for path in PATHS:
        page.goto(server.url + path)
        page.wait_for_load_state("load")
        assert page.evaluate("window.hit") is None, path
        assert page.locator("img[src=x], [onerror], script:not([src])").count() == 0, path
        if path in ("/ui/processes", "/ui/workers", "/ui/gateways", "/ui/cron", "/ui/dead"):
            expect(page.locator("main")).to_contain_text(ATTACK)
    stock(server.home, lambda tx: schedules.remove(tx, "cron-attack", at=now()))


# accessibility


RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def list_violations(page: Page, url: str) -> list[str]:
    """Accessibility violations of a page with everything unfolded, in light and dark mode."""
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.goto(url)
    page.wait_for_load_state("load")
    page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
    page.evaluate("document.querySelectorAll('.composer').forEach((one) => { one.style.position = 'static'; })")
    page.evaluate(AXE)
    found = page.evaluate("(rules) => axe.run(document, { resultTypes: ['violations'], runOnly: rules })", RULES)[
        "violations"
    ]
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")  # only the colours differ
    found += page.evaluate("axe.run(document, { resultTypes: ['violations'], runOnly: ['color-contrast'] })")[
        "violations"
    ]
    return [
        f"{url} {one['id']}: {one['nodes'][0]['html'][:160]} {one['nodes'][0]['failureSummary'][:200]}" for one in found
    ]


def test_every_page_is_accessible(browser: Browser, server: Server) -> None:
    outside = browser.new_context(bypass_csp=True)
    found = list_violations(outside.new_page(), f"{server.url}/ui/login")
    outside.close()
    for options in ({}, {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}):
        inside = browser.new_context(bypass_csp=True, **options)
        page = log_in(inside, server)
        for path in PATHS:
            found += list_violations(page, server.url + path)
        inside.close()

    assert "\n".join(found) == ""


def test_no_page_loads_much_script(page: Page, server: Server) -> None:
    sizes: dict[str, int] = {}
    for path in PATHS:
        page.goto(server.url + path)
        addresses = page.locator("script[src]").evaluate_all("all => all.map((one) => one.src)")
        sizes[path] = sum(len(page.request.get(one).body()) for one in addresses)

    assert max(sizes.values()) <= 200_000, sizes
    assert sizes["/"] <= 80_000


def test_every_page_fits_a_phone(browser: Browser, server: Server) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    page = log_in(context, server)
    for path in PATHS:
        page.goto(server.url + path)
        page.wait_for_load_state("load")
        page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, path
        here = page.locator("nav a[aria-current]").bounding_box()
        assert here is not None and here["x"] >= 0 and here["x"] + here["width"] <= 360, path
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(server.url)
    expect(page.get_by_role("link", name="Usage")).to_be_hidden()
    page.get_by_role("banner").get_by_role("link", name="More").click()
    expect(page.locator("nav a:visible")).to_have_count(12)
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Usage")).to_be_hidden()
    page.get_by_role("banner").get_by_role("link", name="More").press("Enter")
    page.get_by_role("link", name="Usage").press("Enter")
    page.wait_for_url(f"{server.url}/ui/usage")
    expect(page.get_by_role("link", name="Usage")).to_be_visible()
    page.goto(server.url)
    page.evaluate("document.fonts.ready")
    assert page.locator("input[type=search]").evaluate(SPARE) >= 0, "the placeholder fits"
    context.close()


def test_pages_work_without_scripts(browser: Browser, server: Server) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = log_in(context, server)
    page.goto(f"{server.url}/?q=nightly")
    assert page.locator(".row").count() > 0
    expect(page.locator("#connection")).to_have_text("Not live")
    with server.http() as http:
        page.goto(f"{server.url}/ui/s/{session(ask(http, 'no scripts'))}")
    page.fill("#title", "Renamed without a script")
    page.get_by_role("button", name="Rename").click()

    expect(page.locator("#head h1")).to_have_text("Renamed without a script")
    context.close()
