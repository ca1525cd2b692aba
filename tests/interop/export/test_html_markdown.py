"""Exports for people: readable, without scripts and external resources."""

import re

import pytest

from holdfast.interop.export import html_markdown
from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, Ended, Event, Forked, ModelSaid, ToolEnded, UserSaid
from holdfast.model.message import File, Image, Reasoning, Text, ToolCall
from holdfast.model.sanitize import one_line, visible
from holdfast.model.session import Session, SessionSummary
from tests.cli.seed import NASTY

AT = 1_800_000_000_000_000
SESSION = Session(
    "hf-1", 3, "h", None, 0, SessionSummary(title="<script>alert(1)</script>", created_at=AT, updated_at=AT)
)


def entries(*events: Event) -> list[Entry]:
    return [Entry(seq, AT, event) for seq, event in enumerate(events, 1)]


def said(*parts: Text | Image | File) -> UserSaid:
    return UserSaid(turn_id="t", parts=parts)


def test_a_page_shows_every_message() -> None:
    call = ToolCall("c", "terminal", '{"command": "ls"}')
    page = html_markdown.render_html(
        SESSION,
        entries(
            said(Text("hello")),
            ModelSaid(turn_id="t", parts=(Reasoning(text="hmm"), Text("looking"), call), partial=True),
            ToolEnded(turn_id="t", call_id="c", outcome="ok", parts=(Text("a file"),)),
            Compacted(epoch=1, upto_seq=2, summary="s", how="model"),
            Forked(parent_id="hf-0", at_seq=1, at_hash="h"),
            Ended(reason="user"),
        ),
    )

    for words in (
        "hello",
        "hmm",
        "looking",
        "cut off",
        "terminal",
        "&quot;command&quot;",
        "a file",
        "epoch 1",
        "hf-0",
        "Ended",
    ):
        assert words in page


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "</div></body><iframe src=//evil.example>",
        "${title} $$ {{7*7}}",
    ],
)
def test_messages_cannot_add_markup_to_a_page(evil: str) -> None:
    page = html_markdown.render_html(
        SESSION,
        entries(
            said(Text(evil), Image(url=evil), File(url=evil, name=evil)),
            ModelSaid(turn_id="t", parts=(Text(evil), Reasoning(text=evil), ToolCall(evil, evil, evil))),
        ),
    )

    tags = set(re.findall(r"<\s*/?\s*([a-z0-9!]+)", page))
    assert not tags & {"script", "iframe", "object", "embed", "form", "base", "img", "svg"}
    assert "onerror=alert(1)>" not in page
    assert "default-src 'none'" in page


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("data:image/png;base64,iVBORw0KGgo=", '<img alt="" src="data:image/png;base64,iVBORw0KGgo=">'),
        ("https://example.org/cat.png", '<a rel="noreferrer" href="https://example.org/cat.png">'),
        ("javascript:alert(1)", "[image: javascript:alert(1)]"),
        ("data:image/svg+xml;base64,PHN2Zz4=", "[image: data:image/svg+xml;base64,PHN2Zz4=]"),
        ("data:text/html,<script>", "[image: data:text/html,&lt;script&gt;]"),
    ],
)
def test_only_harmless_images_are_shown_inline(url: str, shown: str) -> None:
    assert shown in html_markdown.render_html(SESSION, entries(said(Image(url=url))))


def test_markdown_fences_are_longer_than_those_inside() -> None:
    text = html_markdown.render_markdown(
        SESSION, entries(ToolEnded(turn_id="t", call_id="c", outcome="ok", parts=(Text("a\n````\nb"),)))
    )

    assert "\n`````\na\n````\nb\n`````\n" in text


def test_control_characters_are_escaped_everywhere() -> None:
    for text in (
        html_markdown.render_markdown(SESSION, entries(said(Text(NASTY)))),
        html_markdown.render_html(SESSION, entries(said(Text(NASTY)))),
    ):
        assert not set(text) & set("\x1b\x07\u202e\udc80")
        assert "\\x1b[31m" in text and "Füße 😀" in text


def test_visible_text_keeps_what_can_be_seen() -> None:
    assert visible("a\tb\r\nc\rd\x00e\x9b\u2066\ud800f é 日本 🇩🇪") == "a\tb\nc\\rd\\x00e\\x9b\\u2066\\ud800f é 日本 🇩🇪"
    assert one_line(" a \n b\tc\x1b ") == "a b c\\x1b"
