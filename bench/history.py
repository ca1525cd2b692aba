"""What a turn costs after a long conversation: server CPU per turn, without compaction and with it.

Without compaction the whole conversation goes to the model with every turn, so the bytes grow with it. The cost of sending
them is measured with a plain socket and reported apart.
"""

import socket
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench import resent_history, systems
from bench.figures import Figure, Goal, millis
from bench.load_driver import SAID, drive
from bench.model_server import WORDS
from bench.peers import hermes
from bench.processes import cpu_seconds, resident_bytes, wait_until_idle
from bench.stores import new_store, now
from bench.systems import System
from holdfast.model.event import Compacted, Event, ModelSaid, SessionOpened, TurnEnded, TurnStarted, Usage, UserSaid
from holdfast.model.message import Text
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions

TURNS = 50
LONG = 5_000
"""From this length on, all rounds use the same session: the turns of a round hardly make it longer."""
PEER_TURNS = 5
PEER_LENGTHS = (50, 1_000, 10_000)
"""A peer reads its whole history with every turn; more messages would take minutes."""
COMPACTED_LENGTH = 50_000
"""Messages of the compacted session: its log has 100,000 events."""
COMPACTED_NAME = "compacted"
AT_ONCE = 2_000
"""Messages in one transaction while a session is filled."""
EVENTS_PER_TURN = 4
CPU_GOAL = Goal("≤", 2.5, " ms")
GROWTH_GOAL = Goal("≤", 1.2)


class Result(msgspec.Struct, frozen=True):
    """Seconds of a turn after a history: CPU of the server, of which for sending, and until the reply."""

    cpu: float
    sending: float
    p50: float
    request_bytes: int

    @property
    def own(self) -> float:
        return max(0.0, self.cpu - self.sending)


Rounds = list[Result]
"""Of the same length, one result for each round."""


async def measure(folder: Path, *, lengths: tuple[int, ...], rounds: int, with_peers: bool) -> list[Figure]:
    home = folder / "home"
    home.mkdir(mode=0o700)
    await _fill(home / "holdfast.db", lengths, rounds)
    async with systems.model() as direct:
        port = direct.endpoint.port
        async with systems.holdfast(home, port) as ours:
            await wait_until_idle(ours.process)
            every = [*(names(length, rounds) for length in lengths), [COMPACTED_NAME] * rounds]
            *results, compacted = _play(ours, every, port)
            memory = resident_bytes(ours.process)
            resent = resent_history.measure(ours, lengths)
        theirs: list[Rounds] = []
        short = tuple(length for length in lengths if length in PEER_LENGTHS)
        if with_peers:
            async with hermes.serving(folder, port, short) as peer:
                theirs = _play(peer, [names(length, 1) for length in short], port, PEER_TURNS)
    value = f"{memory / 2**20:,.0f} MB"
    in_memory = Figure(what="memory of the server with all these sessions", value=value)
    by_length = dict(zip(lengths, results, strict=True))
    rows = describe(by_length, dict(zip(short, theirs, strict=False)))
    return [*rows, *_compacted_rows(compacted, by_length), in_memory, *resent]


def names(length: int, rounds: int) -> list[str]:
    """The name of the session for each round."""
    return [f"behind-{length}-{0 if length >= LONG else number}" for number in range(rounds)]


async def _fill(path: Path, lengths: tuple[int, ...], rounds: int) -> None:
    db = await new_store(path)
    every = [(length, name) for length in lengths for name in dict.fromkeys(names(length, rounds))]
    for number, (length, name) in enumerate([*every, (COMPACTED_LENGTH, COMPACTED_NAME)]):
        # The driver adds its connection and the number of the session.
        opened = SessionOpened(source="api", channel=f"key:{name}-0-0", model="openai:m")
        session, _ = await db.write(sessions.create_for_channel, f"s-{number:020}", opened, at=now())
        for first in range(0, length, AT_ONCE):
            await db.write(_append, session.id, first, min(length, first + AT_ONCE))
        if name == COMPACTED_NAME:
            await db.write(_compact, session.id, keep=min(lengths))
    await db.close()


def _compact(tx: Transaction, session_id: str, keep: int) -> None:
    """Compact all messages but the newest `keep`."""
    last_seq = COMPACTED_LENGTH * EVENTS_PER_TURN // 2 + 1
    upto_seq = last_seq - keep * EVENTS_PER_TURN // 2
    summary = Compacted(epoch=1, upto_seq=upto_seq, summary="word " * WORDS, how="summary", tokens_after=keep * 12)
    log.append_unheld(tx, session_id, [summary], at=now())


