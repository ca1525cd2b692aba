"""Types of the queries and responses of the chat routes."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.api.native.request_models import Line, RequestModel


class ResumeRequest(RequestModel, frozen=True):
    message: Line | None = None
    """The id of the last message that the client has: its turn is replayed although it has ended meanwhile."""


class HistoryRequest(RequestModel, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    """How many messages of the user."""


class UIMessageListResponse(msgspec.Struct, frozen=True):
    id: str
    session_id: str | None
    active: bool
    writing: str | None
    """The id of the message that is being written. It may not be among the messages yet."""
    messages: list[dict[str, Any]]


class StopResponse(msgspec.Struct, frozen=True):
    id: str
    session_id: str | None
    stopped: bool
