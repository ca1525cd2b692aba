"""Reads the project files of Claude Code: JSON lines, each a message or a part of one, linked to a tree by `parentUuid`.

The file is read in the order it was written. A user message whose parent is older than the newest messages undoes
everything after that parent; it stays in the log. The messages of a subagent (`isSidechain`) are a separate session,
whether in the same file or in another. Lines that are not messages (snapshots, queues, notices) are skipped.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from holdfast.interop.importing import jsonlines
from holdfast.interop.importing.facts import (
    Fact,
    ForeignSession,
    ImportedCompaction,
    ImportedInput,
    ImportedReply,
    ImportedResult,
    ImportedUndo,
    ParentSession,
    SessionFacts,
    as_count,
    as_list,
    as_mapping,
    as_text,
    as_time,
    default_title,
    text_parts,
)
from holdfast.model.event import Usage
from holdfast.model.message import Content, Image, Part, Reasoning, Text, ToolCall, text_of

FORMAT = "claude-code"
SAID = {"user", "assistant"}
LINES_OF = {*SAID, "system", "summary", "attachment", "progress", "file-history-snapshot", "queue-operation"}
INJECTED = ("<command-", "<local-command", "Caveat:", "<system-reminder>", "<bash-")
"""Prefixes of messages that the program added, not the user."""
Line = Mapping[str, object]


def recognises(line: Line) -> bool:
    """Whether a file with this line is one of a project."""
    if line.get("type") == "summary":
        return isinstance(line.get("leafUuid"), str)
    return as_text(line.get("type")) in LINES_OF and (
        isinstance(line.get("sessionId"), str) or isinstance(line.get("messageId"), str)
    )


def read_sessions(path: Path) -> Iterator[ForeignSession]:
    """The session of the file, then those of its subagents. Raises OSError."""
    index = _Index(path)
    if index.main is not None:
        yield _foreign(path, index.main, index.origin, None, lambda line: line.get("isSidechain") is not True)
    parent = ParentSession(index.origin, as_time(index.main.get("timestamp")) if index.main else 0, is_side=True)
    for root, first in index.roots.items():
        origin = f"{index.origin}/{as_text(first.get('agentId')) or root}"
        yield _foreign(path, first, origin, parent, index.belongs(root))


def _foreign(
    path: Path, first: Line, origin: str, parent: ParentSession | None, wanted: Callable[[Line], bool]
) -> ForeignSession:
    return ForeignSession(
        format=FORMAT,
        origin=origin,
        facts=lambda: _ClaudeCodeReader(wanted).read(path),
        began_at=as_time(first.get("timestamp")),
        workdir=as_text(first.get("cwd")) or None,
        parent=parent,
    )


class _Index:
    """The first message of the session in a file, and of each of its subagents."""

    def __init__(self, path: Path) -> None:
        self.main: Line | None = None
        self.roots: dict[str, Line] = {}
        self._root_of: dict[str, str] = {}
        ids: list[str] = []
        for line in jsonlines.read_lines(path):
            value = line.value
            if value is None or as_text(value.get("type")) not in SAID:
                continue
            if len(ids) < 2 or value.get("sessionId") == path.stem:
                ids.append(as_text(value.get("sessionId")))
            if value.get("isSidechain") is True:
                self._side(value)
            elif self.main is None:
                self.main = value
        self.origin = path.stem if path.stem in ids else next(filter(None, ids), path.stem)

    def _side(self, line: Line) -> None:
        uuid, parent = as_text(line.get("uuid")), as_text(line.get("parentUuid"))
        agent = as_text(line.get("agentId"))
        root = self._root_of.get(parent) or agent or uuid
        self._root_of[uuid] = root
        self.roots.setdefault(root, line)

    def belongs(self, root: str) -> Callable[[Line], bool]:
        return lambda line: line.get("isSidechain") is True and self._root_of.get(as_text(line.get("uuid"))) == root


class _ClaudeCodeReader:
    """The state of reading one session."""

    def __init__(self, wanted: Callable[[Line], bool]) -> None:
        self._wanted = wanted
        self._messages = 0
        self._position_of: dict[str, int] = {}
        """The number of messages after each line, by its uuid."""
        self._prompts: list[int] = []
        self._pending: list[Part] = []
        self._last: Line = {}
        """The newest line of the pending reply."""
        self._units = 0
        self._counted: set[str] = set()
        self._titles: dict[str, str] = {}

    def read(self, path: Path) -> Iterator[Fact]:
        for line in jsonlines.read_lines(path):
            if line.value is None:
                yield from jsonlines.describe_damage(line)
            elif as_text(line.value.get("type")) in SAID:
                if self._wanted(line.value):
                    yield from self._message(line.value)
            else:
                self._note(line.value)
        yield from self._flush()
        yield SessionFacts(title=self._title(), units=0)

    def _note(self, line: Line) -> None:
        match line.get("type"):
            case "summary" if as_text(line.get("leafUuid")) in self._position_of:
                self._titles["summary"] = as_text(line.get("summary"))
            case "ai-title":
                self._titles["ai"] = as_text(line.get("aiTitle"))
            case "custom-title":
                self._titles["custom"] = as_text(line.get("customTitle"))

    def _title(self) -> str | None:
        return next((found for by in ("custom", "ai", "summary", "first") if (found := self._titles.get(by))), None)

    def _message(self, line: Line) -> Iterator[Fact]:
        message = as_mapping(line.get("message"))
        if line.get("type") == "assistant":
            yield from self._assistant(line, message)
        elif line.get("isCompactSummary") is True:
            yield from self._flush()
            yield ImportedCompaction(at=as_time(line.get("timestamp")), summary=_text_of(message.get("content")))
        else:
            yield from self._user(line, message)
        self._position_of[as_text(line.get("uuid"))] = self._messages + bool(self._pending)

    # The model.

    def _assistant(self, line: Line, message: Line) -> Iterator[Fact]:
        before = as_mapping(self._last.get("message")).get("id")
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
        message = as_mapping(self._last.get("message"))
        name = as_text(message.get("id"))
        usage = Usage() if name in self._counted else _usage(message.get("usage"))
        self._counted.add(name or str(self._messages))
        self._messages += 1
        parts, units = tuple(self._pending), self._units
        self._pending, self._units = [], 0
        yield ImportedReply(
            at=as_time(self._last.get("timestamp")),
            parts=parts,
            model=as_text(message.get("model")),
            finish="error" if self._last.get("isApiErrorMessage") else as_text(message.get("stop_reason")),
            usage=usage,
            units=units,
        )

    # Other messages.

    def _user(self, line: Line, message: Line) -> Iterator[Fact]:
        yield from self._flush()
        at, content = as_time(line.get("timestamp")), message.get("content")
        results = [one for one in map(as_mapping, as_list(content)) if one.get("type") == "tool_result"]
        for number, result in enumerate(results):
            self._messages += 1
            yield _result(result, at, units=int(number == 0))
        parts = _content(content)
        if parts or not results:
            is_prompt = line.get("isMeta") is not True and not results
            if is_prompt:
                yield from self._undo_branch(line, at)
            self._count_input(parts, is_prompt=is_prompt)
            yield ImportedInput(at=at, parts=parts, name="" if is_prompt else "system", units=int(not results))

    def _undo_branch(self, line: Line, at: int) -> Iterator[Fact]:
        """A prompt that follows an older message undoes the messages after it."""
        parent = line.get("parentUuid")
        position = 0 if parent is None else self._position_of.get(as_text(parent), self._messages)
        undone = [prompt for prompt in self._prompts if prompt >= position]
        if undone and (parent is not None or "isCompactSummary" not in line):
            self._prompts = [prompt for prompt in self._prompts if prompt < position]
            yield ImportedUndo(at=at, first=undone[0], units=0)

    def _count_input(self, parts: tuple[Content, ...], *, is_prompt: bool) -> None:
        said = text_of(parts)
        if is_prompt:
            self._prompts.append(self._messages)
        if is_prompt and not said.lstrip().startswith(INJECTED) and not self._titles.get("first"):
            self._titles["first"] = default_title(said)
        self._messages += 1


def _text_of(content: object) -> str:
    return "\n\n".join(part.text for part in _content(content) if isinstance(part, Text))


def _content(content: object) -> tuple[Content, ...]:
    """Text, images and documents, without tool results."""
    if isinstance(content, str):
        return text_parts(content)
    found: list[Content] = []
    for one in map(as_mapping, as_list(content)):
        kind = one.get("type")
        if kind == "text" and (said := as_text(one.get("text"))):
            found.append(Text(said))
        elif kind in ("image", "document"):
            found.append(_media(one))
        elif kind not in ("text", "tool_result"):
            found.append(Text(json.dumps(one)))
    return tuple(found)


def _media(one: Line) -> Content:
    source = as_mapping(one.get("source"))
    kind, data, url = as_text(source.get("media_type")), as_text(source.get("data")), as_text(source.get("url"))
    if one.get("type") == "image" and (data or url.startswith("http")):
        return Image(f"data:{kind};base64,{data}" if data else url, kind)
    return Text(f"[{as_text(one.get('type'))} {kind}]\n{data or url}" if kind.startswith("text/") else json.dumps(one))


def _reply_parts(content: object) -> list[Part]:
    if isinstance(content, str):
        return list(text_parts(content))
    found: list[Part] = []
    for one in map(as_mapping, as_list(content)):
        match one.get("type"):
            case "text":
                found += text_parts(as_text(one.get("text")))
            case "thinking":
                signature = as_text(one.get("signature"))
                found.append(
                    Reasoning(as_text(one.get("thinking")), FORMAT, {"signature": signature} if signature else {})
                )
            case "redacted_thinking":
                found.append(Reasoning("", FORMAT, {"data": as_text(one.get("data"))}))
            case "tool_use":
                found.append(
                    ToolCall(as_text(one.get("id")), as_text(one.get("name")), json.dumps(one.get("input", {})))
                )
            case _:  # tools that the provider ran, and newer types
                found.append(Text(json.dumps(one)))
    return found


def _result(result: Line, at: int, *, units: int) -> ImportedResult:
    return ImportedResult(
        at=at,
        call_id=as_text(result.get("tool_use_id")),
        parts=_content(result.get("content")),
        outcome="failed" if result.get("is_error") is True else "ok",
        units=units,
    )


def _usage(value: object) -> Usage:
    counted = as_mapping(value)
    read, written = (
        as_count(counted.get("cache_read_input_tokens")),
        as_count(counted.get("cache_creation_input_tokens")),
    )
    return Usage(
        tokens_in=as_count(counted.get("input_tokens")) + read + written,
        tokens_out=as_count(counted.get("output_tokens")),
        cache_read=read,
        cache_write=written,
    )
