"""Outbound messages: committed with the event they report, delivered at least once, in order per chat.

    waiting ─► sending ─► sent         a long message in parts; `part` counts those delivered
       ▲          │
       └──────────┤ later              certainly not accepted: retried with growing delays
                  ├─► waiting/unknown  may have been delivered: sent again with a mark, or left to a person, as configured
                  └─► failed           rejected; `replay` queues it again

`sending` is committed before the message is sent. If the worker dies then, the outcome is unknown; `doubts` counts such cases.
"""

from typing import Literal, cast

import msgspec

from holdfast.model.entry import dumps, loads
from holdfast.model.errors import Conflict, Invalid
from holdfast.model.times import DAY, SECOND
from holdfast.store.database import Row, Transaction, Value
from holdfast.store.repos import platforms

MAX_DELAY = DAY
"""The longest retry delay that a platform can request."""
State = Literal["waiting", "sending", "sent", "unknown", "failed"]
Kind = Literal["reply", "notice", "question", "preview"]


def topic(platform: str) -> str:
    """The notification topic of a platform's outbox."""
    return f"outbox {platform}"


class Address(msgspec.Struct, frozen=True):
    """Where a message goes; `reply_to` is the platform's id of the message that it answers."""

    platform: str
    chat: str
    reply_to: str = ""


def format_channel(platform: str, chat: str) -> str:
    """The channel key of a chat: `telegram:123:45` is a platform and the platform's id of a chat."""
    return f"{platform}:{chat}"


def parse_channel(channel: str) -> Address:
    """The address of a channel. Raises Invalid if it is not a chat."""
    platform, colon, chat = channel.partition(":")
    if not colon or not platform or not chat:
        raise Invalid(f"{channel!r} is not a chat; write telegram:CHAT or email:NAME@EXAMPLE.ORG")
    return Address(platform, chat)


class ReplyChoice(msgspec.Struct, frozen=True):
    """A button, or the text that a person can send instead."""

    value: str
    label: str


class OutboundMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a message. `files` are names in the session's directory."""

    text: str
    reply_to: str = ""
    choices: tuple[ReplyChoice, ...] = ()
    files: tuple[str, ...] = ()
    call_id: str = ""
    """The call that a question is about."""


class Delivery(msgspec.Struct, frozen=True):
    """A row of the outbox, in the order of its columns."""

    id: str
    platform: str
    chat: str
    number: int
    kind: Kind
    session_id: str | None
    turn_id: str | None
    body: str
    state: State
    part: int
    attempts: int
    doubts: int
    unsure: int
    due_at: int
    error: str
    remote: str
    worker_id: str | None
    at: int
    sent_at: int | None
    dismissed_at: int | None = None

    def wait_seconds(self, now: int) -> float:
        """The time until it is due; 0 if it is due.

        A message that was not tried yet is due. So is one with a longer delay than the maximum: a wrong clock set its time.
        """
        wait = self.due_at - now
        return wait / SECOND if self.attempts and 0 < wait <= MAX_DELAY else 0.0

    @property
    def message(self) -> OutboundMessage:
        return loads(self.body, OutboundMessage)

    @property
    def remotes(self) -> list[str]:
        """The platform's ids of the delivered parts."""
        return msgspec.json.decode(self.remote, type=list[str])


def add_reply_address(
    tx: Transaction, session_id: str, turn_id: str, address: Address, *, at: int, person: str = ""
) -> None:
    """Have the reply of a turn delivered to an address. Call it in the transaction that admits the message.

    `person` is who requested the turn; empty if that was not a person on a platform.
    """
    where = {"platform": address.platform, "chat": address.chat, "reply_to": address.reply_to, "person": person}
    tx.run("outbox.add_reply_address", session=session_id, turn=turn_id, at=at, **where)


def list_reply_addresses(tx: Transaction, session_id: str, turn_id: str) -> list[Address]:
    """The addresses for the reply of a turn."""
    return [Address(*row) for row in tx.all("outbox.list_reply_addresses", session=session_id, turn=turn_id)]  # type: ignore[arg-type] # the schema checks the types


def copy_reply_addresses(tx: Transaction, session_id: str, from_turn: str, to_turn: str) -> None:
    """Have the reply of a turn delivered to where the reply of another one goes."""
    tx.run("outbox.copy_reply_addresses", session=session_id, from_turn=from_turn, to_turn=to_turn)


def get_requester(tx: Transaction, session_id: str, turn_id: str, address: Address) -> str:
    """Who requested a turn in a chat; empty if that was not a person on the platform."""
    parameters = {"session": session_id, "turn": turn_id, "platform": address.platform, "chat": address.chat}
    row = tx.one("outbox.get_requester", **parameters)
    return "" if row is None else cast("str", row[0])


def put(
    tx: Transaction,
    delivery_id: str,
    address: Address,
    message: OutboundMessage,
    *,
    at: int,
    kind: Kind = "notice",
    session_id: str | None = None,
    turn_id: str | None = None,
) -> None:
    """Queue a delivery, once per id."""
    if tx.one("outbox.get", id=delivery_id) is not None:
        return
    number = platforms.reserve_outbox_number(tx, address.platform, at=at)
    said = msgspec.structs.replace(message, reply_to=message.reply_to or address.reply_to)
    tx.one(
        "outbox.add",
        id=delivery_id,
        platform=address.platform,
        chat=address.chat,
        number=number,
        kind=kind,
        session=session_id,
        turn=turn_id,
        body=dumps(msgspec.to_builtins(said)),
        state="sent" if kind == "preview" else "waiting",
        at=at,
    )
    tx.notify(topic(address.platform))


