"""Random calls to a real store and to plain dictionaries, which must agree after every step."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from holdfast.model.errors import Busy, Conflict, DeclaredDead, HoldfastError, Invalid, KeyReused, LeaseLost, NotFound
from holdfast.model.event import (
    Ended,
    Event,
    Forked,
    ModelSaid,
    Pinned,
    Reopened,
    Restored,
    SessionOpened,
    Titled,
    Trashed,
    TurnEnded,
    TurnStarted,
    Unpinned,
    UserSaid,
)
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.model.times import SECOND
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, idempotency, leases, log, session_list, session_pruning, sessions, workers
from holdfast.store.repos.leases import Lease
from tests.contract.logs import model, user
from tests.contract.store_urls import KINDS, new_place, open_place
from tests.fakes.forks import fork_session

IDENTITY = workers.Identity(host="here", boot="boot-1", pid=1, process_started="1")
TURNS = ("turn-1", "turn-2")
DRAFTED = TURNS[0]
NAMES = st.sampled_from(["hf-a", "hf-b", "hf-c", "hf-d"])
TITLES = st.sampled_from(["Plans", "Notes", "日本語"])
EVENTS = st.one_of(
    st.builds(user, st.text(max_size=5), st.sampled_from(TURNS)),
    st.builds(model, st.text(max_size=5), turn_id=st.sampled_from(TURNS), tokens=st.integers(0, 9)),
    st.builds(TurnStarted, turn_id=st.sampled_from(TURNS)),
    st.builds(TurnEnded, turn_id=st.sampled_from(TURNS), outcome=st.just("done")),
)


@dataclass
class Sheet:
    """The expected state of a session."""

    events: list[Event] = field(default_factory=list)
    updated: int = 0
    title: str | None = None
    pinned: bool = False
    trashed: int | None = None
    ended: str | None = None
    open_turn: str | None = None
    holder: str | None = None
    token: int = 0
    draft: str | None = None

    @property
    def state(self) -> str:
        if self.ended is not None:
            return "ended"
        if self.open_turn is None:
            return "waiting"
        return "interrupted" if self.holder is None else "running"

    def count(self, *kinds: type[Event]) -> int:
        return sum(isinstance(event, kinds) for event in self.events)

    def add(self, *events: Event, at: int) -> None:
        for event in events:
            self.events.append(event)
            self.updated = max(self.updated, at)
            match event:
                case TurnStarted():
                    self.open_turn = event.turn_id
                case TurnEnded():
                    self.open_turn = None
                case Ended():
                    self.ended, self.open_turn = event.reason, None
                case Forked():
                    self.pinned, self.trashed, self.ended, self.open_turn = False, None, None, None

    def closing(self) -> list[Event]:
        """The events that close the open turn, if there is one."""
        if self.open_turn is None:
            return []
        reason = "the session was left in mid-turn"
        return [TurnEnded(turn_id=self.open_turn, outcome="cancelled", reason=reason)]

    def half_said(self) -> list[Event]:
        """The draft, which the end of an open turn puts into the log if it is of that turn, and drops if it is not."""
        if self.open_turn is None or self.draft is None:
            return []
        body, self.draft = self.draft, None
        words = ModelSaid(turn_id=DRAFTED, parts=(Text(body),), finish="cut", partial=True)
        return [words] if self.open_turn == DRAFTED else []


def without_hash(event: Event) -> Event:
    return msgspec.structs.replace(event, at_hash="") if isinstance(event, Forked) else event


def everything(tx: Transaction) -> tuple[list[Session], dict[str, list[Event]], dict[str, str | None], dict[str, int]]:
    """The sessions, their verified logs, their drafts, and the heartbeats of live workers, in one snapshot."""
    listed = session_list.list_page(tx, session_list.EVERYTHING, limit=100).sessions
    logs = {one.id: [without_hash(entry.event) for entry in log.read_complete(tx, one)] for one in listed}
    drafts = {one.id: draft.body if (draft := log.get_draft(tx, one.id)) else None for one in listed}
    return listed, logs, drafts, {worker.id: worker.beat for worker in workers.list_alive(tx)}


class StoreMachine(RuleBasedStateMachine):
    """One event loop and one store for each example."""

    kind = KINDS[0]
    living = Bundle("living")
    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.place = new_place(self.kind, Path(self.folder.name), migrated=True)
        self.runner = asyncio.Runner()
        self.database = self.runner.run(open_place(self.place))
        self.now = 1_000 * SECOND
        self.sheets: dict[str, Sheet] = {}
        self.alive: dict[str, bool] = {}
        self.beats: dict[str, int] = {}
        self.aliases: dict[str, str] = {}
        self.keys: dict[tuple[str, str], tuple[str, str]] = {}

    def teardown(self) -> None:
        self.runner.run(self.database.close())
        self.runner.close()
        self.folder.cleanup()

    def write(self, expected: type[HoldfastError] | None, work: Callable, *args: object, **kwargs: object) -> object:
        """Do it, and check that it fails as the dictionaries predict."""
        if expected is None:
            return self.runner.run(self.database.write(work, *args, **kwargs))
        with pytest.raises(expected) as caught:
            self.runner.run(self.database.write(work, *args, **kwargs))
        assert caught.type is expected
        return None

    def read(self, work: Callable, *args: object, **kwargs: object) -> object:
        return self.runner.run(self.database.read(work, *args, **kwargs))

    def unless_held(self, name: str) -> type[HoldfastError] | None:
        if name not in self.sheets:
            return NotFound
        return Busy if self.sheets[name].holder is not None else None

    # The start of each example: two workers, two sessions, one of them held.

    @initialize(target=living)
    def begin(self) -> object:
        for name in ("hf-a", "hf-b"):
            self.create(name, None)
        return multiple(self.register(), self.register())

    @initialize(target=held, worker=living)
    def begin_to_hold(self, worker: str) -> object:
        return self.take("hf-a", worker)

    # Time and the store itself.

    @rule(seconds=st.integers(-50, 50))
    def time_passes_or_is_set(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule()
    def the_store_is_closed_and_opened(self) -> None:
        self.runner.run(self.database.close())
        self.database = self.runner.run(open_place(self.place))

    # Sessions.

    @rule(name=NAMES, title=st.none() | TITLES)
    def create(self, name: str, title: str | None) -> None:
        opened = SessionOpened(source="chat", title=title)
        _, new = self.write(None, sessions.create, name, opened, at=self.now)
        assert new == (name not in self.sheets)
        if new:
            self.sheets[name] = Sheet(title=title)
            self.sheets[name].add(opened, at=self.now)

    @rule(name=NAMES, title=TITLES)
    def rename(self, name: str, title: str) -> None:
        missing = None if name in self.sheets else NotFound
        self.write(missing, sessions.rename, name, title, at=self.now)
        if missing is None:
            self.sheets[name].add(Titled(title=title), at=self.now)
            self.sheets[name].title = title

    @rule(name=NAMES, pinned=st.booleans())
    def pin(self, name: str, pinned: bool) -> None:
        missing = None if name in self.sheets else NotFound
        self.write(missing, sessions.pin, name, pinned=pinned, at=self.now)
        if missing is None and self.sheets[name].pinned != pinned:
            self.sheets[name].add(Pinned() if pinned else Unpinned(), at=self.now)
            self.sheets[name].pinned = pinned

    @rule(name=NAMES)
    def end(self, name: str) -> None:
        sheet = self.sheets.get(name)
        nothing = sheet is not None and sheet.ended is not None
        error = None if nothing else self.unless_held(name)
        self.write(error, sessions.end, name, "user", at=self.now)
        if sheet is not None and error is None and not nothing:
            sheet.add(*sheet.half_said(), *sheet.closing(), Ended(reason="user"), at=self.now)

    @rule(name=NAMES)
    def reopen(self, name: str) -> None:
        sheet = self.sheets.get(name)
        nothing = sheet is not None and sheet.ended is None
        error = None if nothing else self.unless_held(name)
        self.write(error, sessions.reopen, name, at=self.now)
        if sheet is not None and error is None and not nothing:
            sheet.add(Reopened(by_person=True), at=self.now)
            sheet.ended = None

    @rule(name=NAMES)
    def trash(self, name: str) -> None:
        sheet = self.sheets.get(name)
        nothing = sheet is not None and sheet.trashed is not None
        error = None if nothing else self.unless_held(name)
        self.write(error, sessions.trash, name, at=self.now)
        if sheet is not None and error is None and not nothing:
            sheet.add(Trashed(), at=self.now)
            sheet.trashed = self.now

    @rule(name=NAMES)
    def restore(self, name: str) -> None:
        missing = None if name in self.sheets else NotFound
        self.write(missing, sessions.restore, name, at=self.now)
        if missing is None and self.sheets[name].trashed is not None:
            self.sheets[name].add(Restored(), at=self.now)
            self.sheets[name].trashed = None

    @rule(name=NAMES)
    def prune(self, name: str) -> None:
        sheet = self.sheets.get(name)
        ripe = sheet is not None and sheet.trashed is not None and sheet.trashed < self.now
        gone = bool(ripe and not sheet.pinned and sheet.holder is None)
        assert self.write(None, session_pruning.prune, name, before=self.now) == gone
        if gone:
            del self.sheets[name]
            self.aliases = {alias: target for alias, target in self.aliases.items() if target != name}
            self.keys = {key: turn for key, turn in self.keys.items() if key[0] != name}

    @rule(parent=NAMES, name=NAMES, share=st.floats(0, 1))
    def fork(self, parent: str, name: str, share: float) -> None:
        sheet = self.sheets.get(parent)
        error = NotFound if sheet is None else Invalid if name in self.sheets else None
        upto = 1 if sheet is None else max(1, round(share * len(sheet.events)))
        self.write(error, fork_session, parent, name, at=self.now, at_seq=upto)
        if sheet is None or error is not None:
            return
        self.sheets[name] = fork = Sheet()
        for event, at in zip(sheet.events[:upto], self.times(parent)[:upto], strict=True):
            fork.add(event, at=at)
            if isinstance(event, SessionOpened | Titled):
                fork.title = event.title
            if isinstance(event, Reopened):
                fork.ended = None
        closing = fork.closing()
        fork.add(Forked(parent_id=parent, at_seq=upto, at_hash=""), *closing, at=self.now)

    def times(self, name: str) -> list[int]:
        return [entry.at for entry in self.read(log.read, name)]

    # Workers and leases.

    @rule(target=living)
    def register(self) -> str:
        worker = f"worker-{len(self.alive)}"
        self.write(None, workers.register, worker, "test", IDENTITY, version="1", at=self.now)
        self.alive[worker], self.beats[worker] = True, 0
        return worker

    @rule(worker=living)
    def beat(self, worker: str) -> None:
        self.write(None if self.alive[worker] else DeclaredDead, workers.record_heartbeat, worker, at=self.now)
        self.beats[worker] += self.alive[worker]

    @rule(worker=living)
    def declare_dead(self, worker: str) -> None:
        held = {name for name, sheet in self.sheets.items() if sheet.holder == worker}
        assert set(self.write(None, workers.mark_dead, worker, "gone", at=self.now)) == held
        self.alive[worker] = False
        for name in held:
            self.sheets[name].holder = None
            self.sheets[name].token += 1

    @rule(target=held, name=NAMES, worker=living)
    def take(self, name: str, worker: str) -> object:
        sheet = self.sheets.get(name)
        if sheet is None:
            error: type[HoldfastError] | None = NotFound
        elif sheet.holder not in (None, worker):
            error = Busy
        else:
            error = None if self.alive[worker] else DeclaredDead
        lease = self.write(error, leases.take, name, worker)
        if lease is None:
            return multiple()
        assert sheet is not None
        if sheet.holder is None:
            sheet.holder, sheet.token = worker, sheet.token + 1
        assert lease == Lease(name, worker, sheet.token)
        return lease

    def stands(self, lease: Lease) -> bool:
        sheet = self.sheets.get(lease.session_id)
        return sheet is not None and (sheet.holder, sheet.token) == (lease.worker_id, lease.token)

    @rule(lease=held)
    def release(self, lease: Lease) -> None:
        stood = self.stands(lease)
        assert self.write(None, leases.release, lease) == stood
        if stood:
            self.sheets[lease.session_id].holder = None

    # The log.

    @rule(lease=held, events=st.lists(EVENTS, max_size=4))
    def append(self, lease: Lease, events: list[Event]) -> None:
        stands = self.stands(lease)
        self.write(None if stands else LeaseLost, log.append, lease, events, at=self.now)
        if stands:
            self.sheets[lease.session_id].add(*events, at=self.now)

    @rule(lease=held, body=st.text("ab", min_size=1, max_size=3))
    def keep_draft(self, lease: Lease, body: str) -> None:
        stands = self.stands(lease)
        self.write(None if stands else LeaseLost, log.save_draft, lease, log.ReplyDraft(DRAFTED, body, self.now))
        if stands:
            self.sheets[lease.session_id].draft = body

    @rule(name=NAMES)
    def drop_draft(self, name: str) -> None:
        self.write(None, log.delete_draft, name)
        if name in self.sheets:
            self.sheets[name].draft = None

    # Names and keys.

    @rule(name=NAMES, alias=st.sampled_from(["old-1", "old-2"]))
    def add_alias(self, name: str, alias: str) -> None:
        if name not in self.sheets:
            return
        clash = self.aliases.get(alias, name) != name
        self.write(Conflict if clash else None, aliases.add, alias, name, at=self.now)
        self.aliases.setdefault(alias, name)

    @rule(
        name=NAMES,
        key=st.sampled_from(["k1", "k2"]),
        request=st.sampled_from(["r1", "r2"]),
        turn=st.text("xy", max_size=3),
    )
    def claim(self, name: str, key: str, request: str, turn: str) -> None:
        if name not in self.sheets:
            return
        known = self.keys.setdefault((name, key), (request, turn))
        error = None if known[0] == request else KeyReused
        found = self.write(error, idempotency.claim, name, "me", key, request=request, turn_id=turn, at=self.now)
        assert found == (known[1] if error is None else None)

    @rule(ref=TITLES | st.sampled_from(["old-1", "old-2"]) | NAMES)
    def resolve(self, ref: str) -> None:
        titled = [
            (sheet.updated, name) for name, sheet in self.sheets.items() if sheet.title == ref and sheet.trashed is None
        ]
        name = ref if ref in self.sheets else self.aliases.get(ref)
        try:
            found = self.read(sessions.resolve, ref)
        except NotFound:
            assert not titled
            assert name is None or self.sheets[name].trashed is not None
        else:
            assert found.session.id == (name or max(titled)[1])
            assert found.others == (0 if name else len(titled) - 1)

    # Invariants after every step.

    @invariant()
    def the_store_holds_what_the_dictionaries_hold(self) -> None:
        listed, logs, drafts, living = self.read(everything)
        order = sorted(self.sheets, key=lambda name: (self.sheets[name].updated, name), reverse=True)
        assert [session.id for session in listed] == order
        for session in listed:
            self.compare(session, self.sheets[session.id])
            assert logs[session.id] == self.sheets[session.id].events
            assert drafts[session.id] == self.sheets[session.id].draft
        assert living == {worker: self.beats[worker] for worker, lives in self.alive.items() if lives}

    def compare(self, session: Session, sheet: Sheet) -> None:
        summary = session.summary
        assert (session.state, session.seq) == (sheet.state, len(sheet.events))
        assert (session.lease_worker, session.lease_token) == (sheet.holder, sheet.token)
        assert (summary.title, bool(summary.pinned), summary.end_reason) == (sheet.title, sheet.pinned, sheet.ended)
        assert (summary.trashed_at, summary.open_turn) == (sheet.trashed, sheet.open_turn)
        assert summary.message_count == sheet.count(UserSaid, ModelSaid)
        assert summary.turn_count == sheet.count(TurnStarted)
        assert summary.tokens_in == sum(e.usage.tokens_in for e in sheet.events if isinstance(e, ModelSaid))


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_behaves_like_plain_dictionaries(kind: str) -> None:
    machine = type("Machine", (StoreMachine,), {"kind": kind})
    run_state_machine_as_test(machine, settings=settings(max_examples=30, stateful_step_count=30))
