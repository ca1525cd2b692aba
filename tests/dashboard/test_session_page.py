"""A session's page in a real browser: everything that can be seen on it and done from it, live."""

import re

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from bench import population
from holdfast.model.event import ModelSaid, SessionOpened, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import File, Image, Reasoning, Text, ToolCall
from holdfast.store import log, sessions
from holdfast.store.database import Transaction
from tests.api.serving import SLOWLY, Server, ask, session
from tests.dashboard.stocking import now, stock

LIMIT = 30_000
REPLIES = ".said.model:not(.drafting)"
pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
expect.set_options(timeout=LIMIT)
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ATTACKS = (
    "<script>window.hit=1</script>",
    '"><img src=x onerror="window.hit=1">',
    "<svg/onload=window.hit=1>",
    "[click](javascript:window.hit=1)",
    "![x](javascript:window.hit=1)",
    '<div hx-get="/ui/health" hx-trigger="load" hx-target="body">x</div>',
    "</textarea></title></style><script>window.hit=1</script>",
    "{{ 7 * 7 }}{% raw %}",
    "\u202egnirts desrever\u202c \u2066x\u2069",
    "<a href='data:text/html,<script>window.hit=1</script>'>x</a>",
)


def begin(server: Server, words: str, model: str = "holdfast") -> str:
    with server.http() as http:
        return session(ask(http, words, model=model))


def act(page: Page, name: str, *, sure: bool = False) -> None:
    page.get_by_role("button", name=name, exact=True).click()
    if sure:
        page.locator("#ask button[value=yes]").click()


