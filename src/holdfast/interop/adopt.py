"""Brings a foreign session into the store: once, whole, and again only what it has gained since.

A source always gives the same events, so the store can be compared with it. The log of an imported session is what
was woven, then an `imported` event that says how much of the source that was. Behind it stands what happened here.
Events are committed in batches that end with a turn: whoever looks in between sees a session at rest, and an import
that is killed is taken up where it stood, because what it had stored is the beginning of what is woven again.
"""

from collections.abc import Iterator
from itertools import chain, pairwise

import msgspec

from holdfast.interop import known
from holdfast.interop.foreign import ASIDE, Fact, Foreign, Heard, Replied, Returned
from holdfast.interop.known import Known
from holdfast.interop.tally import Adopted, Outcome, Tally, add
from holdfast.interop.weave import Timed, Weaver
from holdfast.model.entry import GENESIS, encode, link
from holdfast.model.errors import Conflict
from holdfast.model.event import KIND_OF, Ended, Event, Forked, Imported, Reopened, SessionOpened, Titled, Usage
from holdfast.model.ids import SESSION, derive
from holdfast.model.session import Session, Summary, fold, title_line
from holdfast.store import sessions, transfer
from holdfast.store.database import Database, Transaction
from holdfast.store.transfer import Line

BATCH_EVENTS = 1_000
BATCH_BYTES = 4_000_000
"""What is committed at once, or more if a single turn is larger: short enough that nobody waits long for the store."""
AT_REST = {"titled", "pinned", "unpinned", "trashed", "restored", "ended", "reopened", "forked"}
"""What may stand behind an import without anybody having gone on with the session."""
KEPT = "the session was left as it is"


async def adopt(database: Database, source: Foreign, *, at: int, rehearse: bool = False) -> Adopted:
    """Add to the store what it lacks of this session.

    That it is not what the store has of it, or that somebody holds it, is an answer. Raises whatever else goes wrong:
    what cannot be read or saved; what was committed before stands, and the next import goes on behind it.
    """
    found = await database.read(known.find, source)
    parent_id = await database.read(known.parent_id, source)
    work = _Adopting(database, source, found, parent_id, at=at, rehearse=rehearse)
    try:
        return await work.go()
    except Conflict as e:
        return work.answer("left", str(e))


