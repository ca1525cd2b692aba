"""Makes every kind of write in a fixed order, and emits what was acknowledged.

Two runs write the same bytes except for the id of the store. The tests kill it, fill its disk and inject errors;
`--states` adds the digest of the store after each step, for comparison.
"""

import argparse
import asyncio
import ctypes
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from holdfast.model.errors import Corrupt, NotSaved
from holdfast.model.event import (
    Event,
    ModelSaid,
    SessionOpened,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    UserSaid,
)
from holdfast.model.ids import SESSION, TURN, WORKER, Ids
from holdfast.model.message import Text, ToolCall
from holdfast.model.session import Session
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import aliases, idempotency, leases, log, session_list, session_pruning, sessions, workers
from holdfast.store.repos.leases import Lease
from holdfast.store.sqlite import driver, writer
from holdfast.torture.child import emit
from tests.crash.output import head_of
from tests.crash.store_digest import digest
from tests.fakes.clock import FakeClock
from tests.fakes.forks import fork_session

T = TypeVar("T")
DATABASE = "holdfast.db"
LIMIT_SECONDS = 30.0
GIVEN_UP = 3
"""The exit code of a writer that could not continue."""
VERSION = "0"
PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, ctypes.c_ulong(-1)
IDENTITY = workers.Identity(host="here", boot="this", pid=1, process_started="then")


class Gates:
    """Points at which the program waits for a line, so that a tracer can attach; each only once."""

    def __init__(self, *, shut: bool) -> None:
        self._passed: set[str] = set()
        self._shut = shut

    def wait_at(self, gate: str) -> None:
        if not self._shut or gate in self._passed:
            return
        self._passed.add(gate)
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0)
        emit(gate=gate)
        if not sys.stdin.readline():
            raise SystemExit("standard input ended at a gate")

    def put_into_open(self) -> None:
        """Add a gate between the thread that creates the store and the one that attaches to it."""
        attach = driver.SqliteDatabase

        def gated(path: Path, **settings: float) -> driver.SqliteDatabase:
            self.wait_at("attach")
            return attach(path, **settings)

        driver.SqliteDatabase = gated  # type: ignore[misc, assignment]


class Play:
    """Makes writes in sequence and acknowledges each after it has returned."""

    def __init__(self, path: Path, gates: Gates, *, states: bool, retry: bool) -> None:
        self.path = path
        self._gates = gates
        self._states = states
        self._retry = retry
        self._clock = FakeClock()
        self._ids = Ids(self.now, lambda bits: bits)

    def now(self) -> int:
        self._clock.pass_seconds(0.001)
        return self._clock.now()

    def id(self, prefix: str) -> str:
        return self._ids.make(prefix)

    async def open(self) -> None:
        self.database = await self._attempt("opened", lambda: driver.open_sqlite(self.path))
        self._acknowledge("opened", [])

    async def write(self, what: str, work: Callable[..., T], *args: object, **kwargs: object) -> T:
        result = await self._attempt(what, lambda: self.database.write(work, *args, **kwargs))
        self._acknowledge(what, [result])
        return result

    async def write_together(self, what: str, works: Sequence[Callable[[Transaction], object]]) -> None:
        """Several writes that share one commit."""
        await self._attempt(what, lambda: self._together(what, works))

    async def _together(self, what: str, works: Sequence[Callable[[Transaction], object]]) -> None:
        results = await write_together(self.database, works)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        self._acknowledge(what, results)

    async def read(self, what: str, work: Callable[..., T], *args: object, **kwargs: object) -> T:
        result = await self._attempt(what, lambda: self.database.read(work, *args, **kwargs))
        emit(read=what)
        return result

    async def _attempt(self, what: str, act: Callable[[], Awaitable[T]]) -> T:
        for last in (False, True) if self._retry else (True,):
            try:
                return await act()
            except (NotSaved, Corrupt) as e:
                state = {"state": digest(self.path)} if self._states and what != "opened" else {}
                emit(failed=what, error=type(e).__name__, why=str(e), **state)
                self._gates.wait_at("failed")
                if last:
                    raise SystemExit(GIVEN_UP) from e
        raise AssertionError("unreachable")

    def _acknowledge(self, what: str, results: Sequence[object]) -> None:
        found = [result[0] if isinstance(result, tuple) else result for result in results]
        heads = [head_of(one) for one in found if isinstance(one, Session)]
        line: dict[str, object] = {"ack": what, "heads": heads}
        if self._states:
            line["state"] = digest(self.path)
        emit(**line)

    async def settle(self) -> None:
        """Wait until the writer thread is idle: it may run a checkpoint after the last response."""
        await self.database.write(_nothing)

    async def close(self) -> None:
        await self.database.close()
        emit(closed=True)


def _nothing(_: Transaction) -> None:
    pass


async def write_together(
    database: Database, works: Sequence[Callable[[Transaction], object]]
) -> list[object | BaseException]:
    """Run writes that share one commit: all wait in the queue while the writer is busy."""
    begun, go = threading.Event(), threading.Event()
    first = asyncio.create_task(database.write(_hold, begun, go))
    assert await asyncio.to_thread(begun.wait, LIMIT_SECONDS)
    rest = [asyncio.create_task(database.write(work)) for work in works]
    await asyncio.sleep(0)  # lets each task put its work into the queue
    go.set()
    await first
    return await asyncio.gather(*rest, return_exceptions=True)


def _hold(_: Transaction, begun: threading.Event, go: threading.Event) -> None:
    begun.set()
    assert go.wait(LIMIT_SECONDS)


