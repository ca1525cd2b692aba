"""A session as one HTML document without scripts: a file that needs nothing else, or a page that a shared link shows."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec
from jinja2 import Environment

from holdfast.interop.pages import rendering
from holdfast.interop.pages.images import read_image
from holdfast.interop.pages.rendering import ItemLinks
from holdfast.interop.pages.transcript import NO_LIMITS, PageItem, PageTranscript
from holdfast.model.entry import Entry
from holdfast.model.errors import NotFound
from holdfast.model.session import Session

FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""The policy inside an exported file: nothing runs and nothing is loaded."""


class SharedPage(msgspec.Struct, frozen=True):
    """A part of a shared session. `earlier` and `later` are the addresses of the parts beside it, if any."""

    title: str
    shared_at: int
    expires_at: int
    items: list[PageItem]
    links: ItemLinks
    earlier: str = ""
    later: str = ""


def render_file(session: Session, entries: Sequence[Entry], home: Path | None = None) -> str:
    """The whole session as a file that looks like its page. Images are embedded; without `home`, only those of the log are."""
    transcript = PageTranscript(NO_LIMITS)
    transcript.add_all(entries)
    by_seq = {entry.seq: entry for entry in entries}

    def embed(place: str) -> str:
        seq, _, number = place.partition("/")
        try:
            data, media_type = read_image(home or Path(), session.id, by_seq[int(seq)], int(number))
        except NotFound:
            return ""
        return f"data:{media_type};base64,{base64.b64encode(data).decode()}"

    return (
        _environment()
        .get_template("document.html")
        .render(
            title=session.display_title,
            session=session,
            shared=None,
            items=list(transcript.items.values()),
            links=ItemLinks(image=embed),
            policy=FILE_POLICY,
            style=style(),
        )
    )


def render_shared(page: SharedPage) -> str:
    """A part of a shared session: the conversation alone, without ids and links of the server."""
    items = [one for one in page.items if is_public(one)]
    values = {"title": page.title, "session": None, "shared": page, "items": items, "links": page.links}
    return _environment().get_template("document.html").render(**values, policy="", style=style())


def is_public(item: PageItem) -> bool:
    """Whether a shared link shows the item: the conversation, but nothing that was undone and no notes about the server."""
    return not item.undone and item.kind in ("user", "model", "call", "plan", "compaction")


@cache
def style() -> str:
    """The stylesheet of a document: that of the conversation, and the frame around it."""
    return rendering.stylesheet() + (rendering.folder() / "document.css").read_text("utf-8")


@cache
def style_digest() -> str:
    """The hash that a content security policy names to allow the stylesheet of a document, and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()}'"


@cache
def _environment() -> Environment:
    return rendering.make_environment()
