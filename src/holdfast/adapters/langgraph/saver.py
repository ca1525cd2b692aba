"""The checkpointer of LangGraph. Each thread is a session, written by one process at a time."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any, cast

from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointTuple,
    get_checkpoint_id,
)

from holdfast.adapters.framework_session import DELETED, Decide, Written, channel_of, constant, settle
from holdfast.adapters.langgraph.checkpoint_writes import CheckpointWriter, Prepared
from holdfast.adapters.langgraph.items import ADAPTER, encode_removal, move_item, unpack
from holdfast.adapters.langgraph.thread_state import StoredCheckpoint, StoredWrite, ThreadState
from holdfast.adapters.langgraph.value_loader import ValueLoader
from holdfast.adapters.session_pool import PooledSession, SessionPool
from holdfast.model.errors import Invalid
from holdfast.model.event import Event, ItemAdded
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, log

Config = Any
Tuples = list[CheckpointTuple]
Checkpoints = list[StoredCheckpoint]
Thread = PooledSession[ThreadState]
PREFIX = channel_of(ADAPTER, "")


class HoldfastSaver(BaseCheckpointSaver[str]):
    """Checkpoints and writes in Holdfast's log, for synchronous and asynchronous graphs.

    A call returns after its data is durable. Each value is stored once, and a list once per element. What is deleted or
    pruned leaves the thread; a deleted thread goes to the trash, and pruned checkpoints stay in the log.
    """

    def __init__(self, store: str | None = None, *, serde: Any = None) -> None:
        super().__init__(serde=serde)
        self._threads = SessionPool(store, ADAPTER, ThreadState)
        self._writer = CheckpointWriter(lambda: self.serde)

    @classmethod
    def from_url(cls, store: str | None = None, *, serde: Any = None) -> "SaverScope":
        """For `with` and `async with`; at the end of the block the threads are free for other processes."""
        return SaverScope(cls(store, serde=serde))

    # reading

    def get_tuple(self, config: Config) -> CheckpointTuple | None:
        return self._thread(config).session.read_now(partial(self._get, config))

    async def aget_tuple(self, config: Config) -> CheckpointTuple | None:
        return await self._thread(config).session.read(partial(self._get, config))

    def list(
        self, config: Config | None, *, filter: Any = None, before: Config | None = None, limit: int | None = None
    ) -> Iterator[CheckpointTuple]:
        """The matching checkpoints of a thread, or without a config of all threads, newest first."""
        names = [_name(config)] if config else self._list_threads().result()
        for name in names:
            view = partial(self._list, config, filter, before, limit)
            found = self._threads.get(name).session.read_now(view)
            yield from found
            limit = None if limit is None else limit - len(found)

    async def alist(
        self, config: Config | None, *, filter: Any = None, before: Config | None = None, limit: int | None = None
    ) -> AsyncIterator[CheckpointTuple]:
        await self._threads.store.wait_until_open()
        names = [_name(config)] if config else await settle(self._list_threads())
        for name in names:
            found = await self._threads.get(name).session.read(partial(self._list, config, filter, before, limit))
            for one in found:
                yield one
            limit = None if limit is None else limit - len(found)

    # writing

    def put(self, config: Config, checkpoint: Checkpoint, metadata: Any, new_versions: Any) -> Config:
        thread = self._thread(config)
        prepared = self._writer.prepare_put(config, checkpoint, metadata, new_versions)
        self._note(thread, prepared, thread.session.write_now(partial(prepared.decide, thread)))
        return _config(_name(config), _namespace(config), checkpoint["id"])

    async def aput(self, config: Config, checkpoint: Checkpoint, metadata: Any, new_versions: Any) -> Config:
        thread = self._thread(config)
        prepared = self._writer.prepare_put(config, checkpoint, metadata, new_versions)
        self._note(thread, prepared, await thread.session.write(partial(prepared.decide, thread)))
        return _config(_name(config), _namespace(config), checkpoint["id"])

    def put_writes(self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        thread = self._thread(config)
        prepared = self._writer.prepare_writes(config, writes, task_id, task_path)
        self._note(thread, prepared, thread.session.write_now(partial(prepared.decide, thread)))

    async def aput_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread = self._thread(config)
        prepared = self._writer.prepare_writes(config, writes, task_id, task_path)
        self._note(thread, prepared, await thread.session.write(partial(prepared.decide, thread)))

    # deleting and copying

    def delete_thread(self, thread_id: str) -> None:
        """Move the thread to the trash of the store."""
        self._threads.get(str(thread_id)).session.write_now(constant([DELETED]), creates=False)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._threads.get(str(thread_id)).session.write(constant([DELETED]), creates=False)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of these runs, and their writes, from all threads."""
        for name in self._list_threads().result():
            thread = self._threads.get(name)
            thread.session.write_now(
                self._removal(thread, partial(_of_runs, self.serde, frozenset(run_ids))), creates=False
            )

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._threads.store.wait_until_open()
        for name in await settle(self._list_threads()):
            thread = self._threads.get(name)
            decide = self._removal(thread, partial(_of_runs, self.serde, frozenset(run_ids)))
            await thread.session.write(decide, creates=False)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove all checkpoints but the newest of each namespace and those that its delta channels need."""
        for name in thread_ids:
            thread = self._threads.get(str(name))
            thread.session.write_now(self._removal(thread, self._pruned(strategy)), creates=False)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for name in thread_ids:
            thread = self._threads.get(str(name))
            await thread.session.write(self._removal(thread, self._pruned(strategy)), creates=False)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Append the checkpoints and writes of a thread to another one."""
        found = self._threads.get(str(source_thread_id)).session.read_now(_read_items)
        if found:
            self._threads.get(str(target_thread_id)).session.write_now(partial(_copy, found))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        found = await self._threads.get(str(source_thread_id)).session.read(_read_items)
        if found:
            await self._threads.get(str(target_thread_id)).session.write(partial(_copy, found))

    def get_next_version(self, current: Any, channel: None) -> str:
        number = 0 if current is None else int(str(current).split(".", maxsplit=1)[0])
        return f"{number + 1:032}"

    def release(self) -> None:
        """Let other processes write to the threads of this saver at once, instead of after 30 seconds without use."""
        self._threads.release()
        self._writer.forget()

    # in transactions

    def _get(self, config: Config, tx: Transaction, session: Session | None) -> CheckpointTuple | None:
        if session is None:
            return None
        wanted, ns = get_checkpoint_id(config), _namespace(config)
        with self._thread(config).state() as state:
            state.catch_up(tx, session)
            found = state.checkpoints.get((ns, wanted)) if wanted else state.get_newest(ns)
            writes = [] if found is None else state.ordered_writes(found)
            loader = ValueLoader(tx, session.id, state.verified, self.serde)
        if found is None:
            return None
        made = self._tuple(_name(config), found, writes, loader)
        self._note_verified(_name(config), loader)
        return made

    def _list(
        self,
        config: Config | None,
        filter: Any,
        before: Config | None,
        limit: int | None,
        tx: Transaction,
        session: Session | None,
    ) -> Tuples:
        if session is None or (limit is not None and limit <= 0):
            return []
        name = (session.summary.channel or "").removeprefix(PREFIX)
        ns = config["configurable"].get("checkpoint_ns") if config else None
        wanted, limit_id = (get_checkpoint_id(one) if one else None for one in (config, before))
        with self._threads.get(name).state() as state:
            state.catch_up(tx, session)
            every = state.find(ns, wanted) if wanted else state.newest_first(ns, limit_id or None)
            fitting = (one for one in every if self._fits(one, filter) and (not limit_id or one.id < limit_id))
            found = [(one, state.ordered_writes(one)) for one in islice(fitting, limit)]
            loader = ValueLoader(tx, session.id, state.verified, self.serde)
        tuples = [self._tuple(name, one, writes, loader) for one, writes in found]
        self._note_verified(name, loader)
        return tuples

    def _fits(self, found: StoredCheckpoint, filter: Any) -> bool:
        metadata = self.serde.loads_typed(unpack(found.metadata)) if filter else {}
        return all(metadata.get(key) == value for key, value in (filter or {}).items())

    def _tuple(
        self, name: str, found: StoredCheckpoint, writes: Sequence[StoredWrite], loader: ValueLoader
    ) -> CheckpointTuple:
        values = loader.load({**found.values, **{(at, one.channel): one.value for at, one in enumerate(writes)}})
        checkpoint = {"channel_versions": dict(found.versions), **self.serde.loads_typed(unpack(found.body))}
        checkpoint["channel_values"] = {channel: values[channel] for channel in found.values}
        return CheckpointTuple(
            _config(name, found.ns, found.id),
            cast("Checkpoint", checkpoint),
            self.serde.loads_typed(unpack(found.metadata)),
            None if found.parent is None else _config(name, found.ns, found.parent),
            [(one.task, one.channel, values[at, one.channel]) for at, one in enumerate(writes)],
        )

    def _note(self, thread: Thread, prepared: Prepared, written: Written | None) -> None:
        thread.note(written, prepared.apply)
        prepared.note(written)

    def _note_verified(self, name: str, loader: ValueLoader) -> None:
        with self._threads.get(name).state() as state:
            state.note_verified(loader.verified)

    def _removal(self, thread: Thread, choose: Callable[[ThreadState], Checkpoints]) -> Decide:
        def decide(tx: Transaction, session: Session) -> Sequence[Event]:
            with thread.state() as state:
                state.catch_up(tx, session)
                removed = [(one.ns, one.id) for one in choose(state)]
            return [encode_removal(removed)] if removed else []

        return decide

    def _pruned(self, strategy: str) -> Callable[[ThreadState], Checkpoints]:
        if strategy == "delete":
            return _all
        if strategy != "keep_latest":
            raise Invalid(f"unknown strategy {strategy!r}; use 'keep_latest' or 'delete'")
        return partial(_older, self.serde)

    def _list_threads(self) -> Future[Any]:
        def work(tx: Transaction) -> Any:
            return [one.channel.removeprefix(PREFIX) for one in aliases.list_channels(tx, PREFIX)]

        return self._threads.store.database.submit_read(work)

    def _thread(self, config: Config) -> Thread:
        return self._threads.get(_name(config))


