"""Tells the platform users of a session how its goal ended or why it was paused."""

from holdfast.clock import format_local_time
from holdfast.engine.outbound import OUT
from holdfast.model.event import Event, GoalChecked, GoalEnded, GoalPaused, GoalResumed, GoalSet
from holdfast.model.goal import Goal
from holdfast.model.ids import derive
from holdfast.model.sanitize import one_line
from holdfast.model.text import counted
from holdfast.store.database import Transaction
from holdfast.store.repos import outbox
from holdfast.store.repos.outbox import OutboundMessage

WORDS = {"done": "reached", "expired": "over", "cleared": "cleared", "ended": "over"}
RESUME = "/goal resume continues it, /goal clear ends it."


def notice_of(goal: Goal) -> str:
    """What a user is told when a goal stops."""
    reason = _because(goal.reason)
    if goal.state == "paused":
        return f"The goal is paused{reason}. {RESUME}"
    return f"The goal is {WORDS[goal.state]}{reason}."


def event_notice(event: Event) -> str | None:
    """One line for people about an event of a goal; None for all other events."""
    match event:
        case GoalSet():
            return f"[goal set: up to {counted(event.max_turns, 'turn')}, until {format_local_time(event.deadline_at)}]"
        case GoalChecked(decision="failed"):
            return f"[the goal could not be checked: {one_line(event.reason)}]"
        case GoalChecked():
            return f"[goal after {counted(event.turns, 'turn')}: {event.decision}{_because(event.reason)}]"
        case GoalPaused():
            return f"[goal paused{_because(event.reason)}]"
        case GoalResumed():
            return "[goal resumed]"
        case GoalEnded():
            return f"[goal {WORDS[event.outcome]}{_because(event.reason)}]"
        case _:
            return None


def _because(reason: str) -> str:
    return f": {one_line(reason).rstrip('.')}" if reason else ""


def send_notice(tx: Transaction, session_id: str, goal: Goal, *, at: int) -> None:
    """Queue a notice for everyone who got the reply of the goal's newest turn. Call it in the transaction that stops the goal."""
    if not goal.turn_id:
        return
    for address in outbox.list_reply_addresses(tx, session_id, goal.turn_id):
        name = f"{goal.id} {goal.state} {goal.turn_id}@{address.platform}:{address.chat}"
        message = OutboundMessage(text=notice_of(goal))
        outbox.put(tx, derive(OUT, at, name), address, message, at=at, kind="notice", session_id=session_id)
