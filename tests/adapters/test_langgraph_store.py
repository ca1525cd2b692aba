"""HoldfastStore for LangGraph: durable, shared by processes, found by filters and by meaning; items that expire."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from holdfast.adapters.langgraph import HoldfastStore
from holdfast.adapters.langgraph.namespace import (
    ADAPTER,
    MINUTE,
    NamespaceFold,
    deletion_item,
    put_item,
    touch_item,
)
from holdfast.adapters.shared_store import close_stores, shared_store
from holdfast.model.errors import Invalid
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions
from tests.adapters.agent_kills import KILLED, AgentForks
from tests.adapters.programs.langgraph_memory import NAMESPACE
from tests.sampling import limit

pytestmark = [pytest.mark.process, pytest.mark.clients, pytest.mark.timeout(120)]
WORDS = ("sea", "wind", "bread")


class Words(Embeddings):
    """Counts a few words."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[1.0 + text.count(word) * 9 for word in WORDS] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


INDEX: Any = {"dims": len(WORDS), "embed": Words(), "fields": ["text"]}


def call(work: Callable[[Transaction], Any], url: str) -> Any:
    return shared_store(url).database.submit_read(work).result()


async def test_values_come_back_in_another_process_for_both_kinds_of_callers(each_url: str) -> None:
    value = {"text": "häl\0lo \ud800", "deep": [{"n": 10**30, "f": 1e-300, "x": None}]}
    with HoldfastStore.from_url(each_url) as store:
        store.put(NAMESPACE, "a/b:c", {"text": "before"})
        first = store.get(NAMESPACE, "a/b:c")
        store.put(NAMESPACE, "a/b:c", value)
    close_stores()
    async with HoldfastStore.from_url(each_url) as store:
        found = await store.aget(NAMESPACE, "a/b:c")
        await store.aput(("ä/%", "*"), "k", {})

        assert first is not None
        assert found is not None
        assert (found.namespace, found.key, found.value) == (NAMESPACE, "a/b:c", value)
        assert found.created_at == first.created_at < found.updated_at
        assert await store.alist_namespaces() == [NAMESPACE, ("ä/%", "*")]
        found.value.clear()
        assert (await store.asearch(NAMESPACE))[0].value == value


def test_filters_work_as_those_of_the_framework(url: str) -> None:
    values: list[dict[str, Any]] = [
        {"n": 1, "kind": "a"},
        {"n": 2.5, "kind": "b", "deep": {"x": [1, 2]}},
        {"n": 3, "kind": None},
    ]
    ours, theirs = HoldfastStore(url), InMemoryStore()
    for store in (ours, theirs):
        for number, value in enumerate(values):
            store.put(("f", str(number)), "k", value)

    def found(store: Any, wanted: dict[str, Any]) -> list[Any]:
        return sorted(one.value["n"] for one in store.search(("f",), filter=wanted))

    filters: list[dict[str, Any]] = [
        {},
        {"kind": "a"},
        {"kind": None},
        {"n": {"$gt": 1, "$lte": 3}},
        {"n": {"$gte": 2.5}, "kind": {"$ne": "b"}},
        {"n": {"$lt": 1}},
        {"deep": {"x": [1, 2]}},
        {"deep": {"x": [1, {"$gt": 1}]}},
        {"missing": {"$eq": None}},
    ]
    for wanted in filters:
        assert found(ours, wanted) == found(theirs, wanted), wanted
    for store in (ours, theirs):
        with pytest.raises(ValueError, match=r"Unsupported operator: \$like"):
            store.search(("f",), filter={"kind": {"$like": "a"}})  # type: ignore[attr-defined]


async def test_texts_are_found_by_meaning_also_after_a_restart(each_url: str) -> None:
    store = HoldfastStore(each_url, index=INDEX)
    await store.aput(NAMESPACE, "storm", {"text": "calm"})
    store.batch(
        [
            PutOp(NAMESPACE, "coast", {"text": "the sea and the sea"}),
            PutOp(NAMESPACE, "storm", {"text": "wind"}),
            PutOp(NAMESPACE, "hidden", {"text": "sea sea sea"}, index=False),
            PutOp(NAMESPACE, "other", {"note": "bread"}, index=["note"]),
        ]
    )
    close_stores()
    again = HoldfastStore(each_url, index=INDEX)

    assert again.search(NAMESPACE, query="sea")[0].key == "coast"
    assert again.search(NAMESPACE, query="bread")[0].key == "other"
    last = again.search(NAMESPACE, query="wind")[-1]
    assert (last.key, last.score) == ("hidden", None)
    scores = [one.score or 0.0 for one in again.search(NAMESPACE, query="wind", limit=3)]
    assert scores == sorted(scores, reverse=True)
    assert 0.99 < scores[0] <= 1.001


