"""Claude Code as a client: how it names its conversation, and which of its requests do not belong to that.

It sends the id of its session with every request, in a header and in `metadata.user_id`. Its subagents use the same
id, with an id of their own in another header. Requests for titles and checks of the connection also carry the id; they
have no tools, and a schema, one token of output or the small model. To compact its history, it asks for a summary of the
beginning; the conversation then continues without that request.
"""

import json
import re
from collections.abc import Mapping, Sequence

from holdfast.api.anthropic.blocks import InputMessage, MessageText
from holdfast.api.anthropic.request_models import MessagesRequest
from holdfast.api.headers import CHANNEL_PREFIX, MAX_NAME, SessionNames, validate_text

SESSION_HEADER = "x-claude-code-session-id"
AGENT_HEADER = "x-claude-code-agent-id"
SMALL_MODEL = "haiku"
SUMMARY_PROMPT = "CRITICAL: Respond with TEXT ONLY."
_session_suffix = re.compile(r"_session_([0-9a-f-]{36})$")


def find_session_id(headers: Mapping[str, str], user_id: str) -> str:
    """Return Claude Code's id of its session; empty for any other client."""
    if SESSION_HEADER in headers:
        return validate_text(headers[SESSION_HEADER], SESSION_HEADER, MAX_NAME // 2)
    if found := _session_suffix.search(user_id):
        return found[1]
    try:
        parsed = json.loads(user_id)
    except (ValueError, RecursionError):
        return ""
    value = parsed.get("session_id") if isinstance(parsed, dict) else None
    return value if isinstance(value, str) and re.fullmatch(r"[\w-]{1,64}", value) else ""


def session_names(headers: Mapping[str, str], session_id: str) -> SessionNames:
    """Return the name of the conversation: that of the session, or of the subagent in it."""
    agent = validate_text(headers[AGENT_HEADER], AGENT_HEADER, MAX_NAME // 4) if AGENT_HEADER in headers else ""
    return SessionNames(None, f"{CHANNEL_PREFIX}{session_id}{f'/{agent}' if agent else ''}")


def is_auxiliary(request: MessagesRequest) -> bool:
    """Whether Claude Code asks for its own use."""
    has_format = request.output_config is not None and request.output_config.format is not None
    is_short = has_format or request.max_tokens == 1 or SMALL_MODEL in request.model
    return (not request.tools and is_short) or _asks_for_summary(request.messages)


def _asks_for_summary(messages: Sequence[InputMessage]) -> bool:
    last = next((one.content for one in reversed(messages) if one.role == "user"), "")
    texts = [last] if isinstance(last, str) else [one.text for one in last if isinstance(one, MessageText)]
    return any(text.startswith(SUMMARY_PROMPT) for text in texts)
