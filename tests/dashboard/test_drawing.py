"""Rendering without a browser: logs as page items, Markdown as HTML, a day as charts."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dashboard import space, templating, timeline
from holdfast.dashboard.session import available_actions
from holdfast.interop.pages import markdown
from holdfast.interop.pages.rendering import ItemLinks
from holdfast.interop.pages.transcript import PageTranscript
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
from holdfast.model.session import Session, SessionSummary
from holdfast.model.times import DAY, SECOND
from holdfast.store.repos.dashboard_queries import TimelineEvent
from tests.model.strategies import events

TAGS = {
    "p",
    "br",
    "em",
    "strong",
    "s",
    "code",
    "pre",
    "ul",
    "ol",
    "li",
    "blockquote",
    "hr",
    "a",
    "h3",
    "h4",
    "h5",
    "h6",
}
TAGS |= {"table", "thead", "tbody", "tr", "th", "td", "div", "span", "button"}
ATTRIBUTES = {"class", "href", "rel", "target", "start", "tabindex", "type", "data-copy"}
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
    """Fails for a tag, an attribute or a URL that rendered Markdown must not contain."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        for name, value in attrs:
            assert name in ATTRIBUTES, name
            assert name != "href" or (value or "").lower().startswith(("http://", "https://", "mailto:")), value


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_markdown_renders_only_safe_html(text: str) -> None:
    html = str(markdown.render(text))

    Checker().feed(html)
    html.encode()


@pytest.mark.parametrize(
    "text", ["> " * 200 + "deep", "- " * 200 + "deep", "[a]: hidden words of a definition", "x" * 50_000]
)
def test_markdown_hides_no_text(text: str) -> None:
    words = text.rsplit(maxsplit=1)[-1]

    assert words in str(markdown.render(text))


def test_markdown_is_formatted() -> None:
    html = str(
        markdown.render("# Title\n\nsome *words*, `code`\n\n|a|b|\n|-|-:|\n|1|2|\n\n3. three\n\n[x](https://x.example)")
    )

    assert "<h3>Title</h3>" in html and "<em>words</em>" in html and '<td class="right">2</td>' in html
    assert '<ol start="3">' in html
    assert '<a href="https://x.example" rel="noreferrer noopener" target="_blank">x</a>' in html


def test_tasks_and_bare_addresses_are_formatted() -> None:
    html = str(
        markdown.render(
            "- [ ] open\n- [x] done\n\nSee https://a.example/b?c=1&d=2. Or (http://b.example), `https://code.example` "
            "[x](https://c.example/https://d.example) **https://e.example/f_g_**, javascript://no.example file:///etc/passwd"
        )
    )

    assert "<li>☐ open</li>" in html and "<li>☑ done</li>" in html
    assert re.findall('href="([^"]*)"', html) == [
        "https://a.example/b?c=1&amp;d=2",
        "http://b.example",
        "https://c.example/https://d.example",
        "https://e.example/f_g",
    ]
    Checker().feed(html)


def test_headings_of_a_message_skip_no_level() -> None:
    html = str(markdown.render("### First\n\n###### Deep\n\n# Top\n\n###### Deeper\n\n#### Between"))

    assert re.findall("<h([1-6])>", html) == ["3", "4", "3", "4", "5"]


def build_transcript(*facts: Event) -> PageTranscript:
    transcript = PageTranscript()
    transcript.add_all(Entry(n, n * SECOND, fact) for n, fact in enumerate(facts, 1))
    return transcript


CALL = ModelSaid(turn_id="t", parts=(Text("I look."), ToolCall("c", "terminal", '{"command": "ls"}')))


def test_a_call_and_its_result_are_one_item() -> None:
    result = ToolEnded(turn_id="t", call_id="c", outcome="ok", parts=(Text("a.txt"),), millis=7)
    transcript = build_transcript(
        TurnStarted(turn_id="t"), CALL, ToolStarted(turn_id="t", call_id="c", name="terminal"), result
    )

    [said, card] = transcript.items.values()
    assert (said.kind, card.kind) == ("model", "call")
    assert (card.state, card.detail, card.blocks[0].text, card.result_seq) == ("ok", "ls", "a.txt", 4)


def test_a_result_without_its_call_is_a_separate_item() -> None:
    [card] = build_transcript(ToolEnded(turn_id="t", call_id="c", name="terminal", outcome="unknown")).items.values()

    assert (card.id, card.label, card.state) == ("e1", "terminal", "unknown")


def test_a_question_is_closed_by_the_end_of_its_turn() -> None:
    asked = ApprovalAsked(turn_id="t", call_id="c", question="May I?")
    [question] = build_transcript(asked, TurnEnded(turn_id="t", outcome="done")).items.values()

    assert question.state == "closed"


