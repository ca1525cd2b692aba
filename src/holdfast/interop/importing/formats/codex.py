"""Reads the rollouts of Codex CLI: JSON lines, each an item of the model's input or output, or metadata.

A line is `{"timestamp", "type", "payload"}`; before version 0.32 it was the payload alone. A model message comes in
several items (reasoning, text, calls), which are one message here. `event_msg` lines repeat the items for display;
only what is nowhere else is read from them: token counts, and turns that were rolled back.
"""

import json
from collections.abc import Iterator, Mapping
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
    SkippedLines,
    as_count,
    as_list,
    as_mapping,
    as_text,
    as_time,
    default_title,
    text_parts,
)
from holdfast.model.event import Usage
from holdfast.model.message import Content, Image, Outcome, Part, Reasoning, Text, ToolCall, text_of

FORMAT = "codex"
CALLS = {"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"}
RESULTS = {"function_call_output", "custom_tool_call_output", "tool_search_output"}
NO_MESSAGES = {"ghost_snapshot", "compaction", "context_compaction", "compaction_trigger"}
INJECTED = ("<environment_context>", "<user_instructions>", "<permissions", "# AGENTS.md", "<turn_aborted>", "<skills")
"""Prefixes of messages that the program added, not the user."""


def recognises(line: Mapping[str, object]) -> bool:
    """Whether a file that begins with this line is a rollout."""
    if line.get("type") == "session_meta":
        return isinstance(line.get("payload"), dict)
    old = "instructions" in line and isinstance(line.get("id"), str) and isinstance(line.get("timestamp"), str)
    return old or (as_text(line.get("type")) in {"response_item", "turn_context"} and "payload" in line)


def read_sessions(path: Path) -> Iterator[ForeignSession]:
    """The one session of the file. Raises OSError."""
    first = next(jsonlines.read_lines(path), None)
    value = as_mapping(first.value if first is not None else None)
    meta = as_mapping(value.get("payload")) or value
    began_at = as_time(meta.get("timestamp")) or as_time(value.get("timestamp"))
    yield ForeignSession(
        format=FORMAT,
        origin=as_text(meta.get("id")) or path.stem,
        facts=lambda: _CodexReader().read(path),
        began_at=began_at,
        workdir=as_text(meta.get("cwd")) or None,
        parent=_parent(meta),
    )


def _parent(meta: Mapping[str, object]) -> ParentSession | None:
    spawned = as_mapping(as_mapping(as_mapping(meta.get("source")).get("subagent")).get("thread_spawn"))
    if by := as_text(spawned.get("parent_thread_id")):
        return ParentSession(by, is_side=True)
    origin = as_text(meta.get("forked_from_id"))
    return ParentSession(origin) if origin else None