class SaverScope(AbstractContextManager[HoldfastSaver], AbstractAsyncContextManager[HoldfastSaver]):
    """A saver for one block."""

    def __init__(self, saver: HoldfastSaver) -> None:
        self._saver = saver

    def __enter__(self) -> HoldfastSaver:
        return self._saver

    def __exit__(self, *_: object) -> None:
        self._saver.release()

    async def __aenter__(self) -> HoldfastSaver:
        return self._saver

    async def __aexit__(self, *_: object) -> None:
        self._saver.release()


def _all(state: ThreadState) -> Checkpoints:
    return list(state.newest_first())


def _of_runs(serde: Any, runs: frozenset[str], state: ThreadState) -> Checkpoints:
    return [one for one in state.newest_first() if serde.loads_typed(unpack(one.metadata)).get("run_id") in runs]


def _older(serde: Any, state: ThreadState) -> Checkpoints:
    """All but the newest of each namespace, and its ancestors up to the last stored value of each delta channel."""
    kept: set[tuple[str, str]] = set()
    for ns in {one.ns for one in state.checkpoints.values()}:
        one = state.get_newest(ns)
        assert one is not None
        counters = serde.loads_typed(unpack(one.metadata)).get("counters_since_delta_snapshot") or {}
        missed = {channel for channel in counters if channel not in one.values}
        kept.add((ns, one.id))
        while missed and one.parent is not None and (one := state.checkpoints.get((ns, one.parent))) is not None:
            kept.add((ns, one.id))
            missed -= one.values.keys()
    return [one for one in state.newest_first() if (one.ns, one.id) not in kept]


def _read_items(tx: Transaction, session: Session | None) -> "list[tuple[int, ItemAdded]]":
    found = [] if session is None else log.read_complete(tx, session)
    return [(entry.seq, entry.event) for entry in found if isinstance(entry.event, ItemAdded)]


def _copy(found: "list[tuple[int, ItemAdded]]", tx: Transaction, session: Session) -> Sequence[Event]:
    last, moved = session.seq, dict[int, int]()
    events: list[Event] = []
    for seq, event in found:
        moved[seq] = last + len(events) + 1
        events.append(move_item(event, moved))
    return events


def _name(config: Config) -> str:
    return str(config["configurable"]["thread_id"])


def _namespace(config: Config) -> str:
    return str(config["configurable"].get("checkpoint_ns", ""))


def _config(name: str, ns: str, checkpoint_id: str) -> Config:
    return {"configurable": {"thread_id": name, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}
