"""How logs become items, texts become HTML and a day becomes charts: pure, and without a browser."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dashboard import day, markdown, pages, space
from holdfast.dashboard.session import deeds_of
from holdfast.dashboard.story import Story
from holdfast.model.entry import Entry, encode
from holdfast.model.event import (
    ApprovalAsked,
    Ended,
    Event,
    ModelSaid,
    Rewound,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    UserSaid,
)
from holdfast.model.message import Text, ToolCall
from holdfast.model.session import Session, Summary
from holdfast.model.times import DAY, SECOND
from holdfast.store.board import Moment
from tests.model.strategies import events

TAGS = {"p", "br", "em", "strong", "s", "code", "pre", "ul", "ol", "li", "blockquote", "hr", "a", "h4", "h5", "h6"}
TAGS |= {"table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"class", "href", "rel", "target", "start"}
PIECES = [
    "<",
    ">",
    "script",
    "](",
    "![",
    "[",
    "]",
    "(",
    ")",
    "javascript:",
    "https://x.example/",
    "`",
    "```\n",
    "|",
    "\n",
    " ",
    "*",
    "_",
]
PIECES += [
    "onerror=",
    '"',
    "'",
    "&#x3c;",
    "- ",
    "> ",
    "# ",
    "1. ",
    "\\",
    "data:text/html,",
    "\u202e",
    "\ud800",
    "a",
    "<svg onload=x>",
]


class Checker(HTMLParser):
    """Fails for a tag, an attribute or an address that Markdown must not make."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        for name, value in attrs:
            assert name in ATTRIBUTES, name
            assert name != "href" or (value or "").lower().startswith(("http://", "https://", "mailto:")), value


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_markdown_makes_only_what_is_harmless(text: str) -> None:
    html = str(markdown.render(text))

    Checker().feed(html)
    html.encode()


@pytest.mark.parametrize(
    "text", ["> " * 200 + "deep", "- " * 200 + "deep", "[a]: hidden words of a definition", "x" * 50_000]
)
def test_nothing_that_was_said_is_hidden_by_markdown(text: str) -> None:
    words = text.rsplit(maxsplit=1)[-1]

    assert words in str(markdown.render(text))


def test_markdown_looks_as_it_should() -> None:
    html = str(
        markdown.render("# Title\n\nsome *words*, `code`\n\n|a|b|\n|-|-:|\n|1|2|\n\n3. three\n\n[x](https://x.example)")
    )

    assert "<h4>Title</h4>" in html and "<em>words</em>" in html and '<td class="right">2</td>' in html
    assert '<ol start="3">' in html
    assert '<a href="https://x.example" rel="noreferrer noopener" target="_blank">x</a>' in html


def told(*facts: Event) -> Story:
    story = Story()
    story.tell(Entry(n, n * SECOND, fact) for n, fact in enumerate(facts, 1))
    return story


CALL = ModelSaid(turn_id="t", parts=(Text("I look."), ToolCall("c", "terminal", '{"command": "ls"}')))


def test_a_call_and_its_result_are_one_item() -> None:
    result = ToolEnded(turn_id="t", call_id="c", outcome="ok", parts=(Text("a.txt"),), millis=7)
    story = told(TurnStarted(turn_id="t"), CALL, ToolStarted(turn_id="t", call_id="c", name="terminal"), result)

    [said, card] = story.items.values()
    assert (said.kind, card.kind) == ("model", "call")
    assert (card.state, card.detail, card.blocks[0].text, card.result_seq) == ("ok", "ls", "a.txt", 4)


def test_a_result_whose_call_is_on_another_page_stands_alone() -> None:
    [card] = told(ToolEnded(turn_id="t", call_id="c", name="terminal", outcome="unknown")).items.values()

    assert (card.id, card.label, card.state) == ("e1", "terminal", "unknown")


def test_a_question_is_closed_by_the_end_of_its_turn() -> None:
    asked = ApprovalAsked(turn_id="t", call_id="c", question="May I?")
    [question] = told(asked, TurnEnded(turn_id="t", outcome="done")).items.values()

    assert question.state == "closed"