def test_only_undone_items_are_marked() -> None:
    transcript = build_transcript(
        UserSaid(turn_id="t", parts=(Text("stays"),)), UserSaid(turn_id="u", parts=(Text("goes"),)), Rewound(to_seq=1)
    )

    assert [item.undone for item in transcript.items.values()] == [False, True, False]


@given(st.lists(events(), max_size=12))
def test_every_log_can_be_rendered(facts: list[Event]) -> None:
    transcript = build_transcript(*facts)

    for item in transcript.items.values():
        drawn = templating.render_fragment("item.html", item=item, links=ItemLinks("/ui/s/hf-x", can_act=True))
        assert f'id="{item.id}"' in drawn
        assert "<script" not in drawn


def test_charts_summarize_the_turns_of_a_day() -> None:
    now = 10 * DAY
    ended = encode(TurnEnded(turn_id="t", outcome="failed", usage=Usage(tokens_in=5, tokens_out=2)))
    moments = [
        TimelineEvent(1, "s", "turn_ended", now - 70 * SECOND, ended),  # its start is not among the events
        TimelineEvent(2, "s", "turn_started", now - 60 * SECOND, None),
        TimelineEvent(3, "s", "turn_ended", now - 20 * SECOND, ended),
        TimelineEvent(4, "s", "turn_started", now - 10 * SECOND, None),
        TimelineEvent(5, "s", "turn_ended", now - 5 * SECOND, "not JSON"),
    ]
    [turn] = timeline.completed_turns(moments)
    drawn = timeline.build_charts([turn], now)

    assert turn.seconds == 40
    assert (sum(drawn.turns), sum(drawn.failed), sum(drawn.tokens_in), sum(drawn.tokens_out)) == (1, 1, 5, 2)
    assert [value for value in drawn.median if value is not None] == [40.0]
    assert len(drawn.at) == 96 and drawn.at[-1] <= now // 1_000_000 < drawn.at[-1] + 900


def test_a_turn_closed_by_a_fork_is_neither_a_failure_nor_in_a_chart() -> None:
    now = 10 * DAY
    ended = TurnEnded(turn_id="t", outcome="cancelled", code="forked", reason="forked in mid-turn")
    moments = [
        TimelineEvent(1, "fork", "turn_started", now - DAY // 2, None),
        TimelineEvent(2, "fork", "turn_ended", now - SECOND, encode(ended)),
    ]
    transcript = PageTranscript()

    shown = [
        item for entry in (Entry(1, 0, TurnStarted(turn_id="t")), Entry(2, 0, ended)) for item in transcript.add(entry)
    ]

    assert timeline.completed_turns(moments) == []
    assert [item.state for item in shown if item.kind == "note"] == [""]


def test_the_timeline_has_reaped_sessions_and_initial_states() -> None:
    now = 10 * DAY
    second = now // SECOND - DAY // SECOND
    moments = [
        TimelineEvent(1, "new", "session_opened", now - 60 * SECOND, None),
        TimelineEvent(2, "old", "turn_started", now - 50 * SECOND, None),
        TimelineEvent(3, "new", "ended", now - 40 * SECOND, encode(Ended(reason="reaped"))),
        TimelineEvent(4, "old", "tool_started", now - 30 * SECOND, None),
        TimelineEvent(5, "lost", "recovered", now - 20 * SECOND, None),
        TimelineEvent(6, "old", "ended", now - 10 * SECOND, encode(Ended(reason="user", detail="reaped"))),
    ]
    sessions, changes = space.state_changes(moments, now)
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
    ("fields", "expected"),
    [
        ({}, {"undo", "compact", "pin", "end", "trash"}),
        ({"ended_at": 1, "pinned": 1}, {"undo", "compact", "unpin", "reopen", "trash"}),
        ({"open_turn": "t"}, {"resume", "undo", "compact", "pin", "end", "trash"}),
        (
            {"quarantined": "why", "open_turn": "t", "epoch": 2},
            {"undo", "compact", "uncompact", "pin", "end", "reopen", "trash"},
        ),
        ({"trashed_at": 1, "epoch": 2}, {"restore"}),
        ({"open_turn": "t", "asking": 1, "epoch": 2}, {"pin"}),
    ],
)
def test_only_actions_that_the_state_allows_are_offered(fields: dict[str, object], expected: set[str]) -> None:
    summary = SessionSummary(turn_count=1, **fields)  # type: ignore[arg-type] # names of its fields

    session = Session("hf-x", 1, "", None, 0, summary)
    assert set(available_actions(session, can_undo=True, can_compact=True)) == expected
    assert set(available_actions(session)) == expected - {"undo", "compact"}


@pytest.mark.parametrize(("number", "words"), [(0, "0 messages"), (1, "1 message"), (12_400, "12.4k messages")])
def test_counts_are_pluralized(number: int, words: str) -> None:
    assert templating.pluralize(number, "message") == words
