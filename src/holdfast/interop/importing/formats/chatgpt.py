"""Reads the `conversations.json` of a ChatGPT export: a list of sessions, each a tree of messages.

The path from the root to the current message is the session; every other path is a branch, which is a separate
session. The list is read in pieces, because exports can be larger than memory.
"""

import json
from collections.abc import Iterator, Mapping
from io import TextIOWrapper
from pathlib import Path

from holdfast.interop.importing.facts import (
    Fact,
    ForeignSession,
    ImportedInput,
    ImportedReply,
    ImportedResult,
    ParentSession,
    SkippedLines,
    as_list,
    as_mapping,
    as_text,
    as_time,
)
from holdfast.model.errors import Corrupt
from holdfast.model.message import Content, Image, Part, Reasoning, Text, ToolCall, text_of

FORMAT = "chatgpt"
PIECE = 1 << 20
LONGEST = 256 * 1024 * 1024
"""The maximum length of one session in characters; a longer one is treated as damaged."""
Node = Mapping[str, object]
_json = json.JSONDecoder()


def recognises(value: object) -> bool:
    """Whether this is a session of an export."""
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def read_sessions(path: Path) -> Iterator[ForeignSession]:
    """Every session and its branches. Raises OSError, and Corrupt where the file becomes unreadable."""
    for number, (value, share) in enumerate(read_values(path), 1):
        if recognises(value) and as_mapping(value).get("mapping"):
            yield from _read_tree(as_mapping(value), share)
        else:
            yield _unknown_value(as_mapping(value), number, share)


def _unknown_value(value: Node, number: int, share: float) -> ForeignSession:
    """A value in the list without messages, so that the report mentions it."""
    origin = as_text(value.get("conversation_id")) or as_text(value.get("id")) or f"number {number}"
    skipped = SkippedLines(why=f"entry {number} of the list, which has no messages", units=0)
    title = as_text(value.get("title")) or None
    return ForeignSession(format=FORMAT, origin=origin, facts=lambda: iter([skipped]), title=title, share=share)


def read_values(path: Path, piece: int = PIECE) -> Iterator[tuple[object, float]]:
    """The values of a JSON list, or the one value of the file, each with the share of the file read so far."""
    size = max(path.stat().st_size, 1)
    with path.open("rb") as raw, TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape") as file:
        buffer, position, count, is_list, is_read = "", 0, 0, False, False
        while True:
            position = _next_value(buffer, position)
            if not is_list and count == 0 and buffer[position : position + 1] == "[":
                is_list, position = True, _next_value(buffer, position + 1)
            if buffer[position : position + 1] == "]" or (count and not is_list):
                return
            try:
                value, position = _json.raw_decode(buffer, position)
            except (ValueError, RecursionError) as e:
                more = (
                    "" if is_read or len(buffer) - position > LONGEST else file.read(max(piece, len(buffer) - position))
                )
                is_read = not more
                if is_read:
                    raise Corrupt(
                        f"damaged or truncated in session {count + 1}; everything before it was imported"
                    ) from e
                buffer, position = buffer[position:] + more, 0
                continue
            count += 1
            yield value, min(raw.tell() / size, 1.0)


def _next_value(buffer: str, position: int) -> int:
    while position < len(buffer) and buffer[position] in " \t\r\n,":
        position += 1
    return position


def _read_tree(session: Node, share: float) -> Iterator[ForeignSession]:
    tree = {name: as_mapping(node) for name, node in as_mapping(session.get("mapping")).items()}
    origin = as_text(session.get("conversation_id")) or as_text(session.get("id"))
    title, began_at = as_text(session.get("title")) or None, as_time(session.get("create_time"))
    seen: set[str] = set()
    for number, leaf in enumerate(_leaves(tree, as_text(session.get("current_node")))):
        path = _path(tree, leaf)
        fresh = [name for name in path if name not in seen]
        shared = seen.intersection(path)
        own = [name for name in fresh if _holds_something(tree[name])]
        seen.update(path)
        if number and not own:
            continue
        yield ForeignSession(
            format=FORMAT,
            origin=origin or path[0] if not number else f"{origin or path[0]}/{own[0]}",
            facts=lambda path=path, shared=shared: _facts(tree, path, shared),  # type: ignore[misc]
            began_at=began_at,
            title=title,
            parent=ParentSession(origin or path[0], began_at) if number else None,
            share=share,
        )


def _leaves(tree: Mapping[str, Node], current: str) -> list[str]:
    """The current message, then the ends of all other branches, in the order of the file."""
    parents = {as_text(node.get("parent")) for node in tree.values()}
    ends = [name for name in tree if name not in parents]
    first = current if current in tree else (ends[-1] if ends else "")
    return [name for name in dict.fromkeys([first, *ends]) if name in tree]


