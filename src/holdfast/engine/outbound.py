"""Queues replies and questions of a turn for delivery, in the transaction that commits them.

A turn has an address if a platform or a schedule began it. Whoever ends the turn, also a worker that recovers it and
knows nothing of platforms, writes the reply into the outbox; a gateway delivers it from there.
"""

from collections.abc import Iterable, Sequence

from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAsked,
    Ended,
    Event,
    ModelSaid,
    ToolEnded,
    Trashed,
    TurnEnded,
    TurnStarted,
    UserSaid,
)
from holdfast.model.form import USAGE
from holdfast.model.ids import derive
from holdfast.model.message import File, Image, text_of
from holdfast.model.session import CHILD, Session
from holdfast.store.database import Transaction
from holdfast.store.repos import delegations, idempotency, log, outbox, schedules, sessions
from holdfast.store.repos.leases import Lease
from holdfast.store.repos.outbox import Address, OutboundMessage, ReplyChoice

OUT = "out-"
SILENT = "(The model had nothing to say.)"
ALLOW = "allow"
DENY = "deny"
BATCH = "batch"
"""The caller name of a batch; its requests in a session are numbered."""


def of_turn(entries: Sequence[Entry], turn_id: str) -> list[Event]:
    """The events of a turn, from its start."""
    events: list[Event] = []
    for entry in reversed(entries):
        events.append(entry.event)
        if isinstance(entry.event, TurnStarted) and entry.event.turn_id == turn_id:
            break
    return [event for event in reversed(events) if getattr(event, "turn_id", None) == turn_id]


def reply(events: Iterable[Event], ended: TurnEnded) -> str:
    """The text for the user: the model's last message and, if the turn failed, the reason."""
    said = [event for event in events if isinstance(event, ModelSaid)]
    text = text_of(said[-1].parts).strip() if said else ""
    if ended.outcome == "done":
        return text or SILENT
    why = ended.reason or "no reason was given"
    how = "was interrupted" if ended.outcome in ("interrupted", "cancelled") else "failed"
    return f"{text}\n\n! The turn {how}: {why}".strip()


def files(events: Iterable[Event]) -> tuple[str, ...]:
    """The attachments from the model or a tool: names of files in the session's directory."""
    parts = [part for event in events if isinstance(event, ModelSaid | ToolEnded) for part in event.parts]
    names = [_file_name(part) for part in parts if isinstance(part, File | Image)]
    return tuple(dict.fromkeys(name for name in names if name))


def _file_name(part: File | Image) -> str:
    if isinstance(part, Image) and part.saved_as:
        return part.saved_as
    return part.url.removeprefix("file:") if part.url.startswith("file:") else ""


def ended(
    tx: Transaction,
    lease: Lease,
    session: Session,
    entries: Sequence[Entry],
    events: Sequence[Event],
    *,
    at: int,
    has_addresses: bool,
) -> Session:
    """Handle the end of a turn. `entries` is the log so far, `events` what was just appended.

    `has_addresses`: whether any turn of the session has a reply address.
    """
    end = next((event for event in events if isinstance(event, TurnEnded)), None)
    if end is None:
        return session
    of_it = [*of_turn(entries, end.turn_id), *(event for event in events if event is not end)]
    for address in _addresses(tx, session.id, end.turn_id, of_it) if has_addresses else ():
        outbox.put(
            tx,
            derive(OUT, at, f"{end.turn_id}@{address.platform}:{address.chat}"),
            address,
            OutboundMessage(text=reply(of_it, end), files=files(of_it)),
            at=at,
            kind="reply",
            session_id=session.id,
            turn_id=end.turn_id,
        )
    if session.summary.source == "cron":
        state: schedules.SlotState = "done" if end.outcome == "done" else "failed"
        if schedules.close_slot(tx, session.id, end.turn_id, state, end.reason, at=at):
            return log.append(tx, lease, [Ended(reason="cron_complete")], at=at)
    if session.summary.source == CHILD and delegations.is_task(tx, session.id, end.turn_id):
        return log.append(tx, lease, _end_child(tx, session), at=at)
    if session.summary.source == "batch" and end.turn_id in idempotency.list_turns(tx, session.id, BATCH):
        return log.append(tx, lease, [Ended(reason="batch_complete")], at=at)
    return session


def _end_child(tx: Transaction, session: Session) -> list[Event]:
    """A child ends with its task. If its parent went to the trash meanwhile, it follows."""
    ended = Ended(reason="delegate_complete")
    parent = sessions.find(tx, session.delegated_by or "")
    if parent is None or parent.summary.trashed_at is None or session.summary.trashed_at is not None:
        return [ended]
    return [ended, Trashed(reason=sessions.trashed_with(parent.id))]


def _addresses(tx: Transaction, session_id: str, turn_id: str, events: Iterable[Event]) -> list[Address]:
    """The addresses of everyone whose messages are part of the turn."""
    joined = [event.input_id for event in events if isinstance(event, UserSaid) and event.input_id]
    found: dict[tuple[str, str], Address] = {}
    for one in (turn_id, *joined):
        for address in outbox.list_reply_addresses(tx, session_id, one):
            found[address.platform, address.chat] = address
    return list(found.values())


def is_expected(tx: Transaction, session_id: str, turn_id: str) -> bool:
    """Whether a platform user waits for the reply: then the turn continues unattended, whatever its session."""
    return bool(outbox.list_reply_addresses(tx, session_id, turn_id))


def ask(tx: Transaction, session_id: str, entries: Sequence[Entry], asked: ApprovalAsked, *, at: int) -> None:
    """Queue a question for the addresses of the turn; for a child session, those of the root's turn.

    Call it in the transaction that commits the question.
    """
    addresses = _addresses(tx, session_id, asked.turn_id, of_turn(entries, asked.turn_id))
    root_id, root_turn = delegations.find_root(tx, session_id, asked.turn_id)
    if root_id != session_id:
        addresses = outbox.list_reply_addresses(tx, root_id, root_turn)
    for address in addresses:
        message = _question_message(asked)
        delivery_id = derive(OUT, at, f"{asked.turn_id}?{asked.call_id}@{address.platform}:{address.chat}")
        outbox.put(
            tx, delivery_id, address, message, at=at, kind="question", session_id=session_id, turn_id=asked.turn_id
        )


def _question_message(asked: ApprovalAsked) -> OutboundMessage:
    if asked.proposal.form:
        text = f"{asked.question}\nAnswer with {USAGE}."
        return OutboundMessage(text=text, choices=(ReplyChoice(DENY, "Decline"),), call_id=asked.call_id)
    return OutboundMessage(
        text=f'Approval needed:\n{asked.question}\nAnswer yes or no. "no, …" tells the model why.',
        choices=(ReplyChoice(ALLOW, "Allow"), ReplyChoice(DENY, "Deny")),
        call_id=asked.call_id,
    )
