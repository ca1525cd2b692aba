"""Estimates the tokens of a request, as the engine does to decide when to compact."""

from holdfast.api.anthropic.request import parse_messages, parse_tools
from holdfast.api.anthropic.request_models import CountTokensRequest
from holdfast.engine.context.tokens import estimate_frame, estimate_messages
from holdfast.engine.turn.request import as_spec


def estimate_tokens(request: CountTokensRequest) -> int:
    """The estimated size of the messages, the system text and the client's tools. Raises ApiError for an invalid one."""
    given, system = parse_messages(request)
    frame = estimate_frame(system or "", map(as_spec, parse_tools(request)))
    return frame + estimate_messages(one.as_message(0) for one in given)
