"""What leaves a turn for the world, in the transaction that writes it down: replies and questions to where they were asked from.

A turn has an address if a platform or a schedule began it. Whoever ends the turn, also a worker that recovers it and
knows nothing of platforms, writes the reply into the outbox; a gateway delivers it from there.
"""

from collections.abc import Iterable, Sequence

from holdfast.model.entry import Entry
from holdfast.model.event import ApprovalAsked, Ended, Event, ModelSaid, ToolEnded, TurnEnded, TurnStarted, UserSaid
from holdfast.model.ids import derive
from holdfast.model.message import File, Image, ToolCall, text_of
from holdfast.model.session import Session
from holdfast.store import keys, log, outbox, schedules
from holdfast.store.database import Transaction
from holdfast.store.leases import Lease
from holdfast.store.outbox import Address, Choice, Message

OUT = "out-"
SILENT = "(The model had nothing to say.)"
ALLOW = "allow"
DENY = "deny"
ARGUMENTS_SHOWN = 300
BATCH = "batch"
"""The caller in whose name a batch asks; its requests in a session are numbered."""


def of_turn(entries: Sequence[Entry], turn_id: str) -> list[Event]:
    """The events of a turn, from its start on."""
    events: list[Event] = []
    for entry in reversed(entries):
        events.append(entry.event)
        if isinstance(entry.event, TurnStarted) and entry.event.turn_id == turn_id:
            break
    return [event for event in reversed(events) if getattr(event, "turn_id", None) == turn_id]


def reply(events: Iterable[Event], ended: TurnEnded) -> str:
    """What the person is told: the model's last words and, if the turn did not end well, why."""
    said = [event for event in events if isinstance(event, ModelSaid)]
    words = text_of(said[-1].parts).strip() if said else ""
    if ended.outcome == "done":
        return words or SILENT
    why = ended.reason or "no reason was given"
    how = "was interrupted" if ended.outcome in ("interrupted", "cancelled") else "failed"
    return f"{words}\n\n! The turn {how}: {why}".strip()


def files(events: Iterable[Event]) -> tuple[str, ...]:
    """What is sent along, by the model or a tool: the names of files in the session's folder."""
    parts = [part for event in events if isinstance(event, ModelSaid | ToolEnded) for part in event.parts]
    urls = [part.url for part in parts if isinstance(part, File | Image)]
    return tuple(url.removeprefix("file:") for url in urls if url.startswith("file:"))


def ended(
    tx: Transaction, lease: Lease, session: Session, entries: Sequence[Entry], events: Sequence[Event], *, at: int
) -> Session:
    """See to what the end of a turn brings with it. `entries` is the log so far, `events` what was just added to it."""
    end = next((event for event in events if isinstance(event, TurnEnded)), None)
    if end is None:
        return session
    of_it = [*of_turn(entries, end.turn_id), *(event for event in events if event is not end)]
    for address in _addresses(tx, session.id, end.turn_id, of_it):
        outbox.put(
            tx,
            derive(OUT, at, f"{end.turn_id}@{address.platform}:{address.chat}"),
            address,
            Message(text=reply(of_it, end), files=files(of_it)),
            at=at,
            kind="reply",
            session_id=session.id,
            turn_id=end.turn_id,
        )
    if session.summary.source == "cron":
        state: schedules.SlotState = "done" if end.outcome == "done" else "failed"
        if schedules.close_slot(tx, session.id, end.turn_id, state, end.reason, at=at):
            return log.append(tx, lease, [Ended(reason="cron_complete")], at=at)
    if session.summary.source == "batch" and end.turn_id in keys.asked(tx, session.id, BATCH):
        return log.append(tx, lease, [Ended(reason="batch_complete")], at=at)
    return session


def _addresses(tx: Transaction, session_id: str, turn_id: str, events: Iterable[Event]) -> list[Address]:
    """Where the turn was asked from; those whose words joined it on the way are told as well."""
    joined = [event.input_id for event in events if isinstance(event, UserSaid) and event.input_id]
    found: dict[tuple[str, str], Address] = {}
    for one in (turn_id, *joined):
        for address in outbox.addresses(tx, session_id, one):
            found[address.platform, address.chat] = address
    return list(found.values())


def is_expected(tx: Transaction, session_id: str, turn_id: str) -> bool:
    """Whether somebody on a platform waits for the turn's reply: then it goes on without a person, whatever its session is."""
    return bool(outbox.addresses(tx, session_id, turn_id))


def gave_up(tx: Transaction, session_id: str, turn_id: str, why: str, *, at: int) -> None:
    """Tell those who wait for a reply that none will come."""
    for address in outbox.addresses(tx, session_id, turn_id):
        told = Message(
            text=f"! The turn could not be finished: {why}. Nothing is lost; the session has to be reopened by hand."
        )
        delivery_id = derive(OUT, at, f"{turn_id}!@{address.platform}:{address.chat}")
        outbox.put(tx, delivery_id, address, told, at=at, session_id=session_id, turn_id=turn_id)


def ask(
    tx: Transaction, session_id: str, entries: Sequence[Entry], asked: ApprovalAsked, call: ToolCall, *, at: int
) -> None:
    """Put a question where the turn was asked from. Call it in the transaction that writes the question down."""
    for address in _addresses(tx, session_id, asked.turn_id, of_turn(entries, asked.turn_id)):
        shown = call.arguments if len(call.arguments) <= ARGUMENTS_SHOWN else call.arguments[:ARGUMENTS_SHOWN] + "…"
        message = Message(
            text=f"May I? {asked.question}\n{call.name} {shown}\nAnswer yes or no.",
            choices=(Choice(ALLOW, "Allow"), Choice(DENY, "Deny")),
            call_id=call.id,
        )
        delivery_id = derive(OUT, at, f"{asked.turn_id}?{call.id}@{address.platform}:{address.chat}")
        outbox.put(
            tx, delivery_id, address, message, at=at, kind="question", session_id=session_id, turn_id=asked.turn_id
        )