def find(tx: Transaction, delivery_id: str) -> Delivery | None:
    row = tx.one("outbox.get", id=delivery_id)
    return None if row is None else _delivery(row)


def list_heads(tx: Transaction, platform: str, limit: int = 1000) -> list[Delivery]:
    """The next delivery of each chat."""
    return [_delivery(row) for row in tx.all("outbox.list_heads", platform=platform, limit=limit)]


def find_next(tx: Transaction, platform: str, chat: str) -> Delivery | None:
    """The next delivery of a chat."""
    return _maybe(tx.one("outbox.find_next", platform=platform, chat=chat))


def begin(tx: Transaction, delivery_id: str, worker_id: str) -> Delivery | None:
    """Record an attempt before it is sent; None if another worker sends it or serves the platform."""
    return _maybe(tx.one("outbox.begin", id=delivery_id, worker=worker_id))


def mark_unknown(tx: Transaction, delivery_id: str, error: str, *, hold: bool, due: int) -> Delivery | None:
    """Record that the outcome of the current part is unknown: it is sent again, or left to a person with `hold`."""
    state = "unknown" if hold else "waiting"
    return _maybe(tx.one("outbox.mark_unknown", id=delivery_id, state=state, error=error, due=due))


def mark_part_sent(
    tx: Transaction, delivery: Delivery, worker_id: str, remote: str, *, last: bool, at: int
) -> Delivery | None:
    """Record that a part was delivered with this id of the platform; None if another worker has the delivery."""
    remotes = dumps([*delivery.remotes, remote])
    parameters: dict[str, Value] = {
        "id": delivery.id,
        "part": delivery.part + 1,
        "remote": remotes,
        "worker": worker_id,
    }
    return _maybe(
        tx.one("outbox.mark_sent", at=at, **parameters) if last else tx.one("outbox.mark_part_sent", **parameters)
    )


def postpone(tx: Transaction, delivery_id: str, error: str, *, due: int) -> None:
    """Retry a delivery that was certainly not accepted at the due time."""
    tx.one("outbox.postpone", id=delivery_id, error=error, due=due)


def fail(tx: Transaction, delivery_id: str, error: str) -> None:
    """Mark it as failed and keep it."""
    tx.one("outbox.fail", id=delivery_id, error=error)


def replay(tx: Transaction, delivery: Delivery, *, at: int) -> None:
    """Queue a failed or unknown delivery again. Raises Conflict for any other."""
    number = platforms.reserve_outbox_number(tx, delivery.platform, at=at)
    if tx.one("outbox.replay", id=delivery.id, number=number, at=at) is None:
        raise Conflict(f"message {delivery.id} is {delivery.state}; there is nothing to replay")
    tx.notify(topic(delivery.platform))


def dismiss(tx: Transaction, delivery: Delivery, *, at: int) -> None:
    """Stop listing a failed or unknown delivery. It stays in the store, and can be replayed. Raises Conflict for any other."""
    if tx.one("outbox.dismiss", id=delivery.id, at=at) is None:
        raise Conflict(f"message {delivery.id} is {delivery.state} or was dismissed; there is nothing to dismiss")


def list_undelivered(tx: Transaction, limit: int) -> list[Delivery]:
    """Failed and unknown deliveries, newest first."""
    return [_delivery(row) for row in tx.all("outbox.list_undelivered", limit=limit)]


class DelayedChat(msgspec.Struct, frozen=True):
    """A chat to which nothing is sent before `until`, why, and how many messages wait."""

    platform: str
    chat: str
    until: int
    reason: str
    waiting: int


def list_delayed_chats(tx: Transaction, now: int, limit: int) -> list[DelayedChat]:
    """Chats whose deliveries are delayed, the earliest due first."""
    return [DelayedChat(*row) for row in tx.all("outbox.list_delayed_chats", now=now, limit=limit)]  # type: ignore[arg-type] # the schema checks the types


def list_by_turn(tx: Transaction, session_id: str, turn_id: str) -> list[Delivery]:
    return [_delivery(row) for row in tx.all("outbox.list_by_turn", session=session_id, turn=turn_id)]


def record_preview(tx: Transaction, delivery_id: str, remote: str, *, at: int) -> None:
    """Record the platform's id of the message that previews a reply."""
    tx.one("outbox.record_preview", id=delivery_id, remote=dumps([remote]), at=at)


def count_by_state(tx: Transaction) -> list[tuple[str, str, int]]:
    """Platform, state and count of all unsent deliveries."""
    return [cast("tuple[str, str, int]", row) for row in tx.all("outbox.count_by_state")]


def _maybe(row: Row | None) -> Delivery | None:
    return None if row is None else _delivery(row)


def _delivery(row: Row) -> Delivery:
    return Delivery(*row)  # type: ignore[arg-type] # the schema checks the types