class _Adopting:
    """One foreign session on its way into the store."""

    def __init__(
        self,
        database: Database,
        source: Foreign,
        stored: Known | None,
        parent_id: str | None,
        *,
        at: int,
        rehearse: bool,
    ) -> None:
        self._database, self._source, self._known, self._parent_id = database, source, stored, parent_id
        self._now, self._rehearse = at, rehearse
        self._weaver = Weaver(known.name_of(source.format, source.origin))
        self._count = Tally(title=source.title, usage=source.usage)
        self._session = stored.session if stored is not None else None
        self._summary = Summary()
        self._hash = GENESIS
        self._batch: list[Line] = []
        self._bytes = 0
        self._is_ending = False
        """What ends an import is committed in one piece: whether it is there tells whether the import is done."""
        self._added = 0
        self._notes: list[str] = []

    async def go(self) -> Adopted:
        facts = self._counted()
        facts = self._skip_what_is_known(facts)
        first = next((fact for fact in facts if not isinstance(fact, ASIDE)), None)
        if first is None and (self._known is None or self._known.marks):
            return self._nothing_new()
        events = self._events(first, facts)
        if not self._stands_behind_mark():
            self._skip_what_is_stored(events)
        for timed in events:
            self._line(timed)
            if self._may_pause() and (len(self._batch) >= BATCH_EVENTS or self._bytes >= BATCH_BYTES):
                await self._flush()
        await self._flush()
        return self.answer("extended" if self._known is not None and self._known.marks else "new")

    def _nothing_new(self) -> Adopted:
        if self._known is None:
            return self.answer("empty", "it holds no messages")
        return self.answer("same" if self._known.behind <= AT_REST else "behind")

    def _may_pause(self) -> bool:
        return self._weaver.is_between_turns and self._weaver.messages > 0 and not self._is_ending

    def answer(self, outcome: Outcome, *more: str) -> Adopted:
        count = self._count
        return Adopted(
            format=self._source.format,
            origin=self._source.origin,
            outcome=outcome,
            session=self._session,
            added=self._added,
            source=count.taken + count.copied + count.skipped,
            taken=count.taken,
            copied=count.copied,
            skipped=count.skipped,
            notes=(*self._source.notes, *count.notes(), *self._notes, *more),
        )

    def _counted(self) -> Iterator[Fact]:
        for fact in self._source.facts():
            self._count.add(fact)
            yield fact

    # What is there already.

    def _skip_what_is_known(self, facts: Iterator[Fact]) -> Iterator[Fact]:
        """Read the source up to where the last import ended; the rest of it. Raises Conflict if it is not what it was."""
        stored = self._known
        if stored is None or not stored.marks:
            return facts
        self._weaver.stand_at(stored.begins_behind)
        for mark in stored.marks:
            while self._weaver.digest != mark.imported.digest:
                fact = next(facts, None)
                if fact is None:
                    raise Conflict(f"the source holds less than was imported from it, or was changed; {KEPT}")
                rest = self._skip(fact, mark.imported)
                facts = facts if rest is None else chain([rest], facts)
            self._skip_all(self._weaver.close())
            self._weaver.stand_at(mark.goes_on_behind)
        return facts

    def _skip(self, fact: Fact, mark: Imported) -> Fact | None:
        """Pass over a fact; of a reply that was not whole when it was imported, only over what was there. The rest of it."""
        if self._weaver.messages >= mark.messages and isinstance(fact, Heard | Replied | Returned):
            raise Conflict(f"the source was changed since it was imported; {KEPT}")
        if isinstance(fact, Replied) and self._weaver.messages == mark.messages - 1:
            for count in range(1, len(fact.parts)):
                begun = msgspec.structs.replace(fact, parts=fact.parts[:count])
                if self._weaver.digest_with(begun) == mark.digest:
                    self._skip_all(self._weaver.weave(begun))
                    return msgspec.structs.replace(fact, parts=fact.parts[count:], usage=Usage())
        self._skip_all(self._weaver.weave(fact))
        return None

    def _skip_all(self, events: Iterator[Timed]) -> None:
        for _ in events:
            pass

    def _stands_behind_mark(self) -> bool:
        """Take up the log where it ends, if nothing was said in it since. False if part of an import may stand there."""
        stored = self._known
        if stored is None:
            return True
        self._summary = stored.session.summary
        self._hash = stored.session.hash
        if not stored.marks or not stored.behind <= AT_REST:
            self._hash = stored.hash
            return False
        self._weaver.stand_at(stored.session.seq)
        return True

    def _skip_what_is_stored(self, events: Iterator[Timed]) -> None:
        """Weave what an import that was cut short has stored already. Raises Conflict if the log goes on in another way."""
        assert self._known is not None
        stored = self._known.session
        seq, hash_ = self._known.stands_at, self._hash
        for at, event in events:
            hash_, seq = link(hash_, KIND_OF[type(event)], at, encode(event)), seq + 1
            if seq == stored.seq:
                break
        if hash_ != stored.hash:
            raise Conflict(f"the source has grown, but the session was continued here since; {KEPT}")
        self._hash = hash_

    # What is new.

    def _events(self, first: Fact | None, facts: Iterator[Fact]) -> Iterator[Timed]:
        """All that is to be added, from the first new fact on."""
        if self._known is not None and self._known.session.summary.trashed_at is not None:
            raise Conflict("the source has grown, but the session is in the trash; restore it and import again")
        if self._weaver.messages == 0 and self._weaver.seq == 0:
            at = self._weaver.at = self._source.began_at or (first.at if first is not None else 0)
            for event in self._opening():
                yield self._place(at, event)
        elif self._known is not None and self._known.session.summary.ended_at is not None:
            at = first.at if first is not None and first.at else self._weaver.at
            yield self._place(at, Reopened(reason="the source of the import went on"))
        for fact in chain([first] if first is not None else [], facts):
            yield from self._weaver.weave(fact)
        self._is_ending = True
        yield from self._weaver.close()
        yield from self._ending()

    def _place(self, at: int, event: Event) -> Timed:
        self._weaver.seq += 1
        return at, event

    def _opening(self) -> list[Event]:
        parent = self._source.parent
        side = self._parent_id if parent is not None and parent.is_side else None
        opened = SessionOpened(source="import", workdir=self._source.workdir, side_of=side)
        if self._parent_id is None or side is not None:
            return [opened]
        return [opened, Forked(parent_id=self._parent_id, at_seq=0, at_hash=GENESIS, source="import")]

    def _ending(self) -> Iterator[Timed]:
        source, weaver, at = self._source, self._weaver, self._weaver.at
        title = title_line(self._count.title or "")
        if title and self._summary.title is None:
            yield self._place(at, Titled(title=title, by="import"))
        if source.ended is not None:
            reason, detail, ended_at = source.ended
            yield self._place(max(at, ended_at), Ended(reason=reason, detail=detail))
        usage = self._unsaid()
        imported = Imported(
            format=source.format, origin=source.origin, messages=weaver.messages, digest=weaver.digest, usage=usage
        )
        yield self._place(at, imported)

    def _unsaid(self) -> Usage:
        """What the source counted in all, less what the log says already."""
        usage = add(self._count.usage, self._count.told, -1)
        for mark in self._known.marks if self._known is not None else ():
            usage = add(usage, mark.imported.usage, -1)
        said = Usage(tokens_in=self._summary.tokens_in, tokens_out=self._summary.tokens_out)
        tokens = add(self._count.usage, said, -1)
        return msgspec.structs.replace(usage, tokens_in=tokens.tokens_in, tokens_out=tokens.tokens_out)

    def _line(self, timed: Timed) -> None:
        at, event = timed
        kind, body = KIND_OF[type(event)], encode(event)
        self._hash = link(self._hash, kind, at, body)
        self._summary = fold(self._summary, event, at)
        self._batch.append(Line(self._weaver.seq, kind, at, self._hash, body))
        self._bytes += len(body)

    async def _flush(self) -> None:
        batch, self._batch, self._bytes = self._batch, [], 0
        assert all(before.seq + 1 == line.seq for before, line in pairwise(batch)), "numbers are dense"
        if not self._rehearse:
            self._session, notes = await self._database.write(self._store, batch, self._summary)
            self._notes += [note for note in notes if note not in self._notes]
        self._added += len(batch)

    def _store(self, tx: Transaction, batch: list[Line], summary: Summary) -> tuple[Session, list[str]]:
        """May run twice: changes nothing but the transaction."""
        if self._session is None:
            name = known.name_of(self._source.format, self._source.origin)
            session_id = derive(SESSION, self._source.began_at or batch[0].at, name)
            transfer.begin(tx, session_id, batch, summary, at=self._now)
        else:
            session_id = self._session.id
            transfer.grow(tx, session_id, batch, summary)
        notes = list(known.bind(tx, self._source, session_id, at=self._now))
        return sessions.get(tx, session_id), notes
