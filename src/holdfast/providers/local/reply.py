"""Assembles the reply of an embedded model, and maps the errors of its library."""

import json
import re
import secrets
from collections.abc import Iterator
from typing import Any

from holdfast.model.errors import BadReply, ContextTooLong, ProviderFailed, Refused
from holdfast.model.event import Usage
from holdfast.model.message import Part, Reasoning, Text, ToolCall
from holdfast.model.provider import Delta, ModelReply, ReasoningDelta, TextDelta

PROVIDER = "local"
Json = dict[str, Any]

PARTIAL_SAY = r"""(?x)\s*\{\s*"say"\s*:\s*"((?:
        [^"\\] | \\[^u] | \\u(?![dD][89abAB])[0-9a-fA-F]{4}
        | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}  # a pair of surrogates, never half of it
    )*)"""


class LocalReply:
    """Assembles the chunks of one reply. With `constrained` they are JSON, of which only the text is shown."""

    def __init__(self, model: str, *, constrained: bool) -> None:
        self._model = model
        self._constrained = constrained
        self._text = ""
        self._reasoning = ""
        self._shown = 0
        self._finish: str | None = None
        self._usage = Usage()

    def take(self, chunk: Json) -> Iterator[Delta]:
        """Add one chunk and return the deltas to show. Raises the failure that a chunk reports."""
        if "error" in chunk:
            raise map_error(chunk["error"])
        if usage := chunk.get("usage"):
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self._usage = Usage(
                tokens_in=usage["prompt_tokens"], tokens_out=usage["completion_tokens"], cache_read=cached
            )
        for choice in chunk.get("choices", ()):
            self._finish = choice["finish_reason"] or self._finish
            if thought := choice["delta"].get("reasoning_content"):
                self._reasoning += thought
                yield ReasoningDelta(thought)
            if said := choice["delta"].get("content"):
                self._text += said
                yield from self._show()

    def _show(self) -> Iterator[Delta]:
        visible = partial_text(self._text) if self._constrained else self._text
        if len(visible) > self._shown:
            yield TextDelta(visible[self._shown :])
            self._shown = len(visible)

    def reply(self) -> ModelReply:
        """The complete reply. Raises BadReply if the end is missing."""
        if self._finish is None:
            raise BadReply(f"{self._model} ended the stream before the reply was complete: try again")
        parts: list[Part] = [Reasoning(self._reasoning, provider=PROVIDER)] if self._reasoning else []
        said = self._decide() if self._constrained else Text(self._text)
        if said != Text(""):
            parts.append(said)
        finish = "tool_calls" if isinstance(said, ToolCall) else self._finish
        return ModelReply(parts=tuple(parts), model=self._model, finish=finish, usage=self._usage)

    def _decide(self) -> Text | ToolCall:
        try:
            chosen = json.loads(self._text)
        except ValueError as e:
            # Only the token limit can end constrained output early: text may be truncated, a call may not.
            if visible := partial_text(self._text):
                return Text(visible)
            raise BadReply(f"{self._model} reached its token limit in the middle of a tool call") from e
        if "say" in chosen:
            return Text(chosen["say"])
        return ToolCall(f"call-{secrets.token_hex(8)}", chosen["tool"], json.dumps(chosen["args"]))


def partial_text(raw: str) -> str:
    """The text in a `{"say": "…"}` that may be incomplete."""
    begun = re.match(PARTIAL_SAY, raw)
    return str(json.loads(f'"{begun[1]}"', strict=False)) if begun else ""


def map_error(error: Json) -> ProviderFailed:
    """Map the library's error to ours."""
    message = str(error.get("message", "the embedded model gave no reason"))
    if error.get("type") == "exceed_context_size_error":
        return ContextTooLong(message)
    return Refused(message) if 400 <= int(error.get("code", 500)) < 500 else BadReply(message)
