"""The documents of the Responses API: a response, and the items in it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.api.openai.reply import chunk_fields
from holdfast.api.openai.responses import ids
from holdfast.api.openai.responses.input_items import qualified_name
from holdfast.model.event import ClientTool, TurnEnded, Usage
from holdfast.model.event import RequestOptions as TurnTerms
from holdfast.model.message import ToolCall

Object = dict[str, object]
NAMESPACES = "namespaces"
"""Key under which the namespaces of the client's tools are stored; the response has them in its tools."""
INCOMPLETE_REASONS = {"length": "max_output_tokens", "refused": "content_filter"}
DEFAULTS: Object = {
    "background": False,
    "conversation": None,
    "frequency_penalty": 0.0,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt": None,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""Values of fields that the request omitted. Those that a provider decides have the value of OpenAI's API."""


@dataclass(frozen=True)
class ResponseFacts:
    """What is known of a response before any output: its turn and the request's options."""

    session_id: str
    turn_id: str
    """The turn id under which its input was admitted; part of the response's id."""
    within: str
    """The turn that contains the input: another one if the input joined it."""
    model: str
    terms: TurnTerms

    @property
    def id(self) -> str:
        return ids.response_id(self.session_id, self.turn_id)

    @property
    def echoed(self) -> Object:
        """Request fields that the response repeats, with the parts that the request omitted."""
        found = {name: json.loads(value) for name, value in self.terms.echo.items() if name != NAMESPACES}
        if self.terms.temperature is not None:
            found["temperature"] = self.terms.temperature
        if found.get("service_tier") == "auto":
            found["service_tier"] = "default"
        for name in ("reasoning", "text"):
            if isinstance(given := found.get(name), dict):
                default: object = DEFAULTS[name]
                assert isinstance(default, dict), "it has parts"
                found[name] = default | {part: value for part, value in given.items() if value is not None}
        return found

    @property
    def is_stored(self) -> bool:
        return bool(self.echoed.get("store"))

    @property
    def shows_reasoning(self) -> bool:
        reasoning = self.echoed.get("reasoning")
        return isinstance(reasoning, dict) and reasoning.get("summary") is not None

    @property
    def namespaces(self) -> dict[str, tuple[str, str]]:
        """Namespaced tools by the name the model uses: (namespace, name)."""
        found: dict[str, tuple[str, str]] = {}
        for space in json.loads(self.terms.echo.get(NAMESPACES, "[]")):
            head = qualified_name(space, "")
            found |= {
                tool.name: (space, tool.name[len(head) :]) for tool in self.terms.tools if tool.name.startswith(head)
            }
        return found

    def document(
        self, status: str, output: list[Object], ended: TurnEnded | None = None, ended_at: int | None = None
    ) -> Object:
        echoed = self.echoed
        conversation = echoed.get("conversation")
        if isinstance(conversation, str):
            echoed["conversation"] = {"id": conversation}
        return {
            "id": self.id,
            "object": "response",
            "created_at": chunk_fields(self.turn_id, "").created,
            "completed_at": ended_at // 1_000_000 if ended_at is not None and status == "completed" else None,
            "status": status,
            "error": _error(ended) if status in ("failed", "cancelled") else None,
            "incomplete_details": {"reason": _incomplete_reason(output)} if status == "incomplete" else None,
            "instructions": self.terms.instructions,
            "model": self.model,
            "output": list(output),
            "tools": [tool_document(offer) for offer in self.terms.tools],
            "usage": usage_document(ended.usage) if ended is not None else None,
            **DEFAULTS,
            **echoed,
        }


def _incomplete_reason(output: list[Object]) -> str:
    """Return why a response is incomplete: a truncated reply has an incomplete item, a refused one has none."""
    return INCOMPLETE_REASONS["length" if any(item.get("status") == "incomplete" for item in output) else "refused"]


def _error(ended: TurnEnded | None) -> Object | None:
    if ended is None:
        return None
    return {"code": ended.code or ended.outcome, "message": ended.reason or f"the turn was {ended.outcome}"}


def usage_document(used: Usage) -> Object:
    return {
        "input_tokens": used.tokens_in,
        "input_tokens_details": {"cached_tokens": used.cache_read, "cache_write_tokens": used.cache_write},
        "output_tokens": used.tokens_out,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.tokens_in + used.tokens_out,
    }


def tool_document(offer: ClientTool) -> Object:
    about: Object = {"type": "function", "name": offer.name, "description": offer.description}
    return {**about, "parameters": json.loads(offer.parameters), "strict": offer.strict}


def text_part(text: str) -> Object:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message_item(id_: str, status: str, text: str | None = None) -> Object:
    content = [] if text is None else [text_part(text)]
    return {"id": id_, "type": "message", "role": "assistant", "status": status, "content": content}


def reasoning_item(id_: str, text: str | None = None) -> Object:
    summary = [] if text is None else [{"type": "summary_text", "text": text}]
    return {"id": id_, "type": "reasoning", "summary": summary}


def call_item(id_: str, call: ToolCall, spaces: Mapping[str, tuple[str, str]], status: str = "completed") -> Object:
    """Build the item of a call that the client must run."""
    space, name = spaces.get(call.name, ("", call.name))
    arguments = call.arguments if status == "completed" else ""
    about: Object = {"id": id_, "type": "function_call", "call_id": call.id, "name": name, "arguments": arguments}
    return {**about, "status": status, **({"namespace": space} if space else {})}