def admit(tx: Transaction, lease: Lease, turn: str, text: str, *, at: int) -> Session:
    """Admit a turn: key, turn and text in one transaction."""
    idempotency.claim(tx, lease.session_id, "caller", turn, request=text, turn_id=turn, at=at)
    said: list[Event] = [
        TurnStarted(turn_id=turn, worker_id=lease.worker_id),
        UserSaid(turn_id=turn, parts=(Text(text),)),
    ]
    return log.append(tx, lease, said, at=at)


def reply(tx: Transaction, lease: Lease, said: ModelSaid, *, at: int) -> Session:
    """Commit a reply and delete its draft."""
    session = log.append(tx, lease, [said], at=at)
    log.delete_draft(tx, lease.session_id)
    return session


async def turn(play: Play, lease: Lease, words: str) -> None:
    """One turn with two tool calls."""
    id_ = play.id(TURN)
    calls = tuple(ToolCall(id=f"{id_}-{n}", name="terminal", arguments='{"command":"true"}') for n in (1, 2))
    said = ModelSaid(
        turn_id=id_, parts=(Text(words), *calls), model="m", usage=Usage(tokens_in=3, tokens_out=5), finish="tool_calls"
    )
    await play.write("admitted", admit, lease, id_, words, at=play.now())
    await play.write("draft kept", log.save_draft, lease, log.ReplyDraft(id_, words[:40], play.now()))
    await play.write("draft kept again", log.save_draft, lease, log.ReplyDraft(id_, words, play.now()))
    await play.write("replied", reply, lease, said, at=play.now())
    for call in calls:
        started = ToolStarted(turn_id=id_, call_id=call.id, name=call.name)
        ended = ToolEnded(turn_id=id_, call_id=call.id, name=call.name, outcome="ok", parts=(Text(words),))
        await play.write("tool started", log.append, lease, [started], at=play.now())
        await play.write("tool ended", log.append, lease, [ended], at=play.now())
    await play.write("turn ended", log.append, lease, [TurnEnded(turn_id=id_, outcome="done")], at=play.now())


async def everything(play: Play, rounds: int) -> None:
    """Every kind of write, and a commit that several share."""
    worker, first, second, fork = play.id(WORKER), play.id(SESSION), play.id(SESSION), play.id(SESSION)
    opened = SessionOpened(source="chat", model="m", channel="cli:tty")
    await play.write("registered", workers.register, worker, "test", IDENTITY, version=VERSION, at=play.now())
    await play.write("created", sessions.create_for_channel, first, opened, at=play.now())
    lease = await play.write("taken", leases.take, first, worker)
    for n in range(rounds):
        await turn(play, lease, f"words {n} " * 20)
    await play.write("renamed", sessions.rename, first, "a title", at=play.now())
    await play.write("forked", fork_session, first, fork, at=play.now(), at_seq=5)
    await play.write("released", leases.release, lease)
    await play.write("ended", sessions.end, first, "user", at=play.now())
    await play.write("reopened", sessions.reopen, first, at=play.now())
    await play.write("trashed", sessions.trash, fork, at=play.now())
    await play.write("restored", sessions.restore, fork, at=play.now())
    await play.write("named", aliases.add, "old-name", first, at=play.now())
    await play.write("created again", sessions.create, second, SessionOpened(source="api"), at=play.now())
    await play.write("beaten", workers.record_heartbeat, worker, at=play.now())
    at = play.now()
    await play.write_together(
        "shared", [lambda tx, s=s: sessions.rename(tx, s, "shared", at=at) for s in (first, second, fork)]
    )
    await play.write("trashed for good", sessions.trash, fork, at=play.now())
    await play.write("pruned", session_pruning.prune, fork, before=play.now() + 1)
    await play.write("buried", workers.mark_dead, worker, "the end", at=play.now())


async def volume(play: Play, rounds: int) -> None:
    """Few kinds of writes but many pages, so that the WAL is moved into the file on the way."""
    worker, id_ = play.id(WORKER), play.id(SESSION)
    await play.write("registered", workers.register, worker, "test", IDENTITY, version=VERSION, at=play.now())
    await play.write("created", sessions.create, id_, SessionOpened(source="run"), at=play.now())
    lease = await play.write("taken", leases.take, id_, worker)
    for n in range(rounds):
        said = UserSaid(turn_id=f"turn-{n}", parts=(Text(f"{n} " * 4_000),))
        await play.write("said", log.append, lease, [said], at=play.now())
    await play.write("released", leases.release, lease)


async def read_all(play: Play) -> None:
    """Every log, verified."""
    page = await play.read("the list", session_list.list_page, session_list.EVERYTHING, limit=100)
    for session in page.sessions:
        await play.read(session.id, log.read_complete, session)


SCENARIOS = {"everything": everything, "volume": volume}


async def main(given: argparse.Namespace) -> None:
    driver.READERS = 1  # a call is known by its thread and number, so the same thread must make it each time
    if given.checkpoint_pages is not None:
        writer.CHECKPOINT_PAGES = given.checkpoint_pages
    if given.truncate:
        writer.TRUNCATE_PAGES = 0
    gates = Gates(shut=given.gates)
    play = Play(given.home / DATABASE, gates, states=given.states, retry=given.retry)
    gates.put_into_open()
    gates.wait_at("open")
    await play.open()
    gates.wait_at("main")
    await SCENARIOS[given.scenario](play, given.rounds)
    await play.settle()
    gates.wait_at("read")
    await read_all(play)
    gates.wait_at("close")
    await play.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--scenario", choices=SCENARIOS, default="everything")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--checkpoint-pages", type=int)
    parser.add_argument("--truncate", action="store_true", help="checkpoints cut the WAL to nothing")
    parser.add_argument("--gates", action="store_true", help="wait to be told before each phase")
    parser.add_argument("--states", action="store_true", help="say what the store holds after each step")
    parser.add_argument("--retry", action="store_true", help="try a write that could not be saved once more")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(arguments()))
