"""Reads the `conversations.json` of a ChatGPT export: a list of sessions, each a tree of messages.

The way from the root to the message that is shown now is the session; every other way that was taken is a branch of it, a
session of its own. The list is read piece by piece, because exports can be larger than memory.
"""

import json
from collections.abc import Iterator, Mapping
from io import TextIOWrapper
from pathlib import Path

from holdfast.interop.foreign import (
    Fact,
    Foreign,
    Heard,
    Parent,
    Replied,
    Returned,
    Skipped,
    instant,
    items,
    mapping,
    text,
)
from holdfast.model.errors import Corrupt
from holdfast.model.message import Content, Image, Part, Reasoning, Text, ToolCall, text_of

FORMAT = "chatgpt"
PIECE = 1 << 20
LONGEST = 256 * 1024 * 1024
"""Letters of one session at most; a place where none ends for so long is damaged."""
Node = Mapping[str, object]
_json = json.JSONDecoder()


def recognises(value: object) -> bool:
    """Whether this is a session of an export."""
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def sessions(path: Path) -> Iterator[Foreign]:
    """Every session and its branches. Raises OSError, and Corrupt where the file cannot be read any further."""
    for number, (value, share) in enumerate(objects(path), 1):
        if recognises(value) and mapping(value).get("mapping"):
            yield from _of_one(mapping(value), share)
        else:
            yield _strange(mapping(value), number, share)


def _strange(value: Node, number: int, share: float) -> Foreign:
    """Something in the list that holds no messages, at that place: the report tells of it."""
    origin = text(value.get("conversation_id")) or text(value.get("id")) or f"number {number}"
    skipped = Skipped(why=f"number {number} of the list, which holds no tree of messages", units=0)
    title = text(value.get("title")) or None
    return Foreign(format=FORMAT, origin=origin, facts=lambda: iter([skipped]), title=title, share=share)


def objects(path: Path, piece: int = PIECE) -> Iterator[tuple[object, float]]:
    """The values of a JSON list, or the one value of the file, each with how much of the file has been read then."""
    size = max(path.stat().st_size, 1)
    with path.open("rb") as raw, TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape") as file:
        buffer, place, count, is_list, is_read = "", 0, 0, False, False
        while True:
            place = _next_value(buffer, place)
            if not is_list and count == 0 and buffer[place : place + 1] == "[":
                is_list, place = True, _next_value(buffer, place + 1)
            if buffer[place : place + 1] == "]" or (count and not is_list):
                return
            try:
                value, place = _json.raw_decode(buffer, place)
            except (ValueError, RecursionError) as e:
                more = "" if is_read or len(buffer) - place > LONGEST else file.read(max(piece, len(buffer) - place))
                is_read = not more
                if is_read:
                    raise Corrupt(f"damaged or cut off in its session {count + 1}; all before it was taken") from e
                buffer, place = buffer[place:] + more, 0
                continue
            count += 1
            yield value, min(raw.tell() / size, 1.0)


def _next_value(buffer: str, place: int) -> int:
    while place < len(buffer) and buffer[place] in " \t\r\n,":
        place += 1
    return place


def _of_one(session: Node, share: float) -> Iterator[Foreign]:
    tree = {name: mapping(node) for name, node in mapping(session.get("mapping")).items()}
    origin = text(session.get("conversation_id")) or text(session.get("id"))
    title, began_at = text(session.get("title")) or None, instant(session.get("create_time"))
    seen: set[str] = set()
    for number, leaf in enumerate(_leaves(tree, text(session.get("current_node")))):
        path = _path(tree, leaf)
        fresh = [name for name in path if name not in seen]
        shared = seen.intersection(path)
        own = [name for name in fresh if _holds_something(tree[name])]
        seen.update(path)
        if number and not own:
            continue
        yield Foreign(
            format=FORMAT,
            origin=origin or path[0] if not number else f"{origin or path[0]}/{own[0]}",
            facts=lambda path=path, shared=shared: _facts(tree, path, shared),  # type: ignore[misc]
            began_at=began_at,
            title=title,
            parent=Parent(origin or path[0], began_at) if number else None,
            share=share,
        )


def _leaves(tree: Mapping[str, Node], current: str) -> list[str]:
    """The message that is shown now, then the ends of all other branches, in the order of the file."""
    parents = {text(node.get("parent")) for node in tree.values()}
    ends = [name for name in tree if name not in parents]
    first = current if current in tree else (ends[-1] if ends else "")
    return [name for name in dict.fromkeys([first, *ends]) if name in tree]