def _path(tree: Mapping[str, Node], leaf: str) -> list[str]:
    """From the root to the leaf; a cycle, which occurs only in damaged files, is followed once."""
    path: dict[str, None] = {}
    name = leaf
    while name in tree and name not in path:
        path[name] = None
        name = as_text(tree[name].get("parent"))
    return list(reversed(path))


def _holds_something(node: Node) -> bool:
    message = as_mapping(node.get("message"))
    content = as_mapping(message.get("content"))
    return any(content.get(field) for field in ("parts", "text", "result", "thoughts", "content", "user_profile")) and (
        content.get("parts") != [""]
    )


def _facts(tree: Mapping[str, Node], path: list[str], shared: set[str]) -> Iterator[Fact]:
    """The facts of one path through the tree; messages that another session has are not counted again."""
    thoughts: list[Part] = []
    thinking = 0
    calls: dict[str, list[str]] = {}
    for name in path:
        message, units = as_mapping(tree[name].get("message")), int(name not in shared)
        if not _holds_something(tree[name]):
            continue
        role = as_text(as_mapping(message.get("author")).get("role"))
        content, at = as_mapping(message.get("content")), as_time(message.get("create_time"))
        if role == "assistant" and content.get("content_type") in ("thoughts", "reasoning_recap"):
            thoughts.append(Reasoning(_thoughts(content), FORMAT))
            thinking += units
            continue
        if thoughts and role != "assistant":
            yield ImportedReply(at=at, parts=tuple(thoughts), units=thinking)
            thoughts, thinking = [], 0
        parts = tuple(_parts(content))
        match role:
            case "assistant":
                yield _reply(name, message, at, (*thoughts, *parts), units + thinking, calls)
                thoughts, thinking = [], 0
            case "tool":
                tool = as_text(as_mapping(message.get("author")).get("name"))
                waiting = calls.get(tool) or [name]
                yield ImportedResult(at=at, call_id=waiting.pop(0), parts=parts, name=tool, units=units)
            case "user" | "system":
                yield ImportedInput(at=at, parts=parts, name="" if _is_typed(message, role) else "system", units=units)
            case _:
                yield SkippedLines(at=at, why=f"a message with the role {role!r}", units=units)
    if thoughts:
        yield ImportedReply(parts=tuple(thoughts), units=thinking)


def _is_typed(message: Node, role: str) -> bool:
    return role == "user" and as_mapping(message.get("content")).get("content_type") != "user_editable_context"


def _reply(
    name: str, message: Node, at: int, parts: tuple[Part, ...], units: int, calls: dict[str, list[str]]
) -> ImportedReply:
    """A reply of the model; one that is addressed to a tool is a call."""
    recipient = as_text(message.get("recipient"))
    if recipient and recipient != "all":
        asked = text_of(parts)
        rest = tuple(part for part in parts if not isinstance(part, Text))
        calls.setdefault(recipient, []).append(name)
        parts = (*rest, ToolCall(name, recipient, asked))
    meta = as_mapping(message.get("metadata"))
    return ImportedReply(
        at=at,
        parts=parts,
        model=as_text(meta.get("model_slug")),
        finish=as_text(as_mapping(meta.get("finish_details")).get("type")),
        partial=message.get("status") == "in_progress",
        units=units,
    )


def _thoughts(content: Node) -> str:
    pieces = [as_mapping(one) for one in as_list(content.get("thoughts"))]
    texts = [f"{as_text(one.get('summary'))}\n{as_text(one.get('content'))}".strip() for one in pieces]
    return "\n\n".join(texts) or as_text(content.get("content"))


def _parts(content: Node) -> Iterator[Content]:
    for field in ("user_profile", "user_instructions", "text", "result"):
        if said := as_text(content.get(field)):
            yield Text(said)
    for part in as_list(content.get("parts")):
        if isinstance(part, str):
            if part:
                yield Text(part)
        elif url := as_text(as_mapping(part).get("url")):
            yield Image(url) if url.startswith(("data:", "https:")) else Text(f"[image {url}]")
        elif isinstance(part, dict):
            yield Text(_reference(part))


def _reference(part: Node) -> str:
    """A text for an image or sound that the export only references; the transcript of speech."""
    if said := as_text(part.get("text")):
        return said
    kind = as_text(part.get("content_type")).removesuffix("_asset_pointer") or "attachment"
    return f"[{kind} {as_text(part.get('asset_pointer'))}]" if part.get("asset_pointer") else json.dumps(part)
