"""Builds requests for the Messages API. Pure: no network.

The API binds thinking to everything before it: sent back after other content (after a compaction, with another
system prompt) it makes the request fail. So each stored thinking block carries a fingerprint of the content before
it, and is sent back only if that content is unchanged.
https://platform.claude.com/docs/en/build-with-claude/preserved-thinking
"""

import hashlib
import json
import re
from collections.abc import Iterable

from holdfast.model.message import Content, File, Image, Reasoning
from holdfast.model.provider import ModelRequest, ToolSpec
from holdfast.providers import media
from holdfast.providers.normalize import Block, CallWithResult, ModelBlock, UserBlock, result_parts
from holdfast.providers.rendered_prefix import RenderedBody, RenderedPrefix, assemble, encode_items
from holdfast.providers.sanitize import clean, object_schema, parse_arguments, safe_name

NAME = "anthropic"
OFFICIAL = "api.anthropic.com"
OPTION_PREFIX = f"{NAME}."
MAX_TOKENS = 32_000
"""Supported by every model since Claude 4; the API has no default."""

IDS = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CACHED_MESSAGES = 2
"""The newest user message creates the cache entry for the next request; the one before it is where this request hits."""

Json = dict[str, object]


class AnthropicBody(RenderedBody, frozen=True):
    fingerprint: str
    """Of everything before the answer, to store with the thinking in it."""


def _tool(tool: ToolSpec, name: str) -> Json:
    return {"name": name, "description": clean(tool.description), "input_schema": object_schema(tool.parameters)}


class AnthropicPrefix(RenderedPrefix):
    call_id_pattern = IDS
    tool_form = staticmethod(_tool)

    def __init__(self, server: str, tools: tuple[ToolSpec, ...]) -> None:
        super().__init__(server, tools)
        self.system: list[Json] = []
        self.declared = self.declared_tools.items
        self.called: dict[str, None] = {}
        """The names of the tools that the settled messages call."""
        self.digest = hashlib.sha256()
        """Of the system text, the tools and the settled messages."""

    def wire_name(self, call: CallWithResult) -> str:
        return self.declared_tools.names.get(call.name) or safe_name(call.name)


def render(request: ModelRequest, *, server: str = OFFICIAL) -> AnthropicBody:
    """The body of the request, for any sequence of messages.

    In addition to the form that `normalize` gives, it follows these rules:
    - roles alternate, the first and the last message are the user's;
    - a message with `tool_use` blocks is followed by one that starts with the `tool_result` of each;
    - call ids are unique and match `^[a-zA-Z0-9_-]+$`, inputs are objects;
    - no text block is blank, an error result contains only text, no answer ends with thinking;
    - thinking is sent back unchanged, only to the `server` that produced it and only after the same content;
    - tools are declared whenever a call is included; at most four cache breakpoints;
    - sampling parameters are not sent, because the API rejects them; options named `anthropic.…` are;
    - all text is UTF-8.
    """
    prefix = AnthropicPrefix.of(request, server)
    written = _write(request, prefix)
    if written is None:  # the system text or the tools have changed, and with them each fingerprint
        prefix = AnthropicPrefix(server, request.tools)
        written = _write(request, prefix)
        assert written is not None
    newest, fingerprint = written
    body: Json = {"max_tokens": max(1, request.max_tokens or MAX_TOKENS), "stream": True, **_options(request)}
    system, tools = prefix.system, prefix.declared
    if system:
        body["system"] = [_with_breakpoint(system[0])]
    if tools:
        body["tools"] = tools if system else [*tools[:-1], _with_breakpoint(tools[-1])]
    if tools and not request.tools:
        body["tool_choice"] = {"type": "none"}
    return AnthropicBody(assemble(clean(request.model), b"", prefix, newest, body), prefix, fingerprint)


def _options(request: ModelRequest) -> Json:
    """The options for this provider, which a client of our own Messages API may send."""
    given = {
        name.removeprefix(OPTION_PREFIX): json.loads(value)
        for name, value in request.options.items()
        if name.startswith(OPTION_PREFIX)
    }
    if not request.tools:
        given.pop("tool_choice", None)
    return given