def test_what_was_taken_back_is_marked_and_what_came_before_is_not() -> None:
    story = told(
        UserSaid(turn_id="t", parts=(Text("stays"),)), UserSaid(turn_id="u", parts=(Text("goes"),)), Rewound(to_seq=1)
    )

    assert [item.gone for item in story.items.values()] == [False, True, False]


@given(st.lists(events(), max_size=12))
def test_every_log_can_be_drawn(facts: list[Event]) -> None:
    story = told(*facts)

    for item in story.items.values():
        drawn = pages.fragment("item.html", item=item, session=type("Session", (), {"id": "hf-x"}))
        assert f'id="{item.id}"' in drawn
        assert "<script" not in drawn


def test_turns_become_charts_of_a_day() -> None:
    now = 10 * DAY
    ended = encode(TurnEnded(turn_id="t", outcome="failed", usage=Usage(tokens_in=5, tokens_out=2)))
    moments = [
        Moment(1, "s", "turn_ended", now - 70 * SECOND, ended),  # its beginning is not among them
        Moment(2, "s", "turn_started", now - 60 * SECOND, None),
        Moment(3, "s", "turn_ended", now - 20 * SECOND, ended),
        Moment(4, "s", "turn_started", now - 10 * SECOND, None),
        Moment(5, "s", "turn_ended", now - 5 * SECOND, "not JSON"),
    ]
    [turn] = day.turns(moments)
    drawn = day.charts([turn], now)

    assert turn.seconds == 40
    assert (sum(drawn.turns), sum(drawn.failed), sum(drawn.tokens_in), sum(drawn.tokens_out)) == (1, 1, 5, 2)
    assert [value for value in drawn.median if value is not None] == [40.0]
    assert len(drawn.at) == 96 and drawn.at[-1] <= now // 1_000_000 < drawn.at[-1] + 900


def test_the_time_line_tells_the_reaped_and_what_was_there_before() -> None:
    now = 10 * DAY
    second = now // SECOND - DAY // SECOND
    moments = [
        Moment(1, "new", "session_opened", now - 60 * SECOND, None),
        Moment(2, "old", "turn_started", now - 50 * SECOND, None),
        Moment(3, "new", "ended", now - 40 * SECOND, encode(Ended(reason="reaped"))),
        Moment(4, "old", "tool_started", now - 30 * SECOND, None),
        Moment(5, "lost", "recovered", now - 20 * SECOND, None),
        Moment(6, "old", "ended", now - 10 * SECOND, encode(Ended(reason="user", detail="reaped"))),
    ]
    sessions, changes = space.changes(moments, now)
    lives = {
        name: [(at + second - now // SECOND, state) for place, at, state in changes if place == n]
        for n, name in enumerate(sessions)
    }

    code, day_ago = space.CODES, -DAY // SECOND
    assert lives["new"] == [(-60, code["waiting"]), (-40, code["reaped"])]
    assert lives["old"] == [
        (day_ago, code["waiting"]),
        (-50, code["thinking"]),
        (-30, code["tool"]),
        (-10, code["ended"]),
    ]
    assert lives["lost"] == [(day_ago, code["interrupted"]), (-20, code["thinking"])]


@pytest.mark.parametrize(
    ("facts", "deeds"),
    [
        ({}, {"undo", "pin", "end", "trash"}),
        ({"ended_at": 1, "pinned": 1}, {"undo", "unpin", "reopen", "trash"}),
        ({"open_turn": "t"}, {"resume", "undo", "pin", "end", "trash"}),
        (
            {"quarantined": "why", "open_turn": "t", "epoch": 2},
            {"undo", "uncompact", "pin", "end", "reopen", "trash"},
        ),
        ({"trashed_at": 1, "epoch": 2}, {"restore"}),
    ],
)
def test_only_deeds_that_make_sense_are_offered(facts: dict[str, object], deeds: set[str]) -> None:
    summary = Summary(turn_count=1, **facts)  # type: ignore[arg-type] # names of its fields

    assert set(deeds_of(Session("hf-x", 1, "", None, 0, summary))["deeds"]) == deeds


@pytest.mark.parametrize(("number", "words"), [(0, "0 messages"), (1, "1 message"), (12_400, "12.4k messages")])
def test_one_thing_is_one_thing(number: int, words: str) -> None:
    assert pages.many(number, "message") == words