class _CodexReader:
    """The state of reading one rollout."""

    def __init__(self) -> None:
        self._model = ""
        self._pending: list[Part] = []
        """Parts of the current model message, until another message starts."""
        self._units = 0
        self._at = 0
        self._usage = Usage()
        self._total = Usage()
        self._messages = 0
        self._prompts: list[int] = []
        """The numbers of the user messages that were not undone."""
        self._inputs: dict[str, int] = {}
        self._title = ""

    def read(self, path: Path) -> Iterator[Fact]:
        for line in jsonlines.read_lines(path):
            yield from jsonlines.describe_damage(line) if line.value is None else self._line(line.value)
        yield from self._flush()
        yield SessionFacts(title=self._title or None, usage=self._total, units=0)

    def _line(self, line: Mapping[str, object]) -> Iterator[Fact]:
        at, kind = as_time(line.get("timestamp")), as_text(line.get("type"))
        payload = as_mapping(line.get("payload")) if "payload" in line else line
        match kind:
            case "session_meta":
                return
            case "turn_context":
                self._model = as_text(payload.get("model")) or self._model
            case "event_msg":
                yield from self._event(payload, at)
            case "compacted":
                yield from self._compacted(payload, at)
            case _ if "record_type" in line or not (kind or payload):
                return
            case _ if kind == "response_item" or "payload" not in line:
                yield from self._item(payload, at)

    # Items of the model's input and output.

    def _item(self, item: Mapping[str, object], at: int) -> Iterator[Fact]:
        kind = as_text(item.get("type"))
        if kind == "message":
            yield from self._message(item, at)
        elif kind == "reasoning":
            self._add(at, _reasoning(item))
        elif kind in CALLS:
            self._add(at, _call(item, kind))
            if kind == "web_search_call":  # the provider runs it, and the rollout has no result
                yield from self._say(ImportedResult(at=at, call_id=_call_id(item), parts=(), units=0))
        elif kind in RESULTS:
            yield from self._say(_result(item, at))
        elif kind == "image_generation_call":
            self._add(at, _picture(item))
        elif kind and kind not in NO_MESSAGES:
            yield SkippedLines(at=at, why=f"an item of type {kind!r}")

    def _add(self, at: int, *parts: Part) -> None:
        self._pending += parts
        self._units += 1
        self._at = at or self._at

    def _say(self, fact: ImportedInput | ImportedResult) -> Iterator[Fact]:
        yield from self._flush()
        self._messages += 1
        yield fact

    def _flush(self) -> Iterator[Fact]:
        if self._pending:
            self._messages += 1
            parts, units = tuple(self._pending), self._units
            yield ImportedReply(at=self._at, parts=parts, model=self._model, usage=self._usage, units=units)
        self._pending, self._units, self._usage = [], 0, Usage()

    def _message(self, item: Mapping[str, object], at: int) -> Iterator[Fact]:
        parts = _parts(item.get("content"))
        role = as_text(item.get("role"))
        if role == "assistant":
            self._add(at, *parts)
            return
        said = text_of(parts)
        yield from self._flush()
        if role == "user" and not said.lstrip().startswith(INJECTED):
            self._prompts.append(self._messages)
            self._title = self._title or default_title(said)
        self._inputs[said] = self._messages
        yield from self._say(ImportedInput(at=at, parts=parts, name="" if role == "user" else role or "unknown"))

    # Metadata.

    def _event(self, event: Mapping[str, object], at: int) -> Iterator[Fact]:
        if event.get("type") == "token_count":
            info = as_mapping(event.get("info"))
            total, last = _usage(info.get("total_token_usage")), _usage(info.get("last_token_usage"))
            if total != self._total and self._pending:
                self._usage = last
            self._total = total if total != Usage() else self._total
        elif event.get("type") == "thread_rolled_back":
            turns = as_count(event.get("num_turns"))
            if 0 < turns <= len(self._prompts):
                yield from self._flush()
                first = self._prompts[-turns]
                del self._prompts[-turns:]
                yield ImportedUndo(at=at, first=first, units=0)

    def _compacted(self, payload: Mapping[str, object], at: int) -> Iterator[Fact]:
        """A compaction: the new context has a summary and the user messages that were kept."""
        yield from self._flush()
        history = map(as_mapping, as_list(payload.get("replacement_history")))
        kept = [text_of(_parts(one.get("content"))) for one in history]
        strange = [said for said in kept if said and said not in self._inputs]
        summary = as_text(payload.get("message")) or (strange[-1] if strange else "")
        if summary:
            pinned = sorted({self._inputs[said] for said in kept if said in self._inputs})
            yield ImportedCompaction(at=at, summary=summary, pinned=tuple(pinned), units=0)
        else:
            yield SkippedLines(
                at=at, why="a compaction whose summary cannot be read; all its messages are kept", units=0
            )


def _parts(content: object) -> tuple[Content, ...]:
    if isinstance(content, str):
        return text_parts(content)
    found: list[Content] = []
    for one in map(as_mapping, as_list(content)):
        if url := as_text(one.get("image_url")):
            found.append(Image(url) if url.startswith(("data:", "http")) else Text(f"[image {url}]"))
        elif said := as_text(one.get("text")) or as_text(one.get("refusal")):
            found.append(Text(said))
    return tuple(found)


def _reasoning(item: Mapping[str, object]) -> Reasoning:
    pieces = [*as_list(item.get("summary")), *as_list(item.get("content"))]
    opaque = {"encrypted_content": sealed} if (sealed := as_text(item.get("encrypted_content"))) else {}
    return Reasoning("\n\n".join(as_text(as_mapping(one).get("text")) for one in pieces), FORMAT, opaque)


def _call_id(item: Mapping[str, object]) -> str:
    return as_text(item.get("call_id")) or as_text(item.get("id"))


def _call(item: Mapping[str, object], kind: str) -> ToolCall:
    match kind:
        case "custom_tool_call":
            arguments = as_text(item.get("input"))
        case "local_shell_call" | "web_search_call":
            arguments = json.dumps(item.get("action"))
        case _:
            given = item.get("arguments")
            arguments = given if isinstance(given, str) else json.dumps(given)
    return ToolCall(_call_id(item), as_text(item.get("name")) or kind.removesuffix("_call"), arguments)


def _result(item: Mapping[str, object], at: int) -> ImportedResult:
    output = item.get("output", item.get("tools"))
    outcome: Outcome = "ok"
    if isinstance(output, dict) and "content" in output:
        outcome = "failed" if output.get("success") is False else "ok"
        output = output.get("content")
    is_plain = output is None or isinstance(output, str | list)
    parts = _parts(output) if is_plain else text_parts(json.dumps(output))
    return ImportedResult(at=at, call_id=_call_id(item), parts=parts, outcome=outcome)


def _picture(item: Mapping[str, object]) -> Part:
    data = as_text(item.get("result"))
    return Image(f"data:image/png;base64,{data}") if data else Text(f"[image {as_text(item.get('revised_prompt'))}]")


def _usage(value: object) -> Usage:
    counted = as_mapping(value)
    return Usage(
        tokens_in=as_count(counted.get("input_tokens")),
        tokens_out=as_count(counted.get("output_tokens")),
        cache_read=as_count(counted.get("cached_input_tokens")),
        reasoning=as_count(counted.get("reasoning_output_tokens")),
    )
