"""The arguments of each tool. They are parsed with these types, and the input schemas are built from them."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.model.errors import Invalid
from holdfast.model.event import Source
from holdfast.model.session import State
from holdfast.model.surrogates import repair_json

Ref = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2000,
        description="A session id, a prefix of at least 6 characters, an alias or a title.",
    ),
]
Line = Annotated[str, Meta(min_length=1, max_length=2000)]
Name = Annotated[str, Meta(min_length=1, max_length=512)]
Limit = Annotated[int, Meta(ge=1, le=100)]
Cursor = Annotated[str, Meta(max_length=2000, description="`next` of the page before.")]

FREE_TEXT = ("text", "system")
"""Arguments that are stored as they are. The others are compared with what is stored, and PostgreSQL knows no NUL there."""


class ToolArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of a tool. Unknown ones are refused by name."""


class ListSessionsArguments(ToolArguments, frozen=True):
    state: Annotated[State, Meta(description="Only sessions in this state.")] | None = None
    source: Annotated[Source, Meta(description="Only sessions that were started this way.")] | None = None
    limit: Annotated[Limit, Meta(description="How many sessions to return.")] = 20
    cursor: Cursor | None = None


class SearchSessionsArguments(ToolArguments, frozen=True):
    query: Annotated[Line, Meta(description="Words to search for in all messages.")]
    session: Ref | None = None
    limit: Annotated[Limit, Meta(description="How many hits to return.")] = 20
    cursor: Cursor | None = None


class ReadSessionArguments(ToolArguments, frozen=True):
    session: Ref
    last: (
        Annotated[Limit, Meta(description="Start with this many newest messages instead of the first one.")] | None
    ) = None
    limit: Annotated[Limit, Meta(description="How many messages to return.")] = 50
    cursor: Cursor | None = None


class OpenSessionArguments(ToolArguments, frozen=True):
    session: Ref | None = None
    key: (
        Annotated[Name, Meta(description="Your own name for the session: gets it, or creates it at the first call.")]
        | None
    ) = None
    title: Annotated[Line, Meta(description="The title of a new session.")] | None = None
    model: Annotated[Line, Meta(description="The model as provider:name.")] | None = None
    system: Annotated[str, Meta(max_length=100_000, description="The system text of a new session.")] | None = None


class SendMessageArguments(ToolArguments, frozen=True):
    session: Ref
    text: Annotated[str, Meta(min_length=1, description="The message.")]
    idempotency_key: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=255,
                description="A unique text for this message, such as a UUID. The same key and message again are sent once.",
            ),
        ]
        | None
    ) = None
    busy: Annotated[
        Literal["queue", "steer", "interrupt", "reject"],
        Meta(description="What to do while a turn runs: wait in the queue, join the turn, interrupt it, or refuse."),
    ] = "queue"


class FollowTurnArguments(ToolArguments, frozen=True):
    session: Ref
    turn_id: Annotated[Line, Meta(description="`turn_id` of send_message.")]
    wait_seconds: Annotated[
        float,
        Meta(ge=0, le=3600, description="Return the state and the text so far if the turn has not ended by then."),
    ] = 50


def parse(kind: type[ToolArguments], given: object) -> ToolArguments:
    """Parse the arguments of a call. Raises Invalid naming the wrong one."""
    try:
        parsed = msgspec.convert(repair_json(given or {}), kind)
    except msgspec.ValidationError as e:
        raise Invalid(f"arguments: {e}") from e
    for name, value in msgspec.structs.asdict(parsed).items():
        if name not in FREE_TEXT and isinstance(value, str) and "\0" in value:
            raise Invalid(f"arguments: `{name}` contains a NUL character")
    return parsed


def input_schema(kind: type[ToolArguments]) -> dict[str, Any]:
    """The JSON schema of the arguments, without references."""
    _, components = msgspec.json.schema_components([kind])
    schema: dict[str, Any] = components[kind.__name__]
    del schema["title"]
    return schema
