"""Types of the requests of Anthropic's Messages API."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.api.anthropic.blocks import InputMessage, MessageText, Object


class MessageTool(msgspec.Struct, frozen=True):
    """A tool of the client. With `defer_loading` the model sees it once a result refers to it."""

    name: str
    type: str | None = None
    input_schema: Object | None = None
    description: str | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class MessageToolChoice(msgspec.Struct, frozen=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingConfig(msgspec.Struct, frozen=True):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: int | None = None
    display: str | None = None

    @property
    def is_shown(self) -> bool:
        return self.type != "disabled" and self.display != "omitted"


class OutputFormat(msgspec.Struct, frozen=True):
    type: Literal["json_schema"]
    schema: Object


class OutputConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effort: str | None = None
    format: OutputFormat | None = None


class RequestMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user_id: str | None = None


class ContextEdit(msgspec.Struct, frozen=True):
    """Accepted without effect: the provider decides which thinking it can send back."""

    type: Literal["clear_thinking_20251015"]
    keep: Any = None


class ContextManagement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    edits: list[ContextEdit] = []


class CountTokensRequest(msgspec.Struct, frozen=True):
    """What the tokens of a request are counted from, and parameters of both routes."""

    model: str
    messages: list[InputMessage]
    system: str | list[MessageText] | None = None
    tools: list[MessageTool] | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    cache_control: Object | None = None
    context_management: ContextManagement | None = None


class MessagesRequest(CountTokensRequest, frozen=True, kw_only=True):
    """Parameters honoured for every model, or passed on to those that support them."""

    max_tokens: Annotated[int, Meta(ge=1, lt=2**31)]
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    metadata: RequestMetadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
