"""Describes tool calls for editors, from the log alone: kind, title, files, and changes as diffs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acp import helpers
from acp.schema import FileEditToolCallContent, ToolCallLocation, ToolCallProgress, ToolCallStart, ToolKind

from holdfast.acp.content import to_blocks
from holdfast.acp.old_texts import OldText
from holdfast.model.errors import Invalid
from holdfast.model.event import ToolEnded
from holdfast.model.message import ToolCall, text_of
from holdfast.model.session import collapse_line
from holdfast.model.text import truncate
from holdfast.tools.paths import resolve

KINDS: dict[str, ToolKind] = {
    "read_file": "read",
    "recall": "read",
    "write_file": "edit",
    "edit_file": "edit",
    "search_files": "search",
    "terminal": "execute",
    "process": "execute",
    "fetch_url": "fetch",
    "web_search": "fetch",
    "todo": "think",
}
TITLE_CHARS = 120
MAX_RAW_CHARS = 50_000
"""Characters of a result in `rawOutput`; the content has all of it."""


def call_id(turn_id: str, call: str) -> str:
    """The id of a call for the editor: a model may use the same id in two turns."""
    return f"{turn_id}/{call}"


def start(turn_id: str, call: ToolCall, workdir: Path) -> ToolCallStart:
    """The call as the model asked for it."""
    arguments = parse_arguments(call.arguments)
    changed = _edit(call.name, arguments, workdir)
    return helpers.start_tool_call(
        call_id(turn_id, call.id),
        _title(call.name, arguments),
        kind=KINDS.get(call.name, "other"),
        status="pending",
        content=[changed] if changed else None,
        locations=_locations(arguments, workdir),
        raw_input=arguments if arguments else {"text": call.arguments[:MAX_RAW_CHARS]},
    )


def progress(turn_id: str, call: str) -> ToolCallProgress:
    return helpers.update_tool_call(call_id(turn_id, call), status="in_progress")


def output(turn_id: str, call: str, text: str) -> ToolCallProgress:
    """The newest output of a call that runs. The result replaces it."""
    shown = helpers.tool_content(helpers.text_block(text))
    return helpers.update_tool_call(call_id(turn_id, call), status="in_progress", content=[shown])


def end(event: ToolEnded, call: ToolCall | None, workdir: Path, old: OldText | None) -> ToolCallProgress:
    """The result: the diff of a change that was made, and the output. A call whose outcome is unknown has failed.

    `old` is the text of the file that the call has replaced; without it, the output alone tells what has changed.
    """
    content: list[Any] = [helpers.tool_content(block) for block in to_blocks(event.parts)]
    if call is not None and event.outcome == "ok":
        arguments = parse_arguments(call.arguments)
        changed = _edit(call.name, arguments, workdir) or _replacement(call.name, arguments, workdir, old)
        content = [changed, *content] if changed else content
    return helpers.update_tool_call(
        call_id(event.turn_id, event.call_id),
        status="completed" if event.outcome == "ok" else "failed",
        content=content,
        raw_output={"outcome": event.outcome, "text": text_of(event.parts)[:MAX_RAW_CHARS]},
    )


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments, if they are a JSON object; else nothing."""
    try:
        found = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _title(name: str, arguments: dict[str, Any]) -> str:
    """The name and the first text among the arguments, on one line."""
    first = next((value for value in arguments.values() if isinstance(value, str) and value.strip()), "")
    return truncate(collapse_line(f"{name} {first}".strip()), TITLE_CHARS)


def _locations(arguments: dict[str, Any], workdir: Path) -> Sequence[ToolCallLocation] | None:
    path = _path(arguments, workdir)
    if path is None:
        return None
    line = arguments.get("offset")
    is_line = isinstance(line, int) and not isinstance(line, bool) and line > 0
    return [ToolCallLocation(path=path, line=line if is_line else None)]


def _path(arguments: dict[str, Any], workdir: Path) -> str | None:
    named = arguments.get("path")
    if not isinstance(named, str):
        return None
    try:
        return str(resolve(named, workdir))
    except Invalid:
        return None


def _edit(name: str, arguments: dict[str, Any], workdir: Path) -> FileEditToolCallContent | None:
    path, old, new = _path(arguments, workdir), arguments.get("old"), arguments.get("new")
    if name != "edit_file" or path is None or not isinstance(old, str) or not isinstance(new, str):
        return None
    return helpers.tool_diff_content(path, new, old)


def _replacement(
    name: str, arguments: dict[str, Any], workdir: Path, old: OldText | None
) -> FileEditToolCallContent | None:
    path, content = _path(arguments, workdir), arguments.get("content")
    if name != "write_file" or path is None or not isinstance(content, str) or old is None:
        return None
    return helpers.tool_diff_content(path, content, old.text)