def _path(tree: Mapping[str, Node], leaf: str) -> list[str]:
    """From the root to the leaf; a ring, which only damage makes, is gone round once."""
    path: dict[str, None] = {}
    name = leaf
    while name in tree and name not in path:
        path[name] = None
        name = text(tree[name].get("parent"))
    return list(reversed(path))


def _holds_something(node: Node) -> bool:
    message = mapping(node.get("message"))
    content = mapping(message.get("content"))
    return any(content.get(field) for field in ("parts", "text", "result", "thoughts", "content", "user_profile")) and (
        content.get("parts") != [""]
    )


def _facts(tree: Mapping[str, Node], path: list[str], shared: set[str]) -> Iterator[Fact]:
    """What was said on one way through the tree; what another session has already is not counted again."""
    thoughts: list[Part] = []
    thinking = 0
    calls: dict[str, list[str]] = {}
    for name in path:
        message, units = mapping(tree[name].get("message")), int(name not in shared)
        if not _holds_something(tree[name]):
            continue
        role = text(mapping(message.get("author")).get("role"))
        content, at = mapping(message.get("content")), instant(message.get("create_time"))
        if role == "assistant" and content.get("content_type") in ("thoughts", "reasoning_recap"):
            thoughts.append(Reasoning(_thoughts(content), FORMAT))
            thinking += units
            continue
        if thoughts and role != "assistant":
            yield Replied(at=at, parts=tuple(thoughts), units=thinking)
            thoughts, thinking = [], 0
        parts = tuple(_parts(content))
        match role:
            case "assistant":
                yield _reply(name, message, at, (*thoughts, *parts), units + thinking, calls)
                thoughts, thinking = [], 0
            case "tool":
                tool = text(mapping(message.get("author")).get("name"))
                waiting = calls.get(tool) or [name]
                yield Returned(at=at, call_id=waiting.pop(0), parts=parts, name=tool, units=units)
            case "user" | "system":
                yield Heard(at=at, parts=parts, name="" if _is_typed(message, role) else "system", units=units)
            case _:
                yield Skipped(at=at, why=f"a message of the role {role!r}", units=units)
    if thoughts:
        yield Replied(parts=tuple(thoughts), units=thinking)


def _is_typed(message: Node, role: str) -> bool:
    return role == "user" and mapping(message.get("content")).get("content_type") != "user_editable_context"


def _reply(
    name: str, message: Node, at: int, parts: tuple[Part, ...], units: int, calls: dict[str, list[str]]
) -> Replied:
    """What the model said; said to a tool, it is a call."""
    recipient = text(message.get("recipient"))
    if recipient and recipient != "all":
        asked = text_of(parts)
        rest = tuple(part for part in parts if not isinstance(part, Text))
        calls.setdefault(recipient, []).append(name)
        parts = (*rest, ToolCall(name, recipient, asked))
    meta = mapping(message.get("metadata"))
    return Replied(
        at=at,
        parts=parts,
        model=text(meta.get("model_slug")),
        finish=text(mapping(meta.get("finish_details")).get("type")),
        partial=message.get("status") == "in_progress",
        units=units,
    )


def _thoughts(content: Node) -> str:
    pieces = [mapping(one) for one in items(content.get("thoughts"))]
    told = [f"{text(one.get('summary'))}\n{text(one.get('content'))}".strip() for one in pieces]
    return "\n\n".join(told) or text(content.get("content"))


def _parts(content: Node) -> Iterator[Content]:
    for field in ("user_profile", "user_instructions", "text", "result"):
        if said := text(content.get(field)):
            yield Text(said)
    for part in items(content.get("parts")):
        if isinstance(part, str):
            if part:
                yield Text(part)
        elif url := text(mapping(part).get("url")):
            yield Image(url) if url.startswith(("data:", "https:")) else Text(f"[image {url}]")
        elif isinstance(part, dict):
            yield Text(_reference(part))


def _reference(part: Node) -> str:
    """A picture or a sound that the export only points to, in words; spoken words themselves."""
    if said := text(part.get("text")):
        return said
    kind = text(part.get("content_type")).removesuffix("_asset_pointer") or "attachment"
    return f"[{kind} {text(part.get('asset_pointer'))}]" if part.get("asset_pointer") else json.dumps(part)
