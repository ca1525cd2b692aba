"""Every other page in a real browser: the list, what runs, mail, schedules, health, space and fleet; read aloud, and on a phone."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from bench import population
from holdfast.identity import identity
from holdfast.model.event import SessionOpened
from holdfast.model.times import DAY
from holdfast.store import inbox, log, outbox, people, platforms, schedules, sessions, workers
from holdfast.store.database import Transaction
from holdfast.store.inbox import Post
from holdfast.store.outbox import Address, Message
from holdfast.store.schedules import Schedule, Slot
from tests.api.serving import KEY, Server, ask, session
from tests.dashboard.conftest import enter, refuse_errors
from tests.dashboard.stocking import now, stock

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
expect.set_options(timeout=30_000)
AXE = Path(__file__).with_name("axe.min.js").read_text("utf-8")
ATTACK = '<img src=x onerror="window.hit=1">'
PATHS = (
    "/",
    "/?q=build",
    "/ui/s/hf-00000000000000000000000990",
    "/ui/space",
    "/ui/processes",
    "/ui/workers",
    "/ui/gateways",
    "/ui/cron",
    "/ui/dead",
    "/ui/health",
    "/ui/fleet",
)
SERIOUS = ("serious", "critical")
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
"""Notes the discs and the names of the newest picture of Space, and how tall the columns of its time line are."""
SPARE = """(one) => {
  const style = getComputedStyle(one), pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontSize} ${style.fontFamily}`;
  const room = one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return room - pen.measureText(one.placeholder).width;
}"""
"""How much wider a field is than the words that stand in it while it is empty."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One with a day of work in its store, and something on every page."""
    with Server(tmp_path_factory.mktemp("pages") / "home") as running:
        at = now()
        stock(running.home, lambda tx: population.hire(tx, "worker-pages", "chat", at))
        stock(running.home, lambda tx: population.people_at_work(tx, "worker-pages", at))
        stock(running.home, mail)
        yield running
        running.stop()
    refuse_errors(running)


def mail(tx: Transaction) -> None:
    """A platform with one message that could not be understood, one that was not delivered, and a stranger at the door."""
    platforms.take(tx, "telegram", "worker-pages", at=now())
    broken = Post(id="in-1", chat="chat-1", message="m-1", payload='{"text": "<b>what?</b>"}', digest="d", fault=ATTACK)
    inbox.put(tx, "telegram", [broken], at=now())
    outbox.put(tx, "out-1", Address("telegram", "chat-1"), Message(text=f"never arrived {ATTACK}"), at=now())
    outbox.begin(tx, "out-1", "worker-pages")
    outbox.fail(tx, "out-1", f"403: {ATTACK}")
    stranger = people.Person("telegram", "42", f"Mallory {ATTACK}", "CODE-4242", "asked", now())
    people.knock(tx, stranger)


def press(page: Page, name: str, *, sure: bool = False) -> None:
    page.get_by_role("button", name=name, exact=True).first.click()
    if sure:
        page.locator("#ask button[value=yes]").click()


# the list


def test_the_list_is_live(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/")
    with server.http() as http:
        name = session(ask(http, "Words that have just been said"))

    expect(page.locator(f"#row-{name} .title")).to_have_text("Words that have just been said")
    expect(page.locator("#census")).to_contain_text("0 leaked")


def test_the_list_comes_back_by_itself_when_the_server_does(own_page: Page, own: Server) -> None:
    own_page.goto(f"{own.url}/")
    own_page.evaluate("window.stayed = true")
    own.kill()
    expect(own_page.locator("#link")).to_contain_text("Reconnecting")
    own.restart()
    with own.http() as http:
        name = session(ask(http, "Said after the restart"))

    expect(own_page.locator(f"#row-{name}")).to_have_count(1)
    expect(own_page.locator("#link")).to_contain_text("Live")
    assert own_page.evaluate("window.stayed")


def test_searching_as_one_types(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/")
    page.locator("input[type=search]").press_sequentially("fixed 200 ms", delay=20)

    expect(page.locator(".snippet mark").first).to_have_text("fixed")
    page.fill("input[type=search]", "nobody ever said this")
    expect(page.locator(".tally")).to_contain_text("Nothing holds this")
    page.fill("input[type=search]", "")
    expect(page.locator(".row").nth(20)).to_be_attached()


def test_a_search_keeps_to_the_filters(page: Page, server: Server) -> None:
    with server.http() as http:
        thrown, kept = session(ask(http, "a peregrine falcon")), session(ask(http, "another peregrine falcon"))
        assert http.delete(f"/v1/sessions/{thrown}").status_code == 200
    page.goto(f"{server.url}/?q=peregrine")
    expect(page.locator(f"#row-{kept}")).to_have_count(1)
    page.locator(".check", has_text="Trash").click()
    expect(page.locator(f"#row-{thrown}")).to_have_count(1)
    expect(page.locator(f"#row-{kept}")).to_have_count(0)
    page.goto(f"{server.url}/?q=peregrine&pinned=1")

    expect(page.locator(".tally")).to_contain_text("Nothing holds this")


def test_a_hit_leads_to_its_place(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/?q=%22hundred+times%22")
    page.locator(".row .title").first.click()

    page.wait_for_url(re.compile(r"/ui/s/.*at=\d+#e\d+"))
    expect(page.locator(".item:target")).to_contain_text("hundred times")


@pytest.mark.parametrize("state", ["running", "quarantined", "ended", "waiting", "interrupted"])
def test_the_list_can_be_filtered(page: Page, server: Server, state: str) -> None:
    page.goto(f"{server.url}/")
    page.locator(".chips label", has_text=state.capitalize()).click()

    expect(page.locator(f".row:not(.s-{state})")).to_have_count(0)
    expect(page.locator(".row").first if state != "interrupted" else page.locator(".empty")).to_be_visible()


def test_the_list_goes_on_where_it_ended(page: Page, server: Server) -> None:
    def crowd(tx: Transaction) -> None:
        for number in range(130):
            fact = SessionOpened(source="gateway", channel="matrix:crowd", title=f"one of many, {number}")
            sessions.create(tx, population.session_id(70_000 + number), fact, at=now() - DAY)

    stock(server.home, crowd)
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


# what runs


def test_a_process_is_listed_read_and_stopped(page: Page, server: Server) -> None:
    call = 'use tool terminal {"command": "echo ready; sleep 600", "background": true}'
    with server.http() as http:
        ask(http, call, model=server.model("tools"))
    page.goto(f"{server.url}/ui/processes")
    card = page.locator(".thing", has_text="echo ready; sleep 600")
    expect(card.locator(".pill").first).to_have_text("working")
    card.locator("h2 a").click()
    expect(page.locator("pre.output")).to_contain_text("ready")
    press(page, "Stop", sure=True)

    expect(page.locator(".pill").first).to_have_text("gone")
    page.goto(f"{server.url}/ui/processes")
    expect(card.locator(".pill").first).to_have_text("gone")


def test_workers_are_listed_and_swept(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/workers")
    expect(page.locator(".thing", has_text="this server").locator(".pill")).to_have_text("alive")
    press(page, "Sweep now")

    expect(page.locator(".notice")).to_contain_text("looked at")


def test_dead_letters_are_shown_as_they_came_and_tried_again(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/dead")
    expect(page.locator("#l-in-1")).to_contain_text(ATTACK)
    expect(page.locator("#o-out-1")).to_contain_text("never arrived")
    page.locator("#o-out-1").get_by_role("button", name="Try again").click()

    expect(page.locator("#o-out-1")).to_have_count(0)
    press(page, "Try all again", sure=True)
    expect(page.locator(".empty")).to_contain_text("No dead letters")
    assert page.evaluate("window.hit") is None


def test_a_stranger_is_let_in_and_turned_out(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/gateways")
    expect(page.locator("#g-telegram")).to_contain_text("not set up here")
    person = page.locator(".lines li", has_text="Mallory")
    expect(person.locator(".pill")).to_have_text("asked")
    page.fill("#code", "CODE-4242")
    press(page, "Let in")
    expect(person.locator(".pill")).to_have_text("allowed")
    press(page, "Turn out", sure=True)

    expect(person).to_have_count(0)
    assert page.evaluate("window.hit") is None


def test_a_schedule_is_added_said_now_and_removed(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/cron")
    page.locator(".panel.new summary").click()
    page.fill("input[name=when]", "never")
    page.fill("textarea[name=prompt]", f"Good morning {ATTACK}")
    press(page, "Add")
    expect(page.locator(".notice.bad")).to_contain_text("is no schedule")
    page.fill("input[name=when]", "0 7 * * 1-5")
    press(page, "Add")
    page.goto(f"{server.url}/ui/cron")
    expect(page.locator(".thing")).to_contain_text("Good morning")
    press(page, "Say it now")
    page.wait_for_url(re.compile("/ui/s/"))
    expect(page.locator(".said.user")).to_contain_text("Good morning")
    page.goto(f"{server.url}/ui/cron")
    expect(page.locator(".slot.t-done, .slot.t-running")).to_have_count(1)
    press(page, "Remove", sure=True)

    expect(page.locator(".thing")).to_have_count(0)
    assert page.evaluate("window.hit") is None


def test_health_says_that_nothing_has_leaked_and_draws_the_day(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/health")

    expect(page.locator(".tile").first.locator("dd").first).to_have_text("0")
    expect(page.locator(".tile.warn").first).to_contain_text(re.compile("Waiting\\s*[1-9].*1 question"))
    expect(page.locator(".uplot canvas")).to_have_count(3)
    names = set(population.TITLES)
    assert any(name.partition(", part")[0] in names for name in page.locator(".lines a.one").all_inner_texts())
    drawn = page.request.get(f"{server.url}/ui/health/charts").json()
    assert sum(drawn["turns"]) >= 30 and len(drawn["at"]) == 96


def test_a_day_too_busy_to_be_shown_whole_is_not_passed_off_as_the_whole(own: Server, own_page: Page) -> None:
    own_page.goto(f"{own.url}/ui/space")
    own_page.wait_for_selector("#sky[data-ready]")
    expect(own_page.locator("#sky-cut")).to_be_hidden()
    own_page.goto(f"{own.url}/ui/health")
    expect(own_page.locator("h2").first).to_have_text("The last day")
    stock(own.home, lambda tx: population.crowd(tx, 1, 6_500, now()))

    own_page.reload()
    expect(own_page.locator(".tile").nth(1)).to_contain_text("> ")
    expect(own_page.locator("h2").first).to_contain_text("its newest 30,000 beginnings and ends")
    own_page.goto(f"{own.url}/ui/space")
    expect(own_page.locator("#sky-cut")).to_have_text("the newest 4,000 sessions")


# space


def test_space_shows_every_session_and_goes_back_in_time(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/space")
    page.wait_for_selector("#sky[data-ready]")
    shown = int(page.locator("#sky").get_attribute("data-bodies") or 0)
    data = page.request.get(f"{server.url}/ui/space/data").json()
    assert shown == len(data["sprites"]) >= 40
    assert "running a tool" in (page.locator("#sky").get_attribute("aria-label") or "")
    page.locator("#scrub").evaluate("one => { one.value = 50000; one.dispatchEvent(new Event('input')) }")
    expect(page.locator("#now")).to_be_enabled()
    page.wait_for_function(f"Number(document.querySelector('#sky').dataset.bodies) < {shown}")
    page.locator("#scrub").evaluate("one => { one.value = 0; one.dispatchEvent(new Event('input')) }")
    expect(page.locator("#sky-empty")).to_contain_text("No session was there then")
    page.click("#now")
    expect(page.locator("#clock")).to_have_text("now")
    expect(page.locator("#sky-empty")).to_be_hidden()
    page.wait_for_function(f"Number(document.querySelector('#sky').dataset.bodies) >= {shown}")
    page.locator("#sky").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tip")).to_be_visible()
    page.keyboard.press("Enter")

    page.wait_for_url(re.compile("/ui/s/hf-"))


def test_the_time_line_of_space_shows_what_happened_and_not_what_was_there(browser: Browser, own: Server) -> None:
    ids = stock(own.home, lambda tx: [population.add(tx, n, [], now() - 2 * DAY, source="chat") for n in range(60)])[0]
    turn = population.turn("turn-1", "What is up?", "Nothing.")
    stock(own.home, lambda tx: [log.append_unheld(tx, name, turn, at=now() - DAY // 2) for name in ids])
    context = browser.new_context()
    context.add_init_script(PAINTED)
    page = enter(context, own)
    page.goto(f"{own.url}/ui/space")
    page.wait_for_selector("#sky[data-ready]")
    columns = page.evaluate("window.columns.slice(-96)")
    context.close()

    assert columns[0] == 0
    assert max(columns) == max(columns[46:50]) > 0


def test_no_name_in_space_stands_on_another_group(browser: Browser, own: Server) -> None:
    stock(own.home, lambda tx: population.crowd(tx, 1, 700, now()))
    stock(own.home, lambda tx: [population.add(tx, n, [], now(), source="api") for n in range(10_000, 12_500)])
    for width, height in ((390, 844), (1360, 860), (800, 500)):
        context = browser.new_context(viewport={"width": width, "height": height})
        context.add_init_script(PAINTED)
        page = enter(context, own)
        page.goto(f"{own.url}/ui/space")
        page.wait_for_selector("#sky[data-ready]")
        page.wait_for_function("() => window.painted.names.length > 5")
        painted = page.evaluate("window.painted")
        context.close()

        for (words, x, y, half), own_disc in zip(painted["names"], painted["discs"], strict=True):
            for disc in painted["discs"]:
                away = math.hypot(max(abs(x - disc[0]) - half, 0), max(abs(y - 4 - disc[1]) - 6, 0))
                assert disc == own_disc or away >= disc[2], f"{words} at {width}x{height}"


# fleet


def test_a_peer_that_goes_away_is_shown_as_away_with_its_last_state(browser: Browser, tmp_path: Path) -> None:
    with Server(tmp_path / "other") as other, Server(tmp_path / "home") as own:
        with other.http() as http:
            name = session(ask(http, "hello from afar"))
            assert http.patch(f"/v1/sessions/{name}", json={"title": f"Far away {ATTACK}"}).status_code == 200
        config = own.home / "config.toml"
        config.write_text(config.read_text() + f'[fleet]\npeers = ["http://:{KEY}@127.0.0.1:{other.port}/"]\n')
        own.stop()
        own.restart()
        context = browser.new_context()
        page = enter(context, own)
        page.goto(f"{own.url}/ui/fleet")
        expect(page.locator(".peer .pill").first).to_have_text("here")
        expect(page.locator(".peer .lines")).to_contain_text(f"Far away {ATTACK}")
        sprites = page.request.get(f"{own.url}/ui/space/data").json()["sprites"]
        assert [one["id"] for one in sprites if one.get("peer")] == [name]
        other.kill()

        expect(page.locator(".peer .pill").first).to_have_text("away")
        expect(page.locator(".peer .warning")).to_contain_text("What follows is its last state")
        expect(page.locator(".peer .lines")).to_contain_text("Far away")
        assert KEY not in page.content()
        own.stop()
        own.restart()
        page.goto(f"{own.url}/ui/fleet")
        expect(page.locator(".peer .pill").first).to_have_text("away")
        expect(page.locator(".peer .lines")).to_contain_text("Far away")
        expect(page.locator(".peer .thing-head")).to_contain_text("heard")
        assert page.evaluate("window.hit") is None
        assert page.troubles == []  # type: ignore[attr-defined]
        context.close()


# strangers' words


def attacks(tx: Transaction) -> None:
    """An attack in every field of every page that somebody else can fill."""
    name = f"hf-{ATTACK}"[:40]
    platforms.take(tx, "matrix", "worker-pages", at=now())
    platforms.note(tx, "matrix", "worker-pages", "down", at=now(), error=ATTACK)
    inbox.put(
        tx, "matrix", [Post(id=ATTACK, chat=ATTACK, message=ATTACK, payload=ATTACK, digest="a", fault=ATTACK)], at=now()
    )
    outbox.put(tx, "out-attack", Address("matrix", ATTACK), Message(text=ATTACK), at=now())
    outbox.begin(tx, "out-attack", "worker-pages")
    outbox.fail(tx, "out-attack", ATTACK)
    people.knock(tx, people.Person("matrix", ATTACK, ATTACK, "CODE-6666", "asked", now()))
    workers.register(tx, name, ATTACK, msgspec.structs.replace(identity(), host=ATTACK), version=ATTACK, at=now())
    one = Schedule("cron-attack", "0 7 * * *", ATTACK, ATTACK, f"telegram:{ATTACK}", None, "run", now() + DAY, now())
    schedules.add(tx, one)
    schedules.open_slot(tx, Slot(one.id, now(), "failed", ATTACK, None, None, now(), now()))


def test_nothing_that_others_wrote_becomes_a_part_of_a_page(page: Page, server: Server) -> None:
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


# for everybody


def shut_out(page: Page, url: str) -> list[str]:
    """What keeps somebody out of a page, in the light and in the dark."""
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.goto(url)
    page.wait_for_load_state("load")
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")  # all but the colours is the same there
    found += page.evaluate("axe.run(document, { resultTypes: ['violations'], runOnly: ['color-contrast'] })")[
        "violations"
    ]
    return [
        f"{url} {one['id']}: {one['nodes'][0]['html'][:160]} {one['nodes'][0]['failureSummary'][:200]}"
        for one in found
        if one["impact"] in SERIOUS
    ]


def test_no_page_keeps_anybody_out(browser: Browser, server: Server) -> None:
    inside, outside = browser.new_context(bypass_csp=True), browser.new_context(bypass_csp=True)
    found = shut_out(outside.new_page(), f"{server.url}/ui/login")
    page = enter(inside, server)
    for path in PATHS:
        found += shut_out(page, server.url + path)
    inside.close()
    outside.close()

    assert "\n".join(found) == ""


def test_every_page_fits_a_phone(browser: Browser, server: Server) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    page = enter(context, server)
    for path in PATHS:
        page.goto(server.url + path)
        page.wait_for_load_state("load")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, path
        here = page.locator("nav a[aria-current]").bounding_box()
        assert here is not None and here["x"] >= 0 and here["x"] + here["width"] <= 360, path
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(server.url)
    page.evaluate("document.fonts.ready")
    assert page.locator("input[type=search]").evaluate(SPARE) >= 0, "it can be read what the search is for"
    context.close()


def test_without_scripts_one_can_read_log_in_and_act(browser: Browser, server: Server) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = enter(context, server)
    page.goto(f"{server.url}/?q=nightly")
    assert page.locator(".row").count() > 0
    expect(page.locator("#link")).to_have_text("Not live")
    with server.http() as http:
        page.goto(f"{server.url}/ui/s/{session(ask(http, 'no scripts'))}")
    page.fill("#title", "Renamed without a script")
    page.get_by_role("button", name="Rename").click()

    expect(page.locator("#head h1")).to_have_text("Renamed without a script")
    context.close()
