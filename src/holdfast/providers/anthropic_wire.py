"""A request in the words of the Messages API. Pure: no SDK, no network.

Thinking is bound by the vendor to everything that stood before it; sent back behind other words (after a
compaction, with another system text) it makes the request fail. So each kept block of thinking carries a
fingerprint of what stood before it, and goes back only where the same words still stand there.
https://platform.claude.com/docs/en/build-with-claude/preserved-thinking
"""

import hashlib
import json
import re

import msgspec

from holdfast.model.asking import Request
from holdfast.model.message import Content, File, Image, Reasoning, Text
from holdfast.providers import media
from holdfast.providers.arrange import Answered, Call, Said, arrange, result_parts
from holdfast.providers.wire import arguments, clean, offered, safe_name, schema

NAME = "anthropic"
OFFICIAL = "api.anthropic.com"
MAX_TOKENS = 32_000
"""What every model since Claude 4 can give; the API has no default."""

IDS = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CACHED_MESSAGES = 2
"""The newest message of the user opens the cache for the next request, the one before it is where this one hits."""

Json = dict[str, object]


class Composed(msgspec.Struct, frozen=True):
    """A body, and the fingerprint of all that stands before the answer to it."""

    body: Json
    prefix: str


def render(request: Request, *, server: str = OFFICIAL) -> Json:
    """The body of the request, for any messages whatever.

    Beside the shape that `arrange` gives, it obeys these rules:
    - roles alternate, the first and the last message are the user's;
    - a message with `tool_use` blocks is followed by one that begins with the `tool_result` of each;
    - ids of calls are unique and match `^[a-zA-Z0-9_-]+$`, inputs are objects;
    - no block of text is blank, a result that is an error holds only text, no answer ends with thinking;
    - thinking goes back unchanged, to the `server` that gave it, and only behind the words it was thought behind;
    - tools are declared whenever a call is shown; at most four cache breakpoints;
    - sampling parameters are not sent, since the API refuses them;
    - all text is UTF-8.
    """
    return compose(request, server=server).body


def compose(request: Request, *, server: str = OFFICIAL) -> Composed:
    """What `render` gives, with the fingerprint to keep beside the thinking of the answer."""
    writer = _Writer(request, server)
    messages = writer.messages()
    body: Json = {
        "model": clean(request.model),
        "max_tokens": max(1, request.max_tokens or MAX_TOKENS),
        "messages": _cached(messages),
        "stream": True,
    }
    system, tools = writer.system, writer.tools
    if system:
        body["system"] = [_marked(system[0])]
    if tools:
        body["tools"] = tools if system else [*tools[:-1], _marked(tools[-1])]
    if tools and not request.tools:
        body["tool_choice"] = {"type": "none"}
    return Composed(body, writer.prefix())


class _Writer:
    def __init__(self, request: Request, server: str) -> None:
        self._server = server
        self._offered = offered(request.tools)
        self._names = {tool.name: name for name, tool in self._offered.items()}
        self._blocks = arrange(request.messages, IDS)
        self.system = [_text(clean(request.system))] if request.system.strip() else []
        self.tools = self._declared()
        self._digest = hashlib.sha256()
        self._note([self.system, self.tools])

    def prefix(self) -> str:
        """The fingerprint of all written so far."""
        return self._digest.hexdigest()

    def messages(self) -> list[Json]:
        messages: list[Json] = []
        waiting: list[Json] = []

        def write(role: str, content: list[Json]) -> None:
            messages.append({"role": role, "content": content})
            self._note(messages[-1])

        for block in self._blocks:
            if isinstance(block, Said):
                waiting += [_part(part) for part in block.parts]
                continue
            write("user", waiting)
            write("assistant", self._answer(block))
            waiting = [_result(call) for call in block.calls]
        if waiting:
            write("user", waiting)
        return messages

    def _note(self, written: object) -> None:
        self._digest.update(json.dumps(written, separators=(",", ":")).encode("ascii"))

    def _answer(self, block: Answered) -> list[Json]:
        prefix = self.prefix()
        content: list[Json] = []
        for part in block.parts:
            if not isinstance(part, Reasoning):
                content.append(_text(_words(part)))
            elif thinking := self._thinking(part, prefix):
                content.append(thinking)
        content += [self._call(call) for call in block.calls]
        while content[-1]["type"] in {"thinking", "redacted_thinking"}:
            content.pop()
        return content

    def _thinking(self, part: Reasoning, prefix: str) -> Json | None:
        kept = part.opaque
        if part.provider != NAME or kept.get("server") != self._server or kept.get("prefix") != prefix:
            return None
        if kept.get("data"):
            return {"type": "redacted_thinking", "data": clean(kept["data"])}
        if kept.get("signature"):
            return {"type": "thinking", "thinking": clean(part.text), "signature": clean(kept["signature"])}
        return None

    def _call(self, call: Call) -> Json:
        return {
            "type": "tool_use",
            "id": call.id,
            "name": self._named(call),
            "input": arguments(call.arguments),
        }

    def _named(self, call: Call) -> str:
        return self._names.get(call.name) or safe_name(call.name)

    def _declared(self) -> list[Json]:
        """The tools, or where none are offered those that the messages mention: calls may not be shown without."""
        if self._offered:
            return [
                {"name": name, "description": clean(tool.description), "input_schema": schema(tool.parameters)}
                for name, tool in self._offered.items()
            ]
        calls = [call for block in self._blocks if isinstance(block, Answered) for call in block.calls]
        mentioned = dict.fromkeys(self._named(call) for call in calls)
        return [{"name": name, "description": "Not available now.", "input_schema": schema({})} for name in mentioned]


def _result(call: Call) -> Json:
    result = call.result
    parts = result_parts(result)
    block: Json = {"type": "tool_result", "tool_use_id": call.id}
    if result.outcome == "ok":
        return {**block, "content": [_part(part) for part in parts]}
    return {**block, "content": [_text(_words(part)) for part in parts], "is_error": True}


def _part(part: Content) -> Json:
    if isinstance(part, Image) and (found := media.picture(part)) is not None:
        return {"type": "image", "source": _source(found)}
    if isinstance(part, File) and (document := media.document(part)) is not None:
        source = {"type": "base64", "media_type": "application/pdf", "data": document.base64}
        return {"type": "document", "source": source, "title": media.name_of(part)}
    return _text(_words(part))


def _source(found: media.Inline | str) -> Json:
    if isinstance(found, str):
        return {"type": "url", "url": found}
    return {"type": "base64", "media_type": found.media_type, "data": found.base64}


def _words(part: Content) -> str:
    if isinstance(part, Text):
        return part.text
    return (media.text_file(part) if isinstance(part, File) else None) or media.note(part)


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _marked(block: Json) -> Json:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _cached(messages: list[Json]) -> list[Json]:
    """The messages with a breakpoint at the end of the newest ones of the user."""
    marked = list(messages)
    places = [place for place, message in enumerate(marked) if message["role"] == "user"]
    for place in places[-CACHED_MESSAGES:]:
        content = marked[place]["content"]
        assert isinstance(content, list)
        marked[place] = {"role": "user", "content": [*content[:-1], _marked(content[-1])]}
    return marked
