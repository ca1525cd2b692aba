"""The store of LangGraph, its long-term memory: values by namespace and key, which any process may change."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Self

import msgspec
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    PutOp,
    SearchItem,
    SearchOp,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from holdfast.adapters.framework_session import append_shared, channel_of, find, settle
from holdfast.adapters.langgraph.namespace import (
    ADAPTER,
    PREFIX,
    ROOT,
    Namespace,
    NamespaceFold,
    StoredValue,
    Vector,
    deletion_item,
    is_found,
    is_labelled,
    name_of,
    namespace_of,
    put_item,
    score,
    touch_item,
    unit_vector,
)
from holdfast.adapters.session_pool import SessionPool
from holdfast.model.errors import Invalid
from holdfast.model.event import ItemAdded, SessionOpened, Trashed
from holdfast.model.ids import SESSION
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, sessions

OPENED = SessionOpened(source="library", channel=channel_of(ADAPTER, ROOT), title="Store of LangGraph")
EMPTIED = Trashed(reason="its last item was deleted")


class StoreBatch(msgspec.Struct):
    """Operations, of which only the last put of a key counts, with the vectors of their texts once those are known."""

    ops: list[Any]
    puts: "dict[tuple[Namespace, str], Any]"
    texts: "dict[tuple[Namespace, str], list[str]]"
    queries: list[str]
    vectors: dict[str, Vector] = {}
    query_vectors: dict[str, Vector] = {}

    def set_vectors(self, texts: Sequence[str], vectors: Sequence[Vector]) -> None:
        self.vectors = dict(zip(texts, vectors, strict=True))

    def all_texts(self) -> list[str]:
        return list(dict.fromkeys(text for texts in self.texts.values() for text in texts))


class NamespaceChange(msgspec.Struct, frozen=True):
    """The items to append to one namespace, and the id of its session, should it not exist."""

    namespace: Namespace
    new_id: str
    items: Sequence[ItemAdded]
    creates: bool
    deletes: bool


class HoldfastStore(BaseStore):
    """Values in Holdfast's log: earlier and deleted ones stay there. For synchronous and asynchronous callers.

    A call returns after its values are durable, and a batch is stored completely or not at all. With `index`, values are
    also found by the meaning of their texts. An item whose `ttl` has passed is not returned any more.
    """

    supports_ttl = True
    __slots__ = ("_embeddings", "_fields", "_namespaces", "ttl_config")

    def __init__(self, store: str | None = None, *, index: Any = None, ttl: Any = None) -> None:
        super().__init__()
        self.ttl_config = ttl
        self._namespaces = SessionPool(store, ADAPTER, NamespaceFold, is_shared=True)
        self._embeddings = ensure_embeddings(index["embed"]) if index else None
        self._fields: list[str] = list((index or {}).get("fields") or ["$"])

    @classmethod
    def from_url(cls, store: str | None = None, *, index: Any = None, ttl: Any = None) -> "nullcontext[Self]":
        """For `with` and `async with`."""
        return nullcontext(cls(store, index=index, ttl=ttl))

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Execute the operations. Reads find what was stored before; the last put of a key counts."""
        batch = self._prepare(ops)
        if self._embeddings is not None:
            texts = batch.all_texts()
            batch.set_vectors(texts, self._embeddings.embed_documents(texts) if texts else [])
            batch.query_vectors = {text: unit_vector(self._embeddings.embed_query(text)) for text in batch.queries}
        results, touched = self._read(batch).result()
        if changes := self._changes(batch, touched):
            self._write(changes).result()
        return results

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        batch = self._prepare(ops)
        if self._embeddings is not None:
            texts = batch.all_texts()
            batch.set_vectors(texts, await self._embeddings.aembed_documents(texts) if texts else [])
            for text in batch.queries:
                batch.query_vectors[text] = unit_vector(await self._embeddings.aembed_query(text))
        await self._namespaces.store.wait_until_open()
        results, touched = await settle(self._read(batch))
        if changes := self._changes(batch, touched):
            await settle(self._write(changes))
        return results

    def _prepare(self, ops: Iterable[Any]) -> StoreBatch:
        batch = StoreBatch(list(ops), {}, {}, [])
        for op in batch.ops:
            if isinstance(op, PutOp):
                batch.puts[op.namespace, op.key] = op
            elif isinstance(op, SearchOp) and op.query:
                batch.queries.append(op.query)
            elif not isinstance(op, GetOp | SearchOp | ListNamespacesOp):
                raise Invalid(f"a store of LangGraph has no operation {type(op).__name__}")
        if self._embeddings is not None:
            batch.texts = {place: self._texts_of(op) for place, op in batch.puts.items()}
        return batch

    def _texts_of(self, op: Any) -> list[str]:
        if op.value is None or op.index is False:
            return []
        paths = self._fields if op.index is None else op.index
        return [
            text for path in paths for text in get_text_at_path(op.value, "$" if path == "$" else tokenize_path(path))
        ]

    def _read(self, batch: StoreBatch) -> "Future[tuple[list[Any], Touched]]":
        """The results of all operations, and which items a read keeps alive."""
        if len(batch.puts) == len(batch.ops):
            nothing: Future[tuple[list[Any], Touched]] = Future()
            nothing.set_result(([None] * len(batch.ops), {}))
            return nothing
        store = self._namespaces.store
        return store.database.submit_read(self._read_all, batch, store.app.clock.now())

    def _read_all(self, tx: Transaction, batch: StoreBatch, at: int) -> "tuple[list[Any], Touched]":
        touched: Touched = defaultdict(list)
        results: list[Any] = []
        for op in batch.ops:
            if isinstance(op, PutOp):
                results.append(None)
            elif isinstance(op, ListNamespacesOp):
                results.append(_list_namespaces(tx, op))
            else:
                found = self._get(tx, op, at) if isinstance(op, GetOp) else self._search(tx, op, batch, at)
                if op.refresh_ttl:
                    for one in found:
                        touched[one.namespace] += [one.entry.key] if one.entry.needs_touch(at) else []
                results.append(_results(op, found))
        return results, {namespace: keys for namespace, keys in touched.items() if keys}

    def _get(self, tx: Transaction, op: Any, at: int) -> "list[FoundValue]":
        with self._entries(tx, op.namespace) as entries:
            entry = entries.get(op.key)
        return [FoundValue(op.namespace, entry)] if entry is not None and entry.is_live(at) else []

    def _search(self, tx: Transaction, op: Any, batch: StoreBatch, at: int) -> "list[FoundValue]":
        """The items nearest to the query first, then those without vectors; without a query or an index, the newest first."""
        prefix, wanted = tuple(op.namespace_prefix), op.filter or {}
        found: list[FoundValue] = []
        for namespace in _namespaces(tx):
            if namespace[: len(prefix)] == prefix:
                with self._entries(tx, namespace) as entries:
                    live = [one for one in entries.values() if one.is_live(at)]
                found += [FoundValue(namespace, one) for one in live if is_found(one.value, wanted)]
        found.sort(key=lambda one: one.entry.updated_at, reverse=True)
        if op.query and self._embeddings is not None:
            query = batch.query_vectors[op.query]
            found = [msgspec.structs.replace(one, score=score(query, one.entry.vectors)) for one in found]
            found.sort(key=lambda one: -2.0 if one.score is None else one.score, reverse=True)
        return found[op.offset : op.offset + op.limit]

    @contextmanager
    def _entries(self, tx: Transaction, namespace: Namespace) -> "Iterator[dict[str, StoredValue]]":
        session = find(tx, channel_of(ADAPTER, name_of(namespace)))
        if session is None:
            yield {}
            return
        with self._namespaces.get(name_of(namespace)).state() as fold:
            fold.catch_up(tx, session)
            yield fold.entries

    def _changes(self, batch: StoreBatch, touched: "Touched") -> list[NamespaceChange]:
        """In the order of their names, so that processes lock them in the same order."""
        items: dict[Namespace, list[ItemAdded]] = defaultdict(list)
        store = self._namespaces.store
        at, make_id = store.app.clock.now(), store.app.ids.make
        for namespace, keys in touched.items():
            items[namespace].append(touch_item(keys, at=at))
        for (namespace, key), op in batch.puts.items():
            items[namespace].append(self._item(batch, op, at) if op.value is not None else deletion_item(key, at=at))
        kept = {namespace for (namespace, _), op in batch.puts.items() if op.value is not None}
        emptied = {namespace for (namespace, _), op in batch.puts.items() if op.value is None} - kept
        return [
            NamespaceChange(name, make_id(SESSION), items[name], creates=name in kept, deletes=name in emptied)
            for name in sorted(items)
        ]

    def _item(self, batch: StoreBatch, op: Any, at: int) -> ItemAdded:
        vectors = [batch.vectors[text] for text in batch.texts.get((op.namespace, op.key), ())]
        return put_item(op.key, op.value, vectors, ttl=op.ttl, at=at)

    def _write(self, changes: Sequence[NamespaceChange]) -> Future[None]:
        app = self._namespaces.store.app
        return self._namespaces.store.database.submit_write(
            self._write_all, changes, app.ids.make(SESSION), at=app.clock.now()
        )

    def _write_all(self, tx: Transaction, changes: Sequence[NamespaceChange], root_id: str, *, at: int) -> None:
        for change in changes:
            channel = channel_of(ADAPTER, name_of(change.namespace))
            session = find(tx, channel)
            if session is None:
                if not change.creates:
                    continue
                root, _ = sessions.create_for_channel(tx, root_id, OPENED, at=at)
                opened = SessionOpened(source="library", channel=channel, side_of=root.id)
                session, _ = sessions.create_for_channel(tx, change.new_id, opened, at=at)
            session = append_shared(tx, session, change.items, at=at)
            if change.deletes:
                self._trash_if_empty(tx, change.namespace, session, at=at)

    def _trash_if_empty(self, tx: Transaction, namespace: Namespace, session: Session, *, at: int) -> None:
        with self._namespaces.get(name_of(namespace)).state() as fold:
            fold.catch_up(tx, session)
            is_empty = not fold.entries
        if is_empty:
            append_shared(tx, session, [EMPTIED], at=at)


