"""The queued messages, as they are shown above the input line."""

from holdfast.cli.chat.session_state import ChatState
from holdfast.model.sanitize import one_line
from holdfast.slash import queued

SHOWN = 200
"""Characters of each message."""
HINT = "  not sent: /queue send sends, ↑ edits, /queue drop deletes; new messages are sent after them"


def queued_lines(state: ChatState | None) -> list[str]:
    """The messages, and what to do with them if no worker is handling them."""
    if state is None:
        return []
    lines = [f"queued ❯ {one_line(queued.text(item))[:SHOWN]}" for item in state.waiting if item.said]
    return [*lines, HINT] if state.waiting and state.session.lease_worker is None else lines