def _append(tx: Transaction, session_id: str, first: int, last: int) -> None:
    events: list[Event] = []
    for number in range(first, last, 2):
        turn_id = f"turn-{number:020}"
        reply = (Text("word " * WORDS),)
        events += [
            TurnStarted(turn_id=turn_id, worker_id="worker-bench"),
            UserSaid(turn_id=turn_id, parts=(Text(f"{SAID} {number}"),)),
            ModelSaid(turn_id=turn_id, parts=reply, model="m", finish="stop", usage=Usage(tokens_in=10, tokens_out=12)),
            TurnEnded(turn_id=turn_id, outcome="done", usage=Usage(tokens_in=10, tokens_out=12)),
        ]
    log.append_unheld(tx, session_id, events, at=now())


def _play(system: System, every: Sequence[Sequence[str]], port: int, turns: int = TURNS) -> list[Rounds]:
    """Play all lists of session names, which have one name per round. Each list has its turns in every round."""
    rounds = [[_behind(system, name, port, turns) for name in names] for names in zip(*every, strict=True)]
    return [list(results) for results in zip(*rounds, strict=True)]


def _cheapest(results: Rounds) -> Result:
    return min(results, key=lambda result: result.cpu)


def _growth(results: Rounds, shortest: Rounds) -> float:
    """How many times more CPU than the shortest, without sending: the median of the rounds, as the speed of the machine changes."""
    return statistics.median(one.own / short.own for one, short in zip(results, shortest, strict=True))


def _behind(system: System, session_name: str, model_port: int, turns: int) -> Result:
    """What the turns of one session take. A first turn loads the session and is not counted."""
    drive(system.endpoint, session_name, sessions=1, turns=1)
    systems.ask_model(model_port, "received")
    before = cpu_seconds(system.process)
    load = drive(system.endpoint, session_name, sessions=1, turns=turns, in_session=turns)
    cpu = (cpu_seconds(system.process) - before) / turns
    size = systems.ask_model(model_port, "received")
    return Result(cpu, sending_seconds(model_port, size), load.p50, size)


def sending_seconds(port: int, size: int, times: int = 20) -> float:
    """CPU time that a plain socket needs to send a request of this size: the mean of some tries."""
    body = b"x" * size
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size
    total = 0.0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(times):
            start = time.thread_time()
            connection.sendall(head + body)
            total += time.thread_time() - start
            reply = b""
            while not reply.endswith((b"\r\n0\r\n\r\n", b"}")):
                reply += connection.recv(65536)
    return total / times


def describe(results: dict[int, Rounds], theirs: dict[int, Rounds]) -> list[Figure]:
    """The rows for every length. The growth leaves the sending out."""
    first = min(results)
    return [
        figure
        for length, rounds in results.items()
        for figure in _rows(length, rounds, theirs.get(length), None if length == first else (first, results[first]))
    ]


def _compacted_rows(compacted: Rounds, results: dict[int, Rounds]) -> list[Figure]:
    """The row of the compacted session, beside the shortest one: both send about as many messages."""
    shortest, best = min(results), _cheapest(compacted)
    return [
        Figure(
            what=f"behind {COMPACTED_LENGTH * EVENTS_PER_TURN // 2:,} events, compacted: server CPU per turn",
            value=f"{millis(best.cpu)} (sends {best.request_bytes / 1e6:,.2f} MB)",
            beside=f"that behind {shortest} messages",
            judged=_growth(compacted, results[shortest]),
            goal=GROWTH_GOAL,
            kind="cpu",
        )
    ]


def _rows(length: int, rounds: Rounds, peer: Rounds | None, shortest: tuple[int, Rounds] | None) -> list[Figure]:
    """The rows of one length, beside those of the shortest."""
    what, one = f"behind {length:,} messages", _cheapest(rounds)
    own = f"{millis(one.own)} (sends {one.request_bytes / 1e6:,.2f} MB: {millis(one.sending)})"
    return [
        Figure(
            what=f"{what}: server CPU per turn",
            value=millis(one.cpu),
            judged=one.cpu * 1000,
            goal=None if shortest else CPU_GOAL,
            kind="cpu",
            others={hermes.TITLE: millis(_cheapest(peer).cpu)} if peer else {},
        ),
        Figure(
            what=f"{what}: the same without sending the request",
            value=own,
            beside=f"that behind {shortest[0]}" if shortest else "",
            judged=_growth(rounds, shortest[1]) if shortest else one.own * 1000,
            goal=GROWTH_GOAL if shortest else None,
            kind="cpu",
        ),
        Figure(
            what=f"{what}: time per turn, p50",
            value=millis(one.p50),
            others={hermes.TITLE: millis(_cheapest(peer).p50)} if peer else {},
        ),
    ]
