"""Makes the store that this release leaves behind for the tests of all later ones: python -m tests.migrations.make_store

Run it once when a release is made, never again for the same release: a store in `stores/` is a fact.
"""

import asyncio
import gzip
import tempfile
from pathlib import Path

import holdfast
from holdfast.model.event import (
    KINDS,
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
from holdfast.model.message import File, Image, Reasoning, Text, ToolCall
from holdfast.model.times import SECOND
from holdfast.store.database import Database
from holdfast.store.repos import aliases, idempotency, leases, log, sessions, workers
from holdfast.store.sqlite.driver import open_sqlite
from tests.fakes.forks import fork_session
from tests.migrations.examples import example

STORES = Path(__file__).parent / "stores"
START = 1_800_000_000 * SECOND


def conversation() -> list[Event]:
    """A turn with everything that a message can contain."""
    call = ToolCall("call_1", "terminal", '{"command": "ls"}')
    return [
        TurnStarted(turn_id="turn-1", worker_id="worker-1", key="key-1"),
        UserSaid(turn_id="turn-1", parts=(Text("Grüße 日本語 \ud83d\0"), Image("data:,"), File("file:a.txt", "a.txt"))),
        ModelSaid(
            turn_id="turn-1",
            parts=(Reasoning("hm", "anthropic", {"signature": "s"}), Text("Let me look."), call),
            model="scripted:echo",
            finish="tool_calls",
            usage=Usage(tokens_in=100, tokens_out=20, cost=0.5),
        ),
        ToolStarted(turn_id="turn-1", call_id="call_1", name="terminal"),
        ToolEnded(turn_id="turn-1", call_id="call_1", outcome="ok", parts=(Text("a.txt"),), millis=12),
        ModelSaid(turn_id="turn-1", parts=(Text("One file."),), finish="stop"),
        TurnEnded(turn_id="turn-1", outcome="done"),
    ]


async def fill(database: Database) -> None:
    """Sessions in every state, and an event of every kind."""
    identity = workers.Identity(host="here", boot="boot-1", pid=1, process_started="1")
    await database.write(workers.register, "worker-1", "serve", identity, version=holdfast.__version__, at=START)
    for number, name in enumerate(("plain", "ended", "trashed", "pinned", "running", "kinds")):
        opened = SessionOpened(source="chat", channel=f"cli:{name}", title=f"A {name} session")
        await database.write(sessions.create, f"hf-{name}", opened, at=START + number)
        lease = await database.write(leases.take, f"hf-{name}", "worker-1")
        await database.write(log.append, lease, conversation(), at=START + number * SECOND)
        if name == "kinds":
            await database.write(log.append, lease, [example(cls) for cls in KINDS.values()], at=START + 60 * SECOND)
        if name == "running":
            await database.write(log.append, lease, [TurnStarted(turn_id="turn-2")], at=START + 60 * SECOND)
            await database.write(log.save_draft, lease, log.ReplyDraft("turn-2", "half a", START))
        else:
            await database.write(leases.release, lease)
        await database.write(aliases.add, f"old-{name}", f"hf-{name}", at=START)
        await database.write(aliases.set_channel_session, f"cli:{name}", f"hf-{name}", at=START)
        await database.write(
            idempotency.claim, f"hf-{name}", "me", "key-1", request="digest", turn_id="turn-1", at=START
        )
    await database.write(sessions.end, "hf-ended", "user", at=START + 90 * SECOND)
    await database.write(sessions.trash, "hf-trashed", at=START + 90 * SECOND)
    await database.write(sessions.pin, "hf-pinned", pinned=True, at=START + 90 * SECOND)
    await database.write(fork_session, "hf-plain", "hf-fork", at=START + 90 * SECOND, at_seq=4)


async def make(path: Path) -> None:
    database = await open_sqlite(path)
    await fill(database)
    await database.close()


def main() -> None:
    target = STORES / f"{holdfast.__version__}.db.gz"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "holdfast.db"
        asyncio.run(make(path))
        target.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    print(f"{target.name}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