class FoundValue(msgspec.Struct, frozen=True):
    namespace: Namespace
    entry: StoredValue
    score: float | None = None


Touched = dict[Namespace, list[str]]


def _namespaces(tx: Transaction) -> list[Namespace]:
    found = [namespace_of(one.channel) for one in aliases.list_channels(tx, PREFIX) if one.channel != OPENED.channel]
    return sorted(found)


def _list_namespaces(tx: Transaction, op: Any) -> list[Namespace]:
    conditions = op.match_conditions or ()
    found = {
        namespace[: op.max_depth]
        for namespace in _namespaces(tx)
        if all(is_labelled(namespace, one.path, at_end=one.match_type == "suffix") for one in conditions)
    }
    return sorted(found)[op.offset : op.offset + op.limit]


def _results(op: Any, found: list[FoundValue]) -> Any:
    if isinstance(op, SearchOp):
        return [SearchItem(**_fields(one), score=one.score) for one in found]
    return Item(**_fields(found[0])) if found else None


def _fields(one: FoundValue) -> dict[str, Any]:
    return {
        "namespace": one.namespace,
        "key": one.entry.key,
        "value": deepcopy(one.entry.value),
        "created_at": datetime.fromtimestamp(one.entry.created_at / 1_000_000, UTC),
        "updated_at": datetime.fromtimestamp(one.entry.updated_at / 1_000_000, UTC),
    }