def test_a_batch_is_stored_completely_or_not_at_all_and_reads_see_what_was_before(each_url: str) -> None:
    store = HoldfastStore(each_url)
    results = store.batch(
        [PutOp(("b",), "k", {"n": 1}), GetOp(("b",), "k"), PutOp(("a",), "k", {"n": 2}), PutOp(("b",), "k", {"n": 3})]
    )
    with pytest.raises(Invalid, match="langgraph-store is not JSON"):
        store.batch([PutOp(("b",), "k", {"n": 4}), PutOp(("c",), "k", {"n": float("nan")})])

    assert results == [None] * 4
    assert sorted(one.value["n"] for one in store.search(())) == [2, 3]
    assert store.list_namespaces() == [("a",), ("b",)]


def test_deleted_items_are_gone_and_an_empty_namespace_too(each_url: str) -> None:
    store = HoldfastStore(each_url)
    for key in ("one", "two"):
        store.put(NAMESPACE, key, {"n": 1})
    store.delete(NAMESPACE, "one")
    store.delete(("unknown",), "one")

    assert [one.key for one in store.search(())] == ["two"]
    store.delete(NAMESPACE, "two")
    assert store.list_namespaces() == store.search(()) == []
    store.put(NAMESPACE, "two", {"n": 2})
    assert [one.value for one in store.search(())] == [{"n": 2}]


def test_namespaces_belong_to_one_session_of_the_lists(url: str) -> None:
    store = HoldfastStore(url)
    store.put(NAMESPACE, "k", {"n": 1})
    store.put(NAMESPACE, "k", {"n": 2})

    def read(tx: Transaction) -> Any:
        session = sessions.resolve(tx, f"{ADAPTER}:memories/bo").session
        root = sessions.resolve(tx, f"{ADAPTER}:/").session
        return session.summary.side_of == root.id, root.summary.title, len(log.read_complete(tx, session))

    assert call(read, url) == (True, "Store of LangGraph", 3)


def test_a_large_value_is_kept(url: str) -> None:
    store = HoldfastStore(url)
    store.put(NAMESPACE, "k", {"x": "x" * 20_000_000})
    close_stores()
    found = HoldfastStore(url).get(NAMESPACE, "k")

    assert found is not None
    assert len(found.value["x"]) == 20_000_000


# Items that expire.


def test_an_expired_item_is_not_returned(url: str) -> None:
    store = HoldfastStore(url, ttl={"default_ttl": 60})
    store.put(NAMESPACE, "short", {"n": 1}, ttl=1e-9)
    store.put(NAMESPACE, "long", {"n": 2})

    assert store.get(NAMESPACE, "short") is None
    assert [one.key for one in store.search(NAMESPACE)] == ["long"]
    [found] = store.batch([SearchOp(NAMESPACE, refresh_ttl=False)])
    assert [one.key for one in found] == ["long"]


def test_a_read_extends_the_life_of_an_item_but_not_each_time_with_a_write() -> None:
    fold = NamespaceFold()
    fold.apply(1, put_item("k", {"n": 1}, [], ttl=100.0, at=0))
    entry = fold.entries["k"]

    assert not entry.needs_touch(MINUTE - 1)
    assert entry.needs_touch(MINUTE)
    assert not entry.is_live(100 * MINUTE)
    fold.apply(2, touch_item(["k", "unknown"], at=50 * MINUTE))
    assert entry.is_live(149 * MINUTE)
    assert not entry.is_live(150 * MINUTE)
    fold.apply(3, deletion_item("k", at=60 * MINUTE))
    assert fold.entries == {}


def test_a_read_of_an_item_with_a_life_is_recorded(url: str) -> None:
    store = HoldfastStore(url)
    store.put(NAMESPACE, "k", {"n": 1}, ttl=0.5)
    for _ in range(3000):
        store.get(NAMESPACE, "k")
        session = call(lambda tx: sessions.resolve(tx, f"{ADAPTER}:memories/bo").session, url)
        if session.seq > 2:
            break

    assert session.seq == 3


# Other processes.


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(limit(2))
def test_promise_1_every_value_of_killed_processes_is_there(each_url: str) -> None:
    first = {"one": 0, "two": 0}
    with AgentForks("langgraph_memory") as one, AgentForks("langgraph_memory") as two:
        for _ in range(KILLED):
            started = {"one": one, "two": two}
            for name, agents in started.items():
                agents.start(each_url, name, first[name])
            acknowledged = {name: max(agents.kill()) for name, agents in started.items()}
            store = HoldfastStore(each_url)
            keys = {one.key: one.value["n"] for one in store.search(NAMESPACE, limit=10**6)}
            for name in started:
                mine = [keys[key] for key in sorted(keys, key=lambda key: keys[key]) if key.startswith(name)]
                assert mine == list(range(len(mine)))
                counter = store.get(("counters",), name)
                assert counter is not None
                assert acknowledged[name] <= counter.value["n"] < len(mine)
                first[name] = len(mine)
            close_stores()