def test_words_are_said_and_answered_in_place(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{begin(server, 'first words')}")
    page.fill("#words", "second **words**")
    page.press("#words", "Enter")

    expect(page.locator(".said.user", has_text="second words")).to_have_count(1)
    expect(page.locator(REPLIES)).to_have_count(2)
    expect(page.locator(".said.model strong")).to_have_text("words")
    expect(page.locator("#words")).to_have_value("")
    expect(page.locator("#head .pill")).to_have_text("waiting")


def test_a_new_session_is_begun_from_the_list(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/")
    page.fill("#begin", "Is anybody there?")
    page.press("#begin", "Enter")

    page.wait_for_url(re.compile(r"/ui/s/hf-"))
    expect(page.locator(".said.user")).to_have_text(re.compile("Is anybody there"))
    expect(page.locator(REPLIES)).to_have_count(1)


def test_a_tool_call_is_folded_and_opens(page: Page, server: Server) -> None:
    name = begin(server, 'use tool terminal {"command": "echo seen"}', server.model("tools"))
    page.goto(f"{server.url}/ui/s/{name}")

    card = page.locator("details.call")
    expect(card).to_have_class(re.compile("o-ok"))
    expect(card.locator(".inside")).to_be_hidden()
    card.locator("summary").click()
    expect(card.locator(".inside pre").first).to_contain_text("echo seen")
    expect(card.locator(".inside pre").last).to_contain_text("seen")


def test_a_reply_is_shown_while_it_is_written_and_can_be_interrupted(page: Page, server: Server) -> None:
    name = begin(server, "hello")
    page.goto(f"{server.url}/ui/s/{name}")
    with (
        server.http() as http,
        http.stream(
            "POST",
            "/v1/chat/completions",
            json={"model": server.model("dawdling"), "messages": [{"role": "user", "content": "go"}], "stream": True},
            headers={"x-session-id": name},
        ),
    ):
        expect(page.locator("#draft .text")).to_contain_text("word3 ")
        page.reload()
        expect(page.locator("#draft .text")).to_have_text(re.compile(r"^word0 word1 word2 word3 "))
        act(page, "Interrupt")

        expect(page.locator(".note.bad", has_text="The turn was interrupted")).to_have_count(1)
    expect(page.locator("#draft")).to_be_hidden()
    expect(page.locator(".said.model.partial")).to_contain_text("word0 word1")


@pytest.mark.parametrize("answer", ["Allow", "Refuse"])
def test_a_question_is_answered(page: Page, server: Server, answer: str) -> None:
    worker = f"worker-{answer}".lower()
    stock(server.home, lambda tx: population.hire(tx, worker, "chat", now()))
    number = 700 + len(answer)
    [name] = stock(server.home, lambda tx: population.showcase(tx, number, worker, now()))
    page.goto(f"{server.url}/ui/s/{name}")
    page.locator(".question input[name=reason]").fill("because I say so")
    act(page, answer)

    state = "allowed" if answer == "Allow" else "refused"
    expect(page.locator(f".question.q-{state}")).to_contain_text("by the dashboard: because I say so")
    expect(page.locator(".question form")).to_have_count(0)


def test_what_a_log_can_hold_is_marked(page: Page, server: Server) -> None:
    stock(server.home, lambda tx: population.hire(tx, "worker-marks", "chat", now()))
    [name] = stock(server.home, lambda tx: population.showcase(tx, 710, "worker-marks", now()))
    page.goto(f"{server.url}/ui/s/{name}")

    expect(page.locator(".o-unknown .outcome")).to_have_text("outcome unknown")
    expect(page.locator(".partial .tag")).to_have_text("cut off")
    seam = page.locator("details.seam")
    expect(seam.locator("summary")).to_contain_text("48,210 → 6,140 tokens")
    expect(seam.locator(".inside")).to_be_hidden()
    seam.locator("summary").click()
    expect(seam.locator(".inside strong")).to_have_text("Found so far:")
    expect(page.locator(".text table td.right").first).to_have_text("8")


def test_renaming_forking_ending_reopening(page: Page, server: Server) -> None:
    name = begin(server, "to be changed")
    page.goto(f"{server.url}/ui/s/{name}")
    page.fill("#title", "A better title")
    act(page, "Rename")
    expect(page.locator("#head h1")).to_have_text("A better title")
    act(page, "End", sure=True)
    expect(page.locator("#head .pill")).to_have_text("ended")
    act(page, "Reopen")
    expect(page.locator("#head .pill")).to_have_text("waiting")
    act(page, "Pin")
    expect(page.locator("#head .tag", has_text="pinned")).to_have_count(1)
    page.fill("#at", "3")
    act(page, "Fork")

    page.wait_for_url(lambda url: name not in url)
    expect(page.locator(".rail", has_text=f"Forked from {name}")).to_have_count(1)


def test_only_deeds_that_make_sense_are_offered_as_the_session_changes(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{begin(server, 'hello')}")
    expect(page.get_by_role("button", name="Reopen")).to_have_count(0)
    act(page, "End", sure=True)

    expect(page.get_by_role("button", name="Reopen")).to_have_count(1)
    expect(page.get_by_role("button", name="End", exact=True)).to_have_count(0)
    act(page, "Pin")
    act(page, "Unpin")
    expect(page.get_by_role("button", name="Pin", exact=True)).to_have_count(1)


def test_a_session_is_forked_at_a_message(page: Page, server: Server) -> None:
    name = begin(server, "keep this")
    with server.http() as http:
        ask(http, "and leave this", headers={"x-session-id": name})
    page.goto(f"{server.url}/ui/s/{name}")
    first = page.locator(REPLIES).first
    first.hover()
    first.get_by_role("button", name="Fork at event").click()
    page.wait_for_url(lambda url: name not in url)

    expect(page.locator(".said.user")).to_have_count(1)
    expect(page.locator(".rail", has_text=f"Forked from {name}")).to_have_count(1)


def test_words_that_wait_for_their_turn_are_shown(page: Page, server: Server) -> None:
    name = begin(server, "hello")
    page.goto(f"{server.url}/ui/s/{name}")
    asked = {"model": server.model("silent"), "messages": [{"role": "user", "content": "go"}], "stream": True}
    with (
        server.http() as http,
        http.stream("POST", "/v1/chat/completions", json=asked, headers={"x-session-id": name}),
    ):
        expect(page.locator("#head .pill")).to_have_text("running")
        page.fill("#words", "Are you **still** there?")
        page.press("#words", "Enter")

        expect(page.locator("#head .waiting")).to_contain_text("Are you **still** there?")
        act(page, "Interrupt")
    expect(page.locator(".said.user", has_text="still")).to_have_count(1)
    expect(page.locator("#head .waiting")).to_have_count(0)


def test_words_that_were_changed_after_the_answer_was_lost_are_said_too(page: Page, server: Server) -> None:
    name = begin(server, "hello")
    page.goto(f"{server.url}/ui/s/{name}")

    def lose(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route("**/say", lose)
    page.fill("#words", "said once")
    page.press("#words", "Enter")
    expect(page.locator(".notice.bad")).to_contain_text("Whether it was done")
    expect(page.locator(".said.user", has_text="said once")).to_have_count(1)
    page.unroute("**/say")
    page.press("#words", "Enter")
    expect(page.locator("#words")).to_have_value("")
    expect(page.locator(".said.user", has_text="said once")).to_have_count(1)
    page.route("**/say", lose)
    page.fill("#words", "said twice")
    page.press("#words", "Enter")
    expect(page.locator(".said.user", has_text="said twice")).to_have_count(1)
    page.unroute("**/say")
    page.fill("#words", "said otherwise")
    page.press("#words", "Enter")

    expect(page.locator(".said.user", has_text="said otherwise")).to_have_count(1)
    expect(page.locator(REPLIES)).to_have_count(4)


def test_words_that_are_not_sent_outlive_a_reload(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{begin(server, 'hello')}")
    page.fill("#words", "half a thought")
    page.reload()
    expect(page.locator("#words")).to_have_value("half a thought")
    page.press("#words", "Enter")
    expect(page.locator(".said.user", has_text="half a thought")).to_have_count(1)
    page.reload()

    expect(page.locator("#words")).to_have_value("")


def test_a_screen_reader_hears_a_reply_once_and_not_each_of_its_pieces(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{begin(server, 'hello')}")

    assert page.get_by_role("log").count() == 1
    assert page.locator("#draft").get_attribute("aria-live") == "off"


def test_a_question_about_a_deed_can_be_declined(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{begin(server, 'stay')}")
    act(page, "End")
    page.locator("#ask button[value=no]").click()
    page.reload()

    expect(page.locator("#head .pill")).to_have_text("waiting")


def test_into_the_trash_and_out_of_it(page: Page, server: Server) -> None:
    name = begin(server, "to be thrown away")
    page.goto(f"{server.url}/ui/s/{name}")
    act(page, "Move to the trash", sure=True)
    expect(page.locator("#head .tag")).to_have_text("in the trash")
    expect(page.locator("#composer")).to_have_count(0)
    act(page, "Restore from the trash")

    expect(page.locator("#composer")).to_have_count(1)


def test_compacting_is_done_undone_and_refused_in_words(page: Page, server: Server) -> None:
    name = begin(server, "short")
    page.goto(f"{server.url}/ui/s/{name}")
    expect(page.get_by_role("button", name="Undo compaction")).to_have_count(0)
    page.fill("#about", "everything")
    act(page, "Compact")
    expect(page.locator(".notice.bad")).to_contain_text("It was not compacted")

    for number in range(14):
        page.request.get(f"{server.url}/ui/census")
        with server.http() as http:
            ask(http, f"{number} " + "many words to be summed up " * 60, headers={"x-session-id": name})
    page.reload()
    act(page, "Compact")
    expect(page.locator("details.seam")).to_have_count(1)
    act(page, "Undo compaction")
    expect(page.locator(".note", has_text="A compaction was undone")).to_have_count(1)


def test_a_turn_is_taken_back(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{begin(server, 'a slip of the tongue')}")
    act(page, "Take back a turn", sure=True)

    expect(page.locator(".said.user.gone")).to_have_count(1)


def test_why_it_is_as_it_is(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{begin(server, 'why?')}")
    page.locator("#why summary").click()

    expect(page.locator("#why dd").first).to_have_text("waiting for input")
    expect(page.locator("#why")).to_contain_text("Context")
    act(page, "End", sure=True)
    expect(page.locator("#why dd").first).to_have_text("nothing: it has ended")


@pytest.mark.parametrize(
    ("form", "holds"), [("jsonl", '"format":"holdfast-log"'), ("md", "# "), ("html", "<!doctype html>")]
)
def test_the_whole_session_can_be_taken_away(page: Page, server: Server, form: str, holds: str) -> None:
    name = begin(server, "take me")

    answer = page.request.get(f"{server.url}/ui/s/{name}/export?format={form}")
    assert holds in answer.text() and "take me" in answer.text()
    assert "attachment" in answer.headers["content-disposition"]


def attacked(tx: Transaction) -> str:
    """A session with an attack in everything that a session has."""
    every = " ".join(ATTACKS)
    name = "hf-00000000000000000000xss001"
    fact = SessionOpened(source="gateway", channel=ATTACKS[1], model=ATTACKS[2], title=every, workdir=ATTACKS[1])
    sessions.create(tx, name, fact, at=now())
    call = ToolCall(ATTACKS[1], ATTACKS[0], '{"command": "<script>window.hit=1</script>"}')
    said = [
        *(Text(attack) for attack in ATTACKS),
        Image(ATTACKS[1]),
        Image("https://evil.example/x.png"),
        File("javascript:window.hit=1", ATTACKS[0]),
    ]
    log.append_unheld(
        tx,
        name,
        [
            TurnStarted(turn_id="t"),
            UserSaid(turn_id="t", parts=tuple(said), name=ATTACKS[0]),
            ModelSaid(
                turn_id="t", parts=(Reasoning(text=every), *map(Text, ATTACKS), call), model=ATTACKS[1], partial=True
            ),
            TurnEnded(turn_id="t", outcome="failed", reason=every),
        ],
        at=now(),
    )
    return name


def test_nothing_that_others_wrote_runs_or_fetches_anything(page: Page, server: Server) -> None:
    [name] = stock(server.home, attacked)
    for path in (f"/ui/s/{name}", "/", "/?q=script", "/ui/space", "/ui/health", f"/?channel={ATTACKS[1]}"):
        page.goto(server.url + path)
        page.wait_for_load_state("load")
        assert page.evaluate("window.hit") is None
    page.goto(f"{server.url}/ui/s/{name}")
    page.locator("#why summary").click()
    expect(page.locator("#why dd").first).to_be_visible()
    for details in page.locator("#log details").all():
        details.evaluate("one => { one.open = true }")

    assert page.evaluate("window.hit") is None
    assert page.locator(".said.user .who").inner_text() == ATTACKS[0], "the sender has a name"
    assert page.locator("#log script, #log svg, #log img, #log [onerror], #log [hx-trigger=load]").count() == 0
    targets = page.locator("#log a").evaluate_all("all => all.map((one) => one.protocol)")
    assert set(targets) <= {"http:", "https:"}
    assert "\u202e" not in page.content()


def test_attacks_that_come_while_the_page_is_open_do_nothing_either(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{begin(server, 'hello')}")
    for attack in ATTACKS[:4]:
        page.fill("#words", attack)
        page.press("#words", "Enter")
        expect(page.locator("#words")).to_have_value("")
    expect(page.locator(REPLIES)).to_have_count(5)
    page.fill("#title", ATTACKS[1])
    act(page, "Rename")
    expect(page.locator("#head h1")).to_have_text(ATTACKS[1])

    assert page.evaluate("window.hit") is None


def test_a_picture_in_a_message_is_shown_from_here(page: Page, server: Server) -> None:
    def work(tx: Transaction) -> str:
        found, _ = sessions.create(tx, "hf-00000000000000000000pic001", SessionOpened(source="api"), at=now())
        parts = (Text("look"), Image(PIXEL))
        log.append_unheld(
            tx,
            found.id,
            [TurnStarted(turn_id="t"), UserSaid(turn_id="t", parts=parts), TurnEnded(turn_id="t", outcome="done")],
            at=now(),
        )
        return found.id

    [name] = stock(server.home, work)
    page.goto(f"{server.url}/ui/s/{name}")

    picture = page.locator(".picture img")
    picture.scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('.picture img').naturalWidth === 1")


def test_a_server_that_is_killed_under_the_page_comes_back_without_a_gap_or_a_repeat(
    own_page: Page, own: Server
) -> None:
    name = begin(own, "hello")
    own_page.goto(f"{own.url}/ui/s/{name}")
    own_page.evaluate("window.stayed = true")
    asked = {"model": own.model("slow"), "messages": [{"role": "user", "content": "go"}]}
    with own.http() as http, pytest.raises(httpx.ReadTimeout):  # the client leaves; its turn goes on
        http.post("/v1/chat/completions", json=asked, headers={"x-session-id": name}, timeout=1.0)
    expect(own_page.locator("#draft .text")).to_contain_text("word3 ")
    own.kill()
    expect(own_page.locator("#link")).to_have_class(re.compile("off"))
    own.restart()

    expect(own_page.locator(REPLIES, has_text="word149")).to_have_count(1)
    expect(own_page.locator("#link")).not_to_have_class(re.compile("off"))
    expect(own_page.locator("#draft")).to_be_hidden()
    assert own_page.evaluate("window.stayed"), "the page was not loaded again"
    shown = own_page.locator("#log .item:not([hidden])").evaluate_all("all => all.map((one) => one.id)")
    own_page.reload()
    expect(own_page.locator(REPLIES, has_text="word149")).to_have_count(1)
    again = own_page.locator("#log .item:not([hidden])").evaluate_all("all => all.map((one) => one.id)")
    assert shown == again
    assert SLOWLY in own_page.locator(REPLIES).last.inner_text()


def test_fifty_thousand_messages_open_at_their_end_and_lead_back_to_the_first(page: Page, server: Server) -> None:
    name = "hf-00000000000000000000big001"

    def create(tx: Transaction) -> None:
        sessions.create(tx, name, SessionOpened(source="api", title="A long one"), at=now())

    def some(first: int):  # type: ignore[no-untyped-def] # a function for each part
        said = [UserSaid(turn_id="t", parts=(Text(f"message {n}"),)) for n in range(first, first + 2500)]
        return lambda tx: log.append_unheld(tx, name, said, at=now())

    stock(server.home, create, *(some(first) for first in range(0, 50_000, 2500)))
    page.goto(f"{server.url}/ui/s/{name}")

    expect(page.locator(".said.user").last).to_contain_text("message 49999")
    assert page.locator(".item.said.user").count() <= 300
    page.evaluate("scrollTo(0, 0)")
    expect(page.locator(".said.user", has_text="message 49800")).to_have_count(1)
    page.goto(f"{server.url}/ui/s/{name}?at=2#e2")
    expect(page.locator("#e2")).to_contain_text("message 0")
    page.get_by_role("link", name="To the end").click()
    expect(page.locator(".said.user").last).to_contain_text("message 49999")


def test_a_line_of_four_megabytes_breaks_nothing(page: Page, server: Server) -> None:
    line = "<b>" + "x" * 4_000_000

    def work(tx: Transaction) -> str:
        found, _ = sessions.create(
            tx, "hf-00000000000000000000long01", SessionOpened(source="api", title="y" * 5000), at=now()
        )
        events = [
            TurnStarted(turn_id="t"),
            UserSaid(turn_id="t", parts=(Text(line),)),
            ModelSaid(turn_id="t", parts=(Text("`" * 30_000),)),
            TurnEnded(turn_id="t", outcome="done"),
        ]
        log.append_unheld(tx, found.id, events, at=now())
        return found.id

    [name] = stock(server.home, work)
    page.goto(f"{server.url}/ui/s/{name}")

    expect(page.locator(".cut a").first).to_have_text("All 4,000,003 characters")
    assert len(page.content()) < 200_000
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    raw = page.request.get(f"{server.url}/ui/s/{name}/raw/3")
    assert raw.headers["content-type"] == "text/plain; charset=utf-8" and len(raw.text()) == len(line)
