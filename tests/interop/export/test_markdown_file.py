"""Exports for people: readable, without scripts and external resources."""

from holdfast.interop.export import markdown_file
from holdfast.interop.pages import document
from holdfast.model.entry import Entry
from holdfast.model.event import Event, ToolEnded, UserSaid
from holdfast.model.message import File, Image, Text
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


def test_markdown_fences_are_longer_than_those_inside() -> None:
    text = markdown_file.render_markdown(
        SESSION, entries(ToolEnded(turn_id="t", call_id="c", outcome="ok", parts=(Text("a\n````\nb"),)))
    )

    assert "\n`````\na\n````\nb\n`````\n" in text


def test_control_characters_are_escaped_everywhere() -> None:
    for text in (
        markdown_file.render_markdown(SESSION, entries(said(Text(NASTY)))),
        document.render_file(SESSION, entries(said(Text(NASTY)))),
    ):
        assert not set(text) & set("\x1b\x07\u202e\udc80")
        assert "\\x1b[31m" in text and "Füße 😀" in text


def test_visible_text_keeps_what_can_be_seen() -> None:
    assert visible("a\tb\r\nc\rd\x00e\x9b\u2066\ud800f é 日本 🇩🇪") == "a\tb\nc\\rd\\x00e\\x9b\\u2066\\ud800f é 日本 🇩🇪"
    assert one_line(" a \n b\tc\x1b ") == "a b c\\x1b"
