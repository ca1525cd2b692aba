"""Converts an HTML page to readable text: headings, lists, links, tables and code, without menus and scripts. Pure."""

import re
from urllib.parse import urljoin

import msgspec

from holdfast.tools.web.html_tokens import HtmlTag, tokenize

SKIPPED = {
    *(
        "script",
        "style",
        "template",
        "svg",
        "math",
        "iframe",
        "noembed",
        "noframes",
        "object",
        "canvas",
        "audio",
        "video",
    ),
    *("nav", "footer", "aside", "dialog", "button", "select", "datalist", "textarea"),
}
"""Elements without readable content, or with what is the same on every page of a site."""
HIDEABLE = {"div", "section", "span", "ul", "ol", "table", "form", "header"}
"""Elements that always have an end tag: if one is hidden, everything in it is left out."""
HIDDEN_STYLE = re.compile(r"(display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
BLOCKS = {
    *("p", "div", "section", "article", "main", "header", "form", "fieldset", "figure", "figcaption", "address"),
    *(
        "ul",
        "ol",
        "dl",
        "dt",
        "dd",
        "table",
        "thead",
        "tbody",
        "tfoot",
        "caption",
        "blockquote",
        "details",
        "summary",
        "hr",
    ),
    *("li", "tr", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "body", "html", "head", "title"),
}
SPACED = {"p", "ul", "ol", "dl", "table", "blockquote", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "section", "article"}
"""Blocks with an empty line before and after."""
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
MAIN = {"main", "article"}
MIN_MAIN = 300
"""Characters from which on the page's main part alone is taken for its content."""
MAX_INDENT = 6
SPACES = re.compile(r"\s+")


class PageText(msgspec.Struct, frozen=True):
    title: str
    text: str


def html_to_text(source: str, base_url: str = "") -> PageText:
    """The title and the readable text of a page. Links are absolute if the page's URL is given."""
    writer = _TextWriter(base_url)
    for token in tokenize(source):
        if isinstance(token, str):
            writer.add_text(token)
        elif token.kind == "start":
            writer.open_tag(token)
        else:
            writer.close_tag(token.name)
    return writer.finish()


class _TextWriter:
    """Collects the text of a page. Its state is a few counters, so that unbalanced tags do no harm."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._title: list[str] = []
        self._all: list[str] = []
        self._main: list[str] = []
        self._open = dict.fromkeys(("title", "pre", *MAIN), 0)
        self._skipped, self._skip_depth = "", 0
        """The element that is left out, and how many of that name are open."""
        self._links: list[tuple[str, int]] = []
        """The open links, with the length of the visible text before them."""
        self._visible = 0
        self._lists = 0

    def open_tag(self, tag: HtmlTag) -> None:
        name = tag.name
        if self._skipped:
            self._skip_depth += name == self._skipped
            return
        if name in SKIPPED or (name in HIDEABLE and _is_hidden(tag)):
            self._skipped, self._skip_depth = name, 1
            return
        if name == "base" and tag.attributes.get("href"):
            self._base_url = urljoin_or_empty(self._base_url, tag.attributes["href"])
        self._break(name)
        if name in self._open:
            self._open[name] += 1
        self._lists += name in ("ul", "ol")
        self._add(self._prefix(tag))
        if name == "a":
            self._links.append((tag.attributes.get("href", ""), self._visible))

    def close_tag(self, name: str) -> None:
        if self._skipped:
            self._skip_depth -= name == self._skipped
            if not self._skip_depth:
                self._skipped = ""
            return
        if name == "a" and self._links:
            self._close_link(*self._links.pop())
        if name == "pre":
            self._add("\n```")
        if name in ("code", "kbd", "samp") and not self._open["pre"]:
            self._add("`")
        self._break(name)
        self._lists = max(0, self._lists - (name in ("ul", "ol")))
        if name in self._open:
            self._open[name] = max(0, self._open[name] - 1)

    def add_text(self, text: str) -> None:
        if self._skipped:
            return
        self._visible += len(text.strip())
        if self._open["title"]:
            self._title.append(text)
        elif self._open["pre"]:
            self._add(text)
        elif text.strip() or not self._begins_line:
            self._add(SPACES.sub(" ", text))

    def finish(self) -> PageText:
        main, everything = tidy("".join(self._main)), tidy("".join(self._all))
        return PageText(SPACES.sub(" ", "".join(self._title)).strip(), main if len(main) >= MIN_MAIN else everything)

    def _prefix(self, tag: HtmlTag) -> str:
        """The text that stands for a start tag."""
        match tag.name:
            case "li":
                return "  " * min(self._lists - 1, MAX_INDENT) + "- "
            case "pre":
                return "```\n"
            case "code" | "kbd" | "samp" if not self._open["pre"]:
                return "`"
            case "td" | "th":
                return " | "
            case "br":
                return "\n"
            case "hr":
                return "---"
            case "img" if alt := SPACES.sub(" ", tag.attributes.get("alt", "")).strip():
                return f"[image: {alt}]"
            case name:
                return HEADINGS.get(name, "")

    def _close_link(self, href: str, start: int) -> None:
        """Add the address of a link that has a text."""
        url = urljoin_or_empty(self._base_url, href.strip())
        if url.startswith(("http://", "https://")) and self._visible > start:
            self._add(f" ({url})")

    def _break(self, name: str) -> None:
        if name in SPACED:
            self._add("\n\n")
        elif name in BLOCKS and not self._begins_line:
            self._add("\n")

    @property
    def _begins_line(self) -> bool:
        return bool(self._all) and self._all[-1].endswith("\n")

    def _add(self, text: str) -> None:
        if not text:
            return
        self._all.append(text)
        if self._open["main"] or self._open["article"]:
            self._main.append(text)


def _is_hidden(tag: HtmlTag) -> bool:
    attributes = tag.attributes
    is_aria_hidden = attributes.get("aria-hidden", "").lower() == "true"
    return "hidden" in attributes or is_aria_hidden or HIDDEN_STYLE.search(attributes.get("style", "")) is not None


def urljoin_or_empty(base: str, url: str) -> str:
    """The absolute address; empty if it is not one."""
    try:
        return urljoin(base, url)
    except ValueError:
        return ""


def tidy(text: str) -> str:
    """The text without blanks at the ends of lines, and with at most one empty line between two others."""
    lines = (line.rstrip() if line.startswith(("  ", "\t")) else line.strip() for line in text.splitlines())
    kept: list[str] = []
    for line in lines:
        if line or (kept and kept[-1]):
            kept.append(line)
    return "\n".join(kept).strip()
