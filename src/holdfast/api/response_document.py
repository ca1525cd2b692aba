"""The documents of the Responses API: a response, and the items in it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.api import response_ids
from holdfast.api.items import in_namespace
from holdfast.api.reply import frame
from holdfast.model.event import Terms as TurnTerms
from holdfast.model.event import TurnEnded, Usage
from holdfast.model.message import ToolCall

Object = dict[str, object]
SPACES = "namespaces"
"""Where the namespaces of the client's tools are kept; the response has them in its tools."""
INCOMPLETE = {"length": "max_output_tokens", "refused": "content_filter"}
DEFAULTS: Object = {
    "background": False,
    "conversation": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
"""What a request did not say."""


@dataclass(frozen=True)
class About:
    """What is known of a response before anything is said: where it stands, and what was asked for."""

    session_id: str
    turn_id: str
    """The id its words were admitted under, which is in the response's id."""
    within: str
    """The turn they are in: another one if they joined it."""
    model: str
    terms: TurnTerms

    @property
    def id(self) -> str:
        return response_ids.response(self.session_id, self.turn_id)

    @property
    def told(self) -> Object:
        """What the client said about its request."""
        return {name: json.loads(value) for name, value in self.terms.echo.items() if name != SPACES}

    @property
    def is_stored(self) -> bool:
        return bool(self.told.get("store"))

    @property
    def tells_reasoning(self) -> bool:
        reasoning = self.told.get("reasoning")
        return isinstance(reasoning, dict) and reasoning.get("summary") is not None

    @property
    def spaces(self) -> dict[str, tuple[str, str]]:
        """Tools that stand in a namespace, by what the model calls them."""
        found: dict[str, tuple[str, str]] = {}
        for space in json.loads(self.terms.echo.get(SPACES, "[]")):
            head = in_namespace(space, "")
            found |= {
                tool.name: (space, tool.name[len(head) :]) for tool in self.terms.tools if tool.name.startswith(head)
            }
        return found

    def document(
        self, status: str, output: list[Object], ended: TurnEnded | None = None, ended_at: int | None = None
    ) -> Object:
        told = self.told
        conversation = told.get("conversation")
        if isinstance(conversation, str):
            told["conversation"] = {"id": conversation}
        return {
            "id": self.id,
            "object": "response",
            "created_at": frame(self.turn_id, "").created,
            "completed_at": ended_at // 1_000_000 if ended_at is not None and status == "completed" else None,
            "status": status,
            "error": _error(ended) if status in ("failed", "cancelled") else None,
            "incomplete_details": {"reason": _why(output)} if status == "incomplete" else None,
            "instructions": self.terms.instructions,
            "model": self.model,
            "output": list(output),
            "temperature": self.terms.temperature,
            "tools": [_tool(offer.name, offer.description, offer.parameters) for offer in self.terms.tools],
            "usage": _usage(ended.usage) if ended is not None else None,
            **DEFAULTS,
            **told,
        }


def _why(output: list[Object]) -> str:
    """A reply that was cut short is an item that is not complete; one that was refused says so in its words."""
    return INCOMPLETE["length" if any(item.get("status") == "incomplete" for item in output) else "refused"]


def _error(ended: TurnEnded | None) -> Object | None:
    if ended is None:
        return None
    return {"code": ended.code or ended.outcome, "message": ended.reason or f"the turn was {ended.outcome}"}


def _usage(used: Usage) -> Object:
    return {
        "input_tokens": used.tokens_in,
        "input_tokens_details": {"cached_tokens": used.cache_read},
        "output_tokens": used.tokens_out,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.tokens_in + used.tokens_out,
    }


def _tool(name: str, description: str, parameters: str) -> Object:
    about: Object = {"type": "function", "name": name, "description": description}
    return {**about, "parameters": json.loads(parameters), "strict": False}


def text_part(text: str) -> Object:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message_item(id_: str, status: str, text: str | None = None) -> Object:
    content = [] if text is None else [text_part(text)]
    return {"id": id_, "type": "message", "role": "assistant", "status": status, "content": content}


def reasoning_item(id_: str, text: str | None = None) -> Object:
    summary = [] if text is None else [{"type": "summary_text", "text": text}]
    return {"id": id_, "type": "reasoning", "summary": summary}


def call_item(id_: str, call: ToolCall, spaces: Mapping[str, tuple[str, str]], status: str = "completed") -> Object:
    """A call that the client is to run."""
    space, name = spaces.get(call.name, ("", call.name))
    arguments = call.arguments if status == "completed" else ""
    about: Object = {"id": id_, "type": "function_call", "call_id": call.id, "name": name, "arguments": arguments}
    return {**about, "status": status, **({"namespace": space} if space else {})}
