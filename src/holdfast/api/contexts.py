"""The context of a session: why it is as it is, and its compactions."""

from typing import Any

import msgspec

from holdfast.api import asked
from holdfast.api.doors import Call, session_of
from holdfast.api.errors import Refusal
from holdfast.engine import why as engine_why
from holdfast.engine.fill import fill_of
from holdfast.engine.why import Why
from holdfast.identity import identity
from holdfast.interop import reports, shapes
from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, CompactionUndone
from holdfast.store import log, sessions
from holdfast.store.database import Transaction

Json = dict[str, Any]


async def why(call: Call) -> Json:
    """Explain the session: whose it is, what it does, what was decided and on what evidence, and what comes next."""
    session, house = await session_of(call), call.house
    beside = house.engine.known

    def work(tx: Transaction) -> Why:
        return engine_why.why(tx, sessions.get(tx, session.id), beside, identity())

    return reports.why(await house.database.read(work))


async def compactions(call: Call) -> Json:
    """Every compaction of the session: which events its summary stands for, and what it says."""
    session, house = await session_of(call), call.house
    window, share = house.window(session.summary.model), house.settings.context.compact_at

    def work(tx: Transaction) -> Json:
        current = sessions.get(tx, session.id)
        entries = log.read_whole(tx, current)
        return {
            "session_id": current.id,
            "epoch": current.summary.epoch,
            "context": reports.context(fill_of(entries, window, share)),
            "compactions": _compactions(entries),
        }

    return await house.database.read(work)


def _compactions(entries: list[Entry]) -> list[Json]:
    found: list[Json] = []
    for entry in entries:
        event = entry.event
        if isinstance(event, CompactionUndone):
            for one in found:
                one["undone"] = one["undone"] or one["epoch"] > event.epoch
        elif isinstance(event, Compacted):
            found.append(
                {
                    "seq": entry.seq,
                    "at": shapes.time(entry.at),
                    "epoch": event.epoch,
                    "from_seq": 1 if event.upto_seq else 0,
                    "upto_seq": event.upto_seq,
                    "how": event.how,
                    "model": event.model,
                    "tokens_before": event.tokens_before,
                    "tokens_after": event.tokens_after,
                    "pinned": list(event.pinned),
                    "summary": event.summary,
                    "undone": False,
                }
            )
    return found


async def compact(call: Call) -> Json:
    """Make the context smaller now, or undo that. Answers when it is done."""
    body: asked.CompactAsked = call.body
    if body.undo and body.about:
        raise Refusal(400, "invalid_value", "undo has nothing to be about", "about")
    session, engine = await session_of(call, trashed=False), call.house.engine
    if body.undo:
        undone = await engine.undo_compaction(session.id)
        return {"session_id": session.id, "epoch": undone.epoch, "undone": True}
    event = await engine.compact(session.id, body.about)
    done = isinstance(event, Compacted)
    epoch = event.epoch if isinstance(event, Compacted) else session.summary.epoch
    return {"session_id": session.id, "epoch": epoch, "compacted": done, **msgspec.to_builtins(event)}