def _write(request: ModelRequest, prefix: AnthropicPrefix) -> tuple[bytes, str] | None:
    """The messages after the settled ones, and the fingerprint; None if those that the prefix keeps cannot be used."""
    new = prefix.split(request.messages)
    system = [_text(clean(request.system))] if request.system.strip() else []
    called = prefix.called | _called(new.settled, prefix)
    declared = prefix.declared if prefix.tools else _declare_called(called | _called(new.newest, prefix))
    if not prefix.json:
        prefix.system, prefix.declared = system, declared
        prefix.digest = hashlib.sha256()
        _update(prefix.digest, [system, declared])
    elif (prefix.system, prefix.declared) != (system, declared):
        return None
    writer = _MessageWriter(prefix, prefix.digest.copy())
    settled = writer.messages(new.settled)
    digest = writer.digest.copy()
    newest = writer.messages(new.newest)
    prefix.settle(request, new, settled)
    prefix.digest, prefix.called = digest, called
    return encode_items(_with_cache_breakpoints(newest)), writer.digest.hexdigest()


class _MessageWriter:
    """Renders blocks, and computes the fingerprint of all that is written."""

    def __init__(self, prefix: AnthropicPrefix, digest: "hashlib._Hash") -> None:
        self._prefix = prefix
        self.digest = digest

    def messages(self, blocks: list[Block]) -> list[Json]:
        messages: list[Json] = []
        waiting: list[Json] = []

        def write(role: str, content: list[Json]) -> None:
            messages.append({"role": role, "content": content})
            _update(self.digest, messages[-1])

        for block in blocks:
            if isinstance(block, UserBlock):
                waiting += [_part(part) for part in block.parts]
                continue
            write("user", waiting)
            write("assistant", self._answer(block))
            waiting = [_result(call) for call in block.calls]
        if waiting:
            write("user", waiting)
        return messages

    def _answer(self, block: ModelBlock) -> list[Json]:
        fingerprint = self.digest.hexdigest()
        content: list[Json] = []
        for part in block.parts:
            if not isinstance(part, Reasoning):
                content.append(_text(media.text_of(part)))
            elif thinking := self._thinking(part, fingerprint):
                content.append(thinking)
        content += [self._call(call) for call in block.calls]
        while content[-1]["type"] in {"thinking", "redacted_thinking"}:
            content.pop()
        return content

    def _thinking(self, part: Reasoning, fingerprint: str) -> Json | None:
        kept = part.opaque
        if part.provider != NAME or kept.get("server") != self._prefix.server or kept.get("prefix") != fingerprint:
            return None
        if kept.get("data"):
            return {"type": "redacted_thinking", "data": clean(kept["data"])}
        if kept.get("signature"):
            return {"type": "thinking", "thinking": clean(part.text), "signature": clean(kept["signature"])}
        return None

    def _call(self, call: CallWithResult) -> Json:
        return {
            "type": "tool_use",
            "id": call.id,
            "name": self._prefix.wire_name(call),
            "input": parse_arguments(call.arguments),
        }


def _update(digest: "hashlib._Hash", written: object) -> None:
    digest.update(json.dumps(written, separators=(",", ":")).encode("ascii"))


def _called(blocks: list[Block], prefix: AnthropicPrefix) -> dict[str, None]:
    calls = [call for block in blocks if isinstance(block, ModelBlock) for call in block.calls]
    return dict.fromkeys(prefix.wire_name(call) for call in calls)


def _declare_called(names: Iterable[str]) -> list[Json]:
    """Without tools, those that the messages call, because the API requires a declaration."""
    return [{"name": name, "description": "Not available now.", "input_schema": object_schema({})} for name in names]


def _result(call: CallWithResult) -> Json:
    result = call.result
    parts = result_parts(result)
    block: Json = {"type": "tool_result", "tool_use_id": call.id}
    if result.outcome == "ok":
        return {**block, "content": [_part(part) for part in parts]}
    return {**block, "content": [_text(media.text_of(part)) for part in parts], "is_error": True}


def _part(part: Content) -> Json:
    if isinstance(part, Image) and (found := media.load_image(part)) is not None:
        return {"type": "image", "source": _source(found)}
    if isinstance(part, File) and (document := media.load_pdf(part)) is not None:
        source = {"type": "base64", "media_type": "application/pdf", "data": document.base64}
        return {"type": "document", "source": source, "title": media.display_name(part)}
    return _text(media.text_of(part))


def _source(found: media.InlineContent | str) -> Json:
    if isinstance(found, str):
        return {"type": "url", "url": found}
    return {"type": "base64", "media_type": found.media_type, "data": found.base64}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _with_breakpoint(block: Json) -> Json:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _with_cache_breakpoints(messages: list[Json]) -> list[Json]:
    """The messages with a cache breakpoint at the end of the newest user messages."""
    marked = list(messages)
    indexes = [index for index, message in enumerate(marked) if message["role"] == "user"]
    for index in indexes[-CACHED_MESSAGES:]:
        content = marked[index]["content"]
        assert isinstance(content, list)
        marked[index] = {"role": "user", "content": [*content[:-1], _with_breakpoint(content[-1])]}
    return marked
