"""A session's page in a real browser: its content, its actions and its live updates."""

import json
import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from bench import population
from holdfast.model.event import ModelSaid, SessionOpened, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import File, Image, Reasoning, Text, ToolCall
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions
from tests.api import native_client
from tests.api.serving import SLOWLY, Server, ask, session
from tests.dashboard.conftest import log_in, serving, wait_until
from tests.dashboard.store_writer import now, stock

LIMIT = 30_000
REPLIES = ".message.model:not(.drafting)"
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


def start(server: Server, text: str, model: str = "holdfast") -> str:
    with server.http() as http:
        return session(ask(http, text, model=model))


RECORD_TITLES = """() => {
  window.titles = [];
  const record = () => window.titles.push(document.title);
  new MutationObserver(record).observe(document.querySelector("title"), { childList: true });
}"""


def click_action(page: Page, name: str, *, confirm: bool = False) -> None:
    page.get_by_role("button", name=name, exact=True).click()
    if confirm:
        page.locator("#confirm button[value=yes]").click()


def test_a_message_is_sent_and_answered_on_the_page(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{start(server, 'first words')}")
    page.fill("#message-text", "second **words**")
    page.press("#message-text", "Enter")

    expect(page.locator(".message.user", has_text="second words")).to_have_count(1)
    expect(page.locator(REPLIES)).to_have_count(2)
    expect(page.locator(".message.model strong")).to_have_text("words")
    expect(page.locator("#message-text")).to_have_value("")
    expect(page.locator("#head .pill")).to_have_text("idle")


def test_a_session_is_started_from_the_list(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/")
    page.fill("#new-message", "Is anybody there?")
    page.press("#new-message", "Enter")

    page.wait_for_url(re.compile(r"/ui/s/hf-"))
    expect(page.locator(".message.user")).to_have_text(re.compile("Is anybody there"))
    expect(page.locator(REPLIES)).to_have_count(1)


def test_the_plan_is_shown_live_and_the_current_step_in_the_header(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{start(server, 'hello', server.model('tools'))}")
    items = '[{"content": "Dig", "status": "completed"}, {"content": "<b>Plant</b>", "status": "in_progress"}]'
    page.fill("#message-text", f'use tool todo {{"items": {items}}}')
    page.press("#message-text", "Enter")

    expect(page.locator(".item.plan li")).to_have_text([re.compile("Dig"), re.compile("<b>Plant</b>")])
    expect(page.locator("#head .plan-line")).to_have_text(re.compile("1 of 2 completed.*<b>Plant</b>"))


def test_a_tool_call_is_folded_and_opens(page: Page, server: Server) -> None:
    name = start(server, 'use tool terminal {"command": "echo seen"}', server.model("tools"))
    page.goto(f"{server.url}/ui/s/{name}")

    card = page.locator("details.call")
    expect(card).to_have_class(re.compile("o-ok"))
    expect(card.locator(".details-body")).to_be_hidden()
    card.locator("summary").click()
    expect(card.locator(".details-body pre").first).to_contain_text("echo seen")
    expect(card.locator(".details-body pre").last).to_contain_text("seen")


def test_the_output_of_a_running_command_is_shown_live(page: Page, server: Server, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    command = f"echo '<b>first</b>'; until [ -e {gate} ]; do sleep 0.1; done; echo last"
    page.goto(f"{server.url}/ui/s/{start(server, 'hello', server.model('tools'))}")
    page.fill("#message-text", f"use tool terminal {json.dumps({'command': command})}")
    page.press("#message-text", "Enter")

    expect(page.locator(".call.o-running .live-output")).to_have_text("<b>first</b>\n")
    later = page.context.new_page()
    later.goto(page.url)
    expect(later.locator(".call.o-running .live-output")).to_have_text("<b>first</b>\n")
    gate.touch()
    expect(page.locator(".call.o-ok .details-body")).to_contain_text("last")
    expect(page.locator(".live-output")).to_have_count(0)
    expect(page.locator(".call .details-body")).to_be_hidden()


def test_a_reply_is_shown_while_it_streams_and_can_be_interrupted(page: Page, server: Server) -> None:
    name = start(server, "hello")
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
        click_action(page, "Interrupt")

        expect(page.locator(".note.bad", has_text="The turn was interrupted")).to_have_count(1)
    expect(page.locator("#draft")).to_be_hidden()
    expect(page.locator(".message.model.partial")).to_contain_text("word0 word1")


@pytest.mark.parametrize("answer", ["Allow", "Deny"])
def test_a_question_is_answered(page: Page, server: Server, answer: str) -> None:
    worker = f"worker-{answer}".lower()
    stock(server.home, lambda tx: population.hire(tx, worker, "chat", now()))
    number = 700 + len(answer)
    [name] = stock(server.home, lambda tx: population.showcase(tx, number, worker, now()))
    page.goto(f"{server.url}/ui/s/{name}")
    page.locator(".question input[name=reason]").fill("because I say so")
    click_action(page, answer)

    state = "allowed" if answer == "Allow" else "denied"
    expect(page.locator(f".question.q-{state}")).to_contain_text("by the dashboard: because I say so")
    expect(page.locator(".question form")).to_have_count(0)


def test_open_questions_have_a_page_a_badge_a_place_in_the_title_and_a_filter(page: Page, server: Server) -> None:
    stock(server.home, lambda tx: population.hire(tx, "worker-asks", "chat", now()))
    [name] = stock(server.home, lambda tx: population.showcase(tx, 720, "worker-asks", now()))
    page.goto(f"{server.url}/ui/questions")
    card = page.locator("li.card", has=page.locator(f'a[href="/ui/s/{name}"]'))

    expect(page.locator("#question-count")).to_have_text(re.compile(r"^\d+$"))
    expect(page).to_have_title(re.compile(r"^\(\d+\) Questions"))
    expect(card.locator("pre")).not_to_be_empty()
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 500})
        hidden = "one => one.scrollHeight - one.clientHeight"
        assert card.locator("pre").evaluate(hidden) == 0, "all that would run is shown without scrolling in a box"
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{server.url}/ui/s/{start(server, 'another session')}")
    expect(page).to_have_title(re.compile(r"^\(\d+\) another"))
    page.evaluate(RECORD_TITLES)
    page.fill("#title", "Renamed meanwhile")
    click_action(page, "Rename")
    expect(page).to_have_title(re.compile("Renamed meanwhile"))
    assert [one for one in page.evaluate("window.titles") if not one.startswith("(")] == [], (
        "an update keeps the number"
    )
    page.goto(f"{server.url}/?state=asking")
    expect(page.locator(f"#row-{name} .state")).to_have_text("needs you")
    expect(page.locator("#question-count")).to_be_visible()
    page.keyboard.press("a")
    page.wait_for_url(f"{server.url}/ui/questions")
    page.keyboard.press("a")
    expect(page.locator(".answers [value=allow]").first).to_be_focused()
    card.locator("input[name=reason]").fill("not now")
    card.get_by_role("button", name="Deny").click()
    expect(card).to_have_count(0)
    page.goto(f"{server.url}/ui/s/{name}")
    expect(page.locator(".question.q-denied")).to_contain_text("not now")


def test_a_button_allows_all_commands_with_the_prefix_it_shows(browser: Browser, tmp_path: Path) -> None:
    with Server(tmp_path / "home", approval_seconds=600) as server, server.http() as http:
        page = log_in(browser.new_context(), server)
        session_id = native_client.begin(http, model=server.model("tools"))

        first = native_client.say(http, session_id, 'Go\nuse tool terminal {"command": "rm -rf old"}')
        page.goto(f"{server.url}/ui/s/{session_id}")
        expect(page.locator(".question form")).to_have_count(1)
        page.goto(f"{server.url}/ui/questions")
        page.get_by_role("button", name="Always allow commands beginning with rm -rf", exact=True).click()

        assert native_client.wait_for_end(http, session_id, first)["state"] == "done"
        second = native_client.say(http, session_id, 'Go\nuse tool terminal {"command": "rm -rf older"}')
        messages = native_client.wait_for_end(http, session_id, second)["messages"]
        assert [one["outcome"] for one in messages if one["role"] == "tool"] == ["ok"], (
            "the second command needed no approval"
        )
        [rule] = http.get("/v1/approval-rules").json()["rules"]
        assert (rule["match"], rule["pattern"], rule["created_by"]) == ("prefix", ["rm", "-rf"], "the dashboard")
        assert page.problems == []  # type: ignore[attr-defined]


def test_unknown_outcomes_interrupted_text_and_compactions_are_marked(page: Page, server: Server) -> None:
    stock(server.home, lambda tx: population.hire(tx, "worker-marks", "chat", now()))
    [name] = stock(server.home, lambda tx: population.showcase(tx, 710, "worker-marks", now()))
    page.goto(f"{server.url}/ui/s/{name}")

    expect(page.locator(".o-unknown .outcome")).to_have_text("outcome unknown")
    expect(page.locator(".partial .tag")).to_have_text("interrupted")
    compaction = page.locator("details.compaction")
    expect(compaction.locator("summary")).to_contain_text("48,210 → 6,140 tokens")
    expect(compaction.locator(".details-body")).to_be_hidden()
    compaction.locator("summary").click()
    expect(compaction.locator(".details-body strong")).to_have_text("Found so far:")
    expect(page.locator(".text table td.right").first).to_have_text("8")


def test_a_session_is_renamed_ended_reopened_pinned_and_forked(page: Page, server: Server) -> None:
    name = start(server, "to be changed")
    page.goto(f"{server.url}/ui/s/{name}")
    page.fill("#title", "A better title")
    click_action(page, "Rename")
    expect(page.locator("#head h1")).to_have_text("A better title")
    click_action(page, "End", confirm=True)
    expect(page.locator("#head .pill")).to_have_text("ended")
    click_action(page, "Reopen")
    expect(page.locator("#head .pill")).to_have_text("idle")
    click_action(page, "Pin")
    expect(page.locator("#head .tag", has_text="pinned")).to_have_count(1)
    page.fill("#at", "3")
    click_action(page, "Fork")

    page.wait_for_url(lambda url: name not in url)
    expect(page.locator(".rail", has_text=f"Forked from {name}")).to_have_count(1)
    expect(page.get_by_text("cancelled")).to_have_count(0)


def test_the_offered_actions_follow_the_state(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{start(server, 'hello')}")
    expect(page.get_by_role("button", name="Reopen")).to_have_count(0)
    click_action(page, "End", confirm=True)

    expect(page.get_by_role("button", name="Reopen")).to_have_count(1)
    expect(page.get_by_role("button", name="End", exact=True)).to_have_count(0)
    click_action(page, "Pin")
    click_action(page, "Unpin")
    expect(page.get_by_role("button", name="Pin", exact=True)).to_have_count(1)


def test_a_session_is_forked_at_a_message(page: Page, server: Server) -> None:
    name = start(server, "keep this")
    with server.http() as http:
        ask(http, "and leave this", headers={"x-session-id": name})
    page.goto(f"{server.url}/ui/s/{name}")
    first = page.locator(REPLIES).first
    first.hover()
    first.get_by_role("button", name="fork here").click()
    page.wait_for_url(lambda url: name not in url)

    expect(page.locator(".message.user")).to_have_count(1)
    expect(page.locator(".rail", has_text=f"Forked from {name}")).to_have_count(1)


def test_queued_messages_are_shown(page: Page, server: Server) -> None:
    name = start(server, "hello")
    page.goto(f"{server.url}/ui/s/{name}")
    asked = {"model": server.model("silent"), "messages": [{"role": "user", "content": "go"}], "stream": True}
    with (
        server.http() as http,
        http.stream("POST", "/v1/chat/completions", json=asked, headers={"x-session-id": name}),
    ):
        expect(page.locator("#head .pill")).to_have_text("running")
        page.fill("#message-text", "Are you **still** there?")
        page.press("#message-text", "Enter")

        expect(page.locator("#queued .waiting")).to_contain_text("Are you **still** there?")
        click_action(page, "Interrupt")
    expect(page.locator(".message.user", has_text="still")).to_have_count(1)
    expect(page.locator("#queued .waiting")).to_have_count(0)


def test_a_message_edited_after_a_lost_response_is_sent_as_a_new_one(page: Page, server: Server) -> None:
    name = start(server, "hello")
    page.goto(f"{server.url}/ui/s/{name}")

    def lose(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route("**/say", lose)
    page.fill("#message-text", "said once")
    page.press("#message-text", "Enter")
    expect(page.locator(".notice.bad")).to_contain_text("Check the result once it is back")
    expect(page.locator(".message.user", has_text="said once")).to_have_count(1)
    page.unroute("**/say")
    page.press("#message-text", "Enter")
    expect(page.locator("#message-text")).to_have_value("")
    expect(page.locator(".message.user", has_text="said once")).to_have_count(1)
    page.route("**/say", lose)
    page.fill("#message-text", "said twice")
    page.press("#message-text", "Enter")
    expect(page.locator(".message.user", has_text="said twice")).to_have_count(1)
    page.unroute("**/say")
    page.fill("#message-text", "said otherwise")
    page.press("#message-text", "Enter")

    expect(page.locator(".message.user", has_text="said otherwise")).to_have_count(1)
    expect(page.locator(REPLIES)).to_have_count(4)


def test_an_unsent_message_survives_a_reload(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{start(server, 'hello')}")
    page.fill("#message-text", "half a thought")
    page.reload()
    expect(page.locator("#message-text")).to_have_value("half a thought")
    page.press("#message-text", "Enter")
    expect(page.locator(".message.user", has_text="half a thought")).to_have_count(1)
    page.reload()

    expect(page.locator("#message-text")).to_have_value("")


def test_a_screen_reader_reads_a_reply_once(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{start(server, 'hello')}")

    assert page.get_by_role("log").count() == 1
    assert page.locator("#draft").get_attribute("aria-live") == "off"


def test_a_confirmation_can_be_cancelled(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{start(server, 'stay')}")
    click_action(page, "End")
    page.locator("#confirm button[value=no]").click()
    page.reload()

    expect(page.locator("#head .pill")).to_have_text("idle")


def test_a_session_is_moved_to_the_trash_and_restored(page: Page, server: Server) -> None:
    name = start(server, "to be thrown away")
    page.goto(f"{server.url}/ui/s/{name}")
    click_action(page, "Move to trash", confirm=True)
    expect(page.locator("#head .tag")).to_have_text("in trash")
    expect(page.locator("#composer, #title, #at, #about")).to_have_count(0)
    click_action(page, "Restore")

    expect(page.locator("#composer")).to_have_count(1)


def add_long_session(tx: Transaction) -> str:
    text = "many words to be summarized " * 60
    turns = [population.turn(f"turn-{number}", text, text) for number in range(14)]
    return population.add(tx, 730, [event for turn in turns for event in turn], now(), source="api")


def test_compaction_is_rejected_done_and_undone(page: Page, server: Server) -> None:
    name = start(server, "short")
    page.goto(f"{server.url}/ui/s/{name}")
    expect(page.get_by_role("button", name="Undo compaction")).to_have_count(0)
    expect(page.get_by_role("button", name="Compact")).to_be_hidden()
    page.locator("form[action$='/compact']").evaluate("form => form.requestSubmit()")
    expect(page.locator(".notice.bad")).to_contain_text("Not compacted")

    [name] = stock(server.home, add_long_session)
    page.goto(f"{server.url}/ui/s/{name}")
    click_action(page, "Compact")
    expect(page.locator("details.compaction")).to_have_count(1)
    click_action(page, "Undo compaction")
    expect(page.locator(".note", has_text="A compaction was undone")).to_have_count(1)


def test_a_turn_is_undone(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{start(server, 'a slip of the tongue')}")
    with page.expect_navigation():
        click_action(page, "Undo turn", confirm=True)

    expect(page.locator(".message.user.undone")).to_have_count(1)
    expect(page.get_by_role("button", name="Undo turn")).to_have_count(0)
    page.fill("#message-text", "another try")
    page.press("#message-text", "Enter")
    expect(page.get_by_role("button", name="Undo turn")).to_have_count(1)


def test_a_running_session_and_one_in_the_trash_offer_only_what_they_allow(page: Page, server: Server) -> None:
    name = start(server, "hello")
    page.goto(f"{server.url}/ui/s/{name}")
    asked = {"model": server.model("silent"), "messages": [{"role": "user", "content": "go"}], "stream": True}
    with (
        server.http() as http,
        http.stream("POST", "/v1/chat/completions", json=asked, headers={"x-session-id": name}),
    ):
        expect(page.locator("#head .pill")).to_have_text("running")
        for button in ("Compact", "End", "Move to trash", "Undo turn", "Reopen"):
            expect(page.get_by_role("button", name=button, exact=True)).to_be_hidden()
        expect(page.get_by_role("button", name="Interrupt")).to_be_visible()
        page.keyboard.press("i")
    expect(page.locator("#head .pill")).to_have_text("idle")
    expect(page.get_by_role("button", name="Undo turn")).to_be_visible()
    click_action(page, "Move to trash", confirm=True)
    expect(page.locator("#head .tag")).to_have_text("in trash")

    buttons = page.locator("main button:visible")
    expect(buttons).to_have_text(["Restore"])


def test_the_state_is_explained(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{start(server, 'why?')}")
    page.locator("#explanation summary").click()

    expect(page.locator("#explanation dd").first).to_have_text("waiting")
    expect(page.locator("#explanation")).to_contain_text("Context")
    expect(page.locator("#explanation dt", has_text="Terminal").locator("xpath=following-sibling::dd[1]")).to_have_text(
        "local"
    )
    click_action(page, "End", confirm=True)
    expect(page.locator("#explanation dd").first).to_have_text("ended")


@pytest.mark.parametrize(
    ("form", "holds"), [("jsonl", '"format":"holdfast-log"'), ("md", "# "), ("html", "<!doctype html>")]
)
def test_a_session_is_exported(page: Page, server: Server, form: str, holds: str) -> None:
    name = start(server, "take me")

    answer = page.request.get(f"{server.url}/ui/s/{name}/export?format={form}")
    assert holds in answer.text() and "take me" in answer.text()
    assert "attachment" in answer.headers["content-disposition"]


def add_attacked_session(tx: Transaction) -> str:
    """Add a session with an attack in each of its texts."""
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


def test_untrusted_text_runs_and_loads_nothing(page: Page, server: Server) -> None:
    [name] = stock(server.home, add_attacked_session)
    for path in (f"/ui/s/{name}", "/", "/?q=script", "/ui/space", "/ui/health", f"/?channel={ATTACKS[1]}"):
        page.goto(server.url + path)
        page.wait_for_load_state("load")
        assert page.evaluate("window.hit") is None
    page.goto(f"{server.url}/ui/s/{name}")
    page.locator("#explanation summary").click()
    expect(page.locator("#explanation dd").first).to_be_visible()
    for details in page.locator("#log details").all():
        details.evaluate("one => { one.open = true }")

    assert page.evaluate("window.hit") is None
    assert page.locator(".message.user .author").inner_text() == ATTACKS[0], "the sender's name is text"
    assert page.locator("#log script, #log svg, #log img, #log [onerror], #log [hx-trigger=load]").count() == 0
    targets = page.locator("#log a").evaluate_all("all => all.map((one) => one.protocol)")
    assert set(targets) <= {"http:", "https:"}
    assert "\u202e" not in page.content()


def test_untrusted_text_in_live_updates_runs_nothing(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{start(server, 'hello')}")
    for attack in ATTACKS[:4]:
        page.fill("#message-text", attack)
        page.press("#message-text", "Enter")
        expect(page.locator("#message-text")).to_have_value("")
    expect(page.locator(REPLIES)).to_have_count(5)
    page.fill("#title", ATTACKS[1])
    click_action(page, "Rename")
    expect(page.locator("#head h1")).to_have_text(ATTACKS[1])

    assert page.evaluate("window.hit") is None


def test_an_image_in_a_message_is_served_locally(page: Page, server: Server) -> None:
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

    picture = page.locator(".image img")
    picture.scroll_into_view_if_needed()
    expect(picture).to_have_js_property("naturalWidth", 1)


def test_a_page_continues_without_gaps_or_repeats_after_the_server_is_killed(own_page: Page, own: Server) -> None:
    name = start(own, "hello")
    own_page.goto(f"{own.url}/ui/s/{name}")
    own_page.evaluate("window.stayed = true")
    asked = {"model": own.model("slow"), "messages": [{"role": "user", "content": "go"}]}
    with own.http() as http, pytest.raises(httpx.ReadTimeout):  # the client disconnects; its turn continues
        http.post("/v1/chat/completions", json=asked, headers={"x-session-id": name}, timeout=1.0)
    expect(own_page.locator("#draft .text")).to_contain_text("word3 ")
    own.kill()
    expect(own_page.locator("#connection")).to_have_class(re.compile("offline"))
    own.restart()

    expect(own_page.locator(REPLIES, has_text="word149")).to_have_count(1)
    expect(own_page.locator("#connection")).not_to_have_class(re.compile("offline"))
    expect(own_page.locator("#draft")).to_be_hidden()
    assert own_page.evaluate("window.stayed"), "the page was not reloaded"
    shown = own_page.locator("#log .item:not([hidden])").evaluate_all("all => all.map((one) => one.id)")
    own_page.reload()
    expect(own_page.locator(REPLIES, has_text="word149")).to_have_count(1)
    again = own_page.locator("#log .item:not([hidden])").evaluate_all("all => all.map((one) => one.id)")
    assert shown == again
    assert SLOWLY in own_page.locator(REPLIES).last.inner_text()


def test_a_log_of_fifty_thousand_messages_opens_at_its_end(page: Page, server: Server) -> None:
    name = "hf-00000000000000000000big001"

    def create(tx: Transaction) -> None:
        sessions.create(tx, name, SessionOpened(source="api", title="A long one"), at=now())

    def some(first: int):  # type: ignore[no-untyped-def] # a function for each part
        said = [UserSaid(turn_id="t", parts=(Text(f"message {n}"),)) for n in range(first, first + 2500)]
        return lambda tx: log.append_unheld(tx, name, said, at=now())

    stock(server.home, create, *(some(first) for first in range(0, 50_000, 2500)))
    page.goto(f"{server.url}/ui/s/{name}")

    expect(page.locator(".message.user").last).to_contain_text("message 49999")
    assert page.locator(".item.message.user").count() <= 300
    page.evaluate("scrollTo(0, 0)")
    expect(page.locator(".message.user", has_text="message 49800")).to_have_count(1)
    page.goto(f"{server.url}/ui/s/{name}?at=2#e2")
    expect(page.locator("#e2")).to_contain_text("message 0")
    page.get_by_role("link", name="Go to end").click()
    expect(page.locator(".message.user").last).to_contain_text("message 49999")


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

    expect(page.locator(".truncated a").first).to_have_text("Show all 4,000,003 characters")
    assert len(page.content()) < 200_000
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    raw = page.request.get(f"{server.url}/ui/s/{name}/raw/3")
    assert raw.headers["content-type"] == "text/plain; charset=utf-8" and len(raw.text()) == len(line)


def test_sub_agents_are_shown_as_a_tree(page: Page, server: Server) -> None:
    call = json.dumps({"task": "Count the words", "model": server.model("echo")})
    parent = start(server, f"use tool delegate {call}", model=server.model("tools"))
    page.goto(f"{server.url}/ui/s/{parent}")

    expect(page.locator(".agents li")).to_have_text(re.compile("Count the words.*done", re.S))
    page.click(".agents a")
    expect(page.locator("#head .meta")).to_contain_text(f"Sub-agent of {parent}")
    page.goto(server.url)
    expect(page.locator(f"#row-{parent} + .row.child.depth-1")).to_contain_text("Count the words")


CODE = """Look:

```python
def greet(name: str) -> str:
    return f"<b>{name}</b>"
```
| a very long heading of a column | another one | unbreakable_word_in_a_narrow_table |
|---|---|---|
| x | y | incomprehensibilities |
"""


def test_code_is_highlighted_and_can_be_copied_and_tables_scroll(page: Page, server: Server) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server.url}/ui/s/{start(server, CODE)}")
    block = page.locator(f"{REPLIES} .code").first
    block.locator("[data-copy]").click()

    expect(block.locator("[data-copy]")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == CODE.split("```")[1].removeprefix("python\n").rstrip()
    expect(block.locator("code .k").first).to_have_text("def")
    expect(block.locator("code b")).to_have_count(0)
    scrolls = page.locator(f"{REPLIES} .scroll").first.evaluate("one => one.scrollWidth > one.clientWidth")
    assert scrolls, "a wide table scrolls"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page does not"


def test_a_failed_turn_is_shown_as_failed_and_can_be_retried(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path / "home", alone="fails") as server, browser.new_context() as context:
        _fail_and_retry(log_in(context, server), server)


def _fail_and_retry(page: Page, server: Server) -> None:
    with server.http() as http:
        session_id = http.post("/v1/sessions", json={}).json()["id"]
        http.post(f"/v1/sessions/{session_id}/turns", json={"input": "please"})
    page.goto(f"{server.url}/ui/s/{session_id}")
    expect(page.locator("#head .pill")).to_have_text("failed")
    expect(page.locator("#head .warning")).to_contain_text("I will not.")
    page.goto(f"{server.url}/")
    expect(page.locator(f"#row-{session_id} .state")).to_contain_text("failed: ")
    page.goto(f"{server.url}/ui/s/{session_id}")
    click_action(page, "Retry turn")

    expect(page.locator(".message.user")).to_have_count(2)
    expect(page.locator(".message.user.undone")).to_have_count(1)
    expect(page.locator("#head .pill")).to_have_text("failed")  # the script fails for every first message


@pytest.mark.parametrize("width", [1440, 1000])
def test_a_notice_covers_no_button_of_the_composer(page: Page, server: Server, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{server.url}/ui/s/{start(server, 'noticed')}")
    page.evaluate("document.querySelector('#notices').innerHTML = '<div class=\"notice bad\"><p>Refused</p></div>'")
    notice = page.locator(".notice").bounding_box()
    composer = page.locator("#composer").bounding_box()

    assert notice is not None and composer is not None
    assert notice["y"] + notice["height"] < composer["y"]


@pytest.mark.parametrize(("width", "below"), [(1440, 30), (1000, 30), (390, 90)])
def test_the_composer_of_a_short_session_is_at_the_bottom(page: Page, server: Server, width: int, below: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(f"{server.url}/ui/s/{start(server, 'short')}")
    composer = page.locator("#composer").bounding_box()

    assert composer is not None and 844 - below < composer["y"] + composer["height"] < 844
    assert page.evaluate("document.documentElement.scrollHeight - innerHeight") < 20


def test_on_a_phone_the_title_comes_first_and_the_actions_are_a_sheet(page: Page, server: Server) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server.url}/ui/s/{start(server, 'on the road' + ' and on' * 900)}")
    expect(page.locator("#composer")).to_be_in_viewport()
    assert page.evaluate("scrollY") > 500, "a long session opens at its end"
    wait_until(page, "document.querySelector('#head h1').getBoundingClientRect().y < 120")
    expect(page.get_by_role("button", name="Pin", exact=True)).to_be_hidden()
    page.get_by_role("link", name="Actions").click()
    click_action(page, "Pin")
    expect(page.get_by_role("button", name="Unpin", exact=True)).to_be_visible()
    page.locator(".sheet-head a").click()

    expect(page.get_by_role("button", name="Unpin", exact=True)).to_be_hidden()
    send, notice = page.get_by_role("button", name="Send").bounding_box(), page.locator("#notices").bounding_box()
    assert send is not None and notice is not None
    assert notice["y"] + notice["height"] < send["y"], "a notice does not cover the button"
