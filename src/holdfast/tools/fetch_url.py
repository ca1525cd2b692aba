"""Fetches a page of the web as readable text. Private addresses cannot be reached, and the text is marked as untrusted."""

import asyncio
import codecs
import re
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.finding import Finding
from holdfast.model.text import decode_text
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.safe_fetch import FetchedContent, SafeFetcher, TooLarge
from holdfast.tools.spec import load_spec
from holdfast.tools.web.content_frame import frame

if TYPE_CHECKING:
    from holdfast.tools.web.html_text import PageText

MAX_BYTES = 5 * 1024 * 1024
PAGE_CHARS = 40_000
HTML_TYPES = ("text/html", "application/xhtml+xml")
TEXT_TYPES = re.compile(r"(text/.*|application/(json|xml|javascript|x-ndjson|yaml|toml)|application/.*\+(json|xml))")
MEDIA_TYPE = re.compile(r"[\w.+-]{1,50}/[\w.+-]{1,50}", re.ASCII)
META_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s{0,9}=\s{0,9}["']?([\w.:-]{1,40})""", re.IGNORECASE)
CHARSET = re.compile(r"""charset\s{0,9}=\s{0,9}["']?([\w.:-]{1,40})""", re.IGNORECASE)
MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
OFFLINE = "the session's terminal has no network, and this tool uses the network of this machine"


class FetchArguments(msgspec.Struct, frozen=True):
    url: str
    offset: int = 0


class FetchUrlTool:
    """`offline` names the terminal backends without network: for their sessions a fetch needs approval."""

    repeatable = True
    spec = load_spec(
        "fetch_url",
        {
            "url": {"type": "string", "description": "An http or https URL."},
            "offset": {"type": "integer", "minimum": 0, "description": "Characters of the text to skip."},
        },
        ("url",),
    )

    def __init__(
        self, fetcher: SafeFetcher, *, page_chars: int = PAGE_CHARS, offline: frozenset[str] = frozenset()
    ) -> None:
        self._fetcher = fetcher
        self._page_chars = page_chars
        self._offline = offline

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return (Finding(OFFLINE),) if context.terminal in self._offline else ()

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, FetchArguments)
        try:
            content = await self._fetcher.load(parsed.url.strip(), MAX_BYTES)
        except TooLarge as e:
            return ToolOutput.say(f"The page was not read: {e}.", ok=False)
        media_type = content.content_type.partition(";")[0].strip().lower()
        if media_type and media_type not in HTML_TYPES and TEXT_TYPES.fullmatch(media_type) is None:
            kind = media_type if MEDIA_TYPE.fullmatch(media_type) else "of an unknown type"
            return ToolOutput.say(f"{content.url} is not text but {kind} ({len(content.body):,} bytes).", ok=False)
        # In a thread, because a large page takes a second.
        page = await asyncio.to_thread(_read_page, content, media_type)
        return ToolOutput.say(self._show(content.url, page, parsed.offset))

    def _show(self, url: str, page: "PageText", offset: int) -> str:
        part = page.text[offset : offset + self._page_chars]
        if not part:
            part = "(no readable text)" if not page.text else f"(the text has only {len(page.text):,} characters)"
        text = f"{page.title}\n\n{part}" if page.title and not offset else part
        framed = frame(url, text)
        if offset + self._page_chars < len(page.text):
            following = offset + self._page_chars
            framed += f"\n[{len(page.text) - following:,} more characters: continue with offset={following}]"
        return framed


def _read_page(content: FetchedContent, media_type: str) -> "PageText":
    from holdfast.tools.web.html_text import PageText, html_to_text, tidy  # few turns read pages

    text = _decode(content)
    looks_like_html = not media_type and text[:1_000].lstrip().lower().startswith(("<!doctype html", "<html"))
    if media_type in HTML_TYPES or looks_like_html:
        return html_to_text(text, content.url)
    return PageText("", tidy(text) if not media_type else text)


def _decode(content: FetchedContent) -> str:
    """The text, in the character set that the server or the page names; what does not fit it is replaced."""
    body = content.body
    named = CHARSET.search(content.content_type)
    in_page = META_CHARSET.search(body[:2_048])
    by_mark = next((charset for mark, charset in MARKS if body.startswith(mark)), None)
    charset = by_mark or (named and named[1]) or (in_page and in_page[1].decode("ascii", "replace")) or "utf-8"
    return decode_text(body, charset).removeprefix("\ufeff")
