"""Reads the project files of Claude Code: JSON lines, each a message or a part of one, joined to a tree by `parentUuid`.

The file is read in the order it was written. Words whose parent lies before words that stand are a change of mind: all
from there on is taken back, and stays in the log. What a subagent said (`isSidechain`) is a session of its own, whether it stands in
the same file or in one of its own. Lines that are no messages (snapshots, queues, notices) are passed over.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from holdfast.interop import lines
from holdfast.interop.foreign import (
    About,
    Fact,
    Foreign,
    Heard,
    Parent,
    Replied,
    Returned,
    Shortened,
    Undone,
    first_words,
    instant,
    items,
    mapping,
    text,
    whole,
    words,
)
from holdfast.model.event import Usage
from holdfast.model.message import Content, Image, Part, Reasoning, Text, ToolCall, text_of

FORMAT = "claude-code"
SAID = {"user", "assistant"}
LINES_OF = {*SAID, "system", "summary", "attachment", "progress", "file-history-snapshot", "queue-operation"}
INJECTED = ("<command-", "<local-command", "Caveat:", "<system-reminder>", "<bash-")
"""How words begin that the program put in, not the user."""
Line = Mapping[str, object]


def recognises(line: Line) -> bool:
    """Whether a file with this line is one of a project."""
    if line.get("type") == "summary":
        return isinstance(line.get("leafUuid"), str)
    return text(line.get("type")) in LINES_OF and (
        isinstance(line.get("sessionId"), str) or isinstance(line.get("messageId"), str)
    )


def sessions(path: Path) -> Iterator[Foreign]:
    """The session of the file, then those of its subagents. Raises OSError."""
    index = _Index(path)
    if index.main is not None:
        yield _foreign(path, index.main, index.origin, None, lambda line: line.get("isSidechain") is not True)
    parent = Parent(index.origin, instant(index.main.get("timestamp")) if index.main else 0, is_side=True)
    for root, first in index.roots.items():
        origin = f"{index.origin}/{text(first.get('agentId')) or root}"
        yield _foreign(path, first, origin, parent, index.belongs(root))


def _foreign(path: Path, first: Line, origin: str, parent: Parent | None, wanted: Callable[[Line], bool]) -> Foreign:
    return Foreign(
        format=FORMAT,
        origin=origin,
        facts=lambda: _Reader(wanted).read(path),
        began_at=instant(first.get("timestamp")),
        workdir=text(first.get("cwd")) or None,
        parent=parent,
    )


class _Index:
    """What a file holds: the first message of its session, and those of its subagents."""

    def __init__(self, path: Path) -> None:
        self.main: Line | None = None
        self.roots: dict[str, Line] = {}
        self._root_of: dict[str, str] = {}
        ids: list[str] = []
        for line in lines.read(path):
            value = line.value
            if value is None or text(value.get("type")) not in SAID:
                continue
            if len(ids) < 2 or value.get("sessionId") == path.stem:
                ids.append(text(value.get("sessionId")))
            if value.get("isSidechain") is True:
                self._side(value)
            elif self.main is None:
                self.main = value
        self.origin = path.stem if path.stem in ids else next(filter(None, ids), path.stem)

    def _side(self, line: Line) -> None:
        uuid, parent = text(line.get("uuid")), text(line.get("parentUuid"))
        agent = text(line.get("agentId"))
        root = self._root_of.get(parent) or agent or uuid
        self._root_of[uuid] = root
        self.roots.setdefault(root, line)

    def belongs(self, root: str) -> Callable[[Line], bool]:
        return lambda line: line.get("isSidechain") is True and self._root_of.get(text(line.get("uuid"))) == root


class _Reader:
    """How far one session has been read."""

    def __init__(self, wanted: Callable[[Line], bool]) -> None:
        self._wanted = wanted
        self._messages = 0
        self._place_of: dict[str, int] = {}
        """How many messages had been said when a line was done, by its uuid."""
        self._prompts: list[int] = []
        self._pending: list[Part] = []
        self._last: Line = {}
        """The newest line of the reply that is pending."""
        self._units = 0
        self._counted: set[str] = set()
        self._titles: dict[str, str] = {}

    def read(self, path: Path) -> Iterator[Fact]:
        for line in lines.read(path):
            if line.value is None:
                yield from lines.damage(line)
            elif text(line.value.get("type")) in SAID:
                if self._wanted(line.value):
                    yield from self._message(line.value)
            else:
                self._note(line.value)
        yield from self._flush()
        yield About(title=self._title(), units=0)

    def _note(self, line: Line) -> None:
        match line.get("type"):
            case "summary" if text(line.get("leafUuid")) in self._place_of:
                self._titles["summary"] = text(line.get("summary"))
            case "ai-title":
                self._titles["ai"] = text(line.get("aiTitle"))
            case "custom-title":
                self._titles["custom"] = text(line.get("customTitle"))

    def _title(self) -> str | None:
        return next((found for by in ("custom", "ai", "summary", "first") if (found := self._titles.get(by))), None)

    def _message(self, line: Line) -> Iterator[Fact]:
        message = mapping(line.get("message"))
        if line.get("type") == "assistant":
            yield from self._assistant(line, message)
        elif line.get("isCompactSummary") is True:
            yield from self._flush()
            yield Shortened(at=instant(line.get("timestamp")), summary=_text_of(message.get("content")))
        else:
            yield from self._user(line, message)
        self._place_of[text(line.get("uuid"))] = self._messages + bool(self._pending)

    # The model.

    def _assistant(self, line: Line, message: Line) -> Iterator[Fact]:
        before = mapping(self._last.get("message")).get("id")
        if self._pending and (before != message.get("id") or not before):
            yield from self._flush()
        self._pending += _reply_parts(message.get("content"))
        self._last = line
        self._units += 1
        if not self._pending:  # an empty line; it is counted with what follows
            self._pending.append(Text(""))

    def _flush(self) -> Iterator[Fact]:
        if not self._pending:
            return
        message = mapping(self._last.get("message"))
        name = text(message.get("id"))
        usage = Usage() if name in self._counted else _usage(message.get("usage"))
        self._counted.add(name or str(self._messages))
        self._messages += 1
        parts, units = tuple(self._pending), self._units
        self._pending, self._units = [], 0
        yield Replied(
            at=instant(self._last.get("timestamp")),
            parts=parts,
            model=text(message.get("model")),
            finish="error" if self._last.get("isApiErrorMessage") else text(message.get("stop_reason")),
            usage=usage,
            units=units,
        )

    # Everybody else.

    def _user(self, line: Line, message: Line) -> Iterator[Fact]:
        yield from self._flush()
        at, content = instant(line.get("timestamp")), message.get("content")
        results = [one for one in map(mapping, items(content)) if one.get("type") == "tool_result"]
        for number, result in enumerate(results):
            self._messages += 1
            yield _result(result, at, units=int(number == 0))
        parts = _content(content)
        if parts or not results:
            is_prompt = line.get("isMeta") is not True and not results
            if is_prompt:
                yield from self._change_of_mind(line, at)
            self._hear(parts, is_prompt=is_prompt)
            yield Heard(at=at, parts=parts, name="" if is_prompt else "system", units=int(not results))

    def _change_of_mind(self, line: Line, at: int) -> Iterator[Fact]:
        """Words that follow something older than the newest words take those back."""
        parent = line.get("parentUuid")
        place = 0 if parent is None else self._place_of.get(text(parent), self._messages)
        undone = [prompt for prompt in self._prompts if prompt >= place]
        if undone and (parent is not None or "isCompactSummary" not in line):
            self._prompts = [prompt for prompt in self._prompts if prompt < place]
            yield Undone(at=at, first=undone[0], units=0)

    def _hear(self, parts: tuple[Content, ...], *, is_prompt: bool) -> None:
        said = text_of(parts)
        if is_prompt:
            self._prompts.append(self._messages)
        if is_prompt and not said.lstrip().startswith(INJECTED) and not self._titles.get("first"):
            self._titles["first"] = first_words(said)
        self._messages += 1


def _text_of(content: object) -> str:
    return "\n\n".join(part.text for part in _content(content) if isinstance(part, Text))


def _content(content: object) -> tuple[Content, ...]:
    """Words, pictures and documents; results of calls are not among them."""
    if isinstance(content, str):
        return words(content)
    found: list[Content] = []
    for one in map(mapping, items(content)):
        kind = one.get("type")
        if kind == "text" and (said := text(one.get("text"))):
            found.append(Text(said))
        elif kind in ("image", "document"):
            found.append(_media(one))
        elif kind not in ("text", "tool_result"):
            found.append(Text(json.dumps(one)))
    return tuple(found)


def _media(one: Line) -> Content:
    source = mapping(one.get("source"))
    kind, data, url = text(source.get("media_type")), text(source.get("data")), text(source.get("url"))
    if one.get("type") == "image" and (data or url.startswith("http")):
        return Image(f"data:{kind};base64,{data}" if data else url, kind)
    return Text(f"[{text(one.get('type'))} {kind}]\n{data or url}" if kind.startswith("text/") else json.dumps(one))


def _reply_parts(content: object) -> list[Part]:
    if isinstance(content, str):
        return list(words(content))
    found: list[Part] = []
    for one in map(mapping, items(content)):
        match one.get("type"):
            case "text":
                found += words(text(one.get("text")))
            case "thinking":
                signature = text(one.get("signature"))
                found.append(
                    Reasoning(text(one.get("thinking")), FORMAT, {"signature": signature} if signature else {})
                )
            case "redacted_thinking":
                found.append(Reasoning("", FORMAT, {"data": text(one.get("data"))}))
            case "tool_use":
                found.append(ToolCall(text(one.get("id")), text(one.get("name")), json.dumps(one.get("input", {}))))
            case _:  # tools that ran at the provider, and kinds that are newer than this
                found.append(Text(json.dumps(one)))
    return found


def _result(result: Line, at: int, *, units: int) -> Returned:
    return Returned(
        at=at,
        call_id=text(result.get("tool_use_id")),
        parts=_content(result.get("content")),
        outcome="failed" if result.get("is_error") is True else "ok",
        units=units,
    )


def _usage(value: object) -> Usage:
    counted = mapping(value)
    read, written = whole(counted.get("cache_read_input_tokens")), whole(counted.get("cache_creation_input_tokens"))
    return Usage(
        tokens_in=whole(counted.get("input_tokens")) + read + written,
        tokens_out=whole(counted.get("output_tokens")),
        cache_read=read,
        cache_write=written,
    )
