"""What is to be delivered to platforms: written with what it tells of, sent at least once, in order for each chat.

    waiting ─► sending ─► sent         a long one part by part: `part` have arrived
       ▲          │
       └──────────┤ later              certainly not taken: tried again, less and less often
                  ├─► waiting/unknown  it may have arrived: sent again with a mark, or left to a person, as configured
                  └─► failed           it will not be taken; `replay` makes it wait again

`sending` is committed before the platform is asked. A worker that dies then leaves a doubt behind, and doubts are counted for good.
"""

from typing import Literal, cast

import msgspec

from holdfast.model.entry import dumps
from holdfast.model.errors import Conflict, Invalid, NotFound
from holdfast.store import platforms
from holdfast.store.database import Row, Transaction, Value

State = Literal["waiting", "sending", "sent", "unknown", "failed"]
Kind = Literal["reply", "notice", "question", "preview"]


def topic(platform: str) -> str:
    """What is rung when there is something to deliver."""
    return f"outbox {platform}"


class Address(msgspec.Struct, frozen=True):
    """Where something goes; `reply_to` is what it answers, in the platform's own words."""

    platform: str
    chat: str
    reply_to: str = ""


def channel_of(platform: str, chat: str) -> str:
    """The channel key of a chat: `telegram:123:45` is a platform and a chat in that platform's own words."""
    return f"{platform}:{chat}"


def address_of(channel: str) -> Address:
    """Where messages for a channel go. Raises Invalid for one that is no chat."""
    platform, colon, chat = channel.partition(":")
    if not colon or not platform or not chat:
        raise Invalid(f"{channel!r} is no chat; write it as telegram:CHAT or email:SOMEBODY@EXAMPLE.ORG")
    return Address(platform, chat)


class Choice(msgspec.Struct, frozen=True):
    """Something a person may press or say in answer."""

    value: str
    label: str


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is said. `files` are names in the session's folder."""

    text: str
    reply_to: str = ""
    choices: tuple[Choice, ...] = ()
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

    @property
    def message(self) -> Message:
        import json

        # Not msgspec's own reader: it refuses lone surrogates, which stand for bytes that are not UTF-8.
        return msgspec.convert(json.loads(self.body), Message)

    @property
    def remotes(self) -> list[str]:
        """The platform's names of the parts that have arrived."""
        return msgspec.json.decode(self.remote, type=list[str])


def expect(tx: Transaction, session_id: str, turn_id: str, address: Address, *, at: int) -> None:
    """Have the reply of a turn delivered there. Call it in the transaction that admits the words."""
    where = {"platform": address.platform, "chat": address.chat, "reply_to": address.reply_to}
    tx.run("outbox.expect", session=session_id, turn=turn_id, at=at, **where)


def addresses(tx: Transaction, session_id: str, turn_id: str) -> list[Address]:
    """Where the reply of a turn goes."""
    return [Address(*row) for row in tx.all("outbox.addresses", session=session_id, turn=turn_id)]  # type: ignore[arg-type] # the schema checks the types


def put(
    tx: Transaction,
    delivery_id: str,
    address: Address,
    message: Message,
    *,
    at: int,
    kind: Kind = "notice",
    session_id: str | None = None,
    turn_id: str | None = None,
) -> None:
    """Have something delivered, once for each id."""
    if tx.one("outbox.get", id=delivery_id) is not None:
        return
    number = platforms.queue(tx, address.platform, at=at)
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


def get(tx: Transaction, delivery_id: str) -> Delivery:
    """Raises NotFound."""
    row = tx.one("outbox.get", id=delivery_id)
    if row is None:
        raise NotFound(f"there is no message {delivery_id} in the outbox")
    return _delivery(row)


def find(tx: Transaction, delivery_id: str) -> Delivery | None:
    row = tx.one("outbox.get", id=delivery_id)
    return None if row is None else _delivery(row)


def heads(tx: Transaction, platform: str, limit: int = 1000) -> list[Delivery]:
    """Of each chat the delivery that is next."""
    return [_delivery(row) for row in tx.all("outbox.heads", platform=platform, limit=limit)]


def following(tx: Transaction, platform: str, chat: str) -> Delivery | None:
    """The delivery of a chat that is next."""
    return _maybe(tx.one("outbox.next", platform=platform, chat=chat))


def begin(tx: Transaction, delivery_id: str, worker_id: str) -> Delivery | None:
    """Written before the platform is asked; None if another worker is at it, or serves the platform now."""
    return _maybe(tx.one("outbox.begin", id=delivery_id, worker=worker_id))


def doubt(tx: Transaction, delivery_id: str, error: str, *, hold: bool, due: int) -> Delivery | None:
    """Nobody knows whether the part in hand arrived: it is sent again, or with `hold` left to a person."""
    state = "unknown" if hold else "waiting"
    return _maybe(tx.one("outbox.doubt", id=delivery_id, state=state, error=error, due=due))


def arrived(
    tx: Transaction, delivery: Delivery, worker_id: str, remote: str, *, last: bool, at: int
) -> Delivery | None:
    """A part has arrived, under this name of the platform's; None if somebody else has the delivery by now."""
    remotes = dumps([*delivery.remotes, remote])
    place: dict[str, Value] = {
        "id": delivery.id,
        "part": delivery.part + 1,
        "remote": remotes,
        "worker": worker_id,
    }
    return _maybe(tx.one("outbox.finish", at=at, **place) if last else tx.one("outbox.part", **place))


def postpone(tx: Transaction, delivery_id: str, error: str, *, due: int) -> None:
    """It was certainly not taken; try again then."""
    tx.one("outbox.postpone", id=delivery_id, error=error, due=due)


def fail(tx: Transaction, delivery_id: str, error: str) -> None:
    """Give it up, and keep it."""
    tx.one("outbox.fail", id=delivery_id, error=error)


def replay(tx: Transaction, delivery: Delivery, *, at: int) -> None:
    """Try again what failed or may not have arrived. Raises Conflict for anything else."""
    number = platforms.queue(tx, delivery.platform, at=at)
    if tx.one("outbox.replay", id=delivery.id, number=number, at=at) is None:
        raise Conflict(f"message {delivery.id} is {delivery.state}; there is nothing to replay")
    tx.notify(topic(delivery.platform))


def trouble(tx: Transaction, limit: int) -> list[Delivery]:
    """What failed or may not have arrived, the newest first."""
    return [_delivery(row) for row in tx.all("outbox.trouble", limit=limit)]


def of_turn(tx: Transaction, session_id: str, turn_id: str) -> list[Delivery]:
    return [_delivery(row) for row in tx.all("outbox.of_turn", session=session_id, turn=turn_id)]


def shown(tx: Transaction, delivery_id: str, remote: str, *, at: int) -> None:
    """The reply in the making is shown in this message of the platform's."""
    tx.one("outbox.show", id=delivery_id, remote=dumps([remote]), at=at)


def depths(tx: Transaction) -> list[tuple[str, str, int]]:
    """Platform, state and how many, of all that has not been sent."""
    return [cast("tuple[str, str, int]", row) for row in tx.all("outbox.depths")]


def _maybe(row: Row | None) -> Delivery | None:
    return None if row is None else _delivery(row)


def _delivery(row: Row) -> Delivery:
    return Delivery(*row)  # type: ignore[arg-type] # the schema checks the types
