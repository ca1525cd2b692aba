"""Remembered facts: append-only, superseded, forgotten, apart by owner, and lost by no concurrent writer."""

import asyncio

import pytest

from holdfast.model.errors import Conflict, Invalid, NotFound
from holdfast.model.memory.fact import (
    MAX_FACT,
    MAX_FACTS,
    MAX_PER_TURN,
    MAX_VERSIONS,
    MODEL,
    Fact,
    MemoryScope,
    NewFact,
)
from holdfast.model.memory.owner import LOCAL_OWNER, MemoryPlace
from holdfast.store.database import Database
from holdfast.store.repos import memory
from holdfast.store.repos.memory import FactFilter

ANN = MemoryPlace("telegram:1", "/srv/ann")
BEN = MemoryPlace("telegram:2", "/srv/ann")
EVERYTHING = FactFilter(history=True)


def new(
    text: str, place: MemoryPlace = ANN, scope: MemoryScope = "user", replaces: int | None = None, call: str = ""
) -> NewFact:
    return NewFact(
        place=place,
        scope=scope,
        text=text,
        author=MODEL if call else "Ann",
        replaces=replaces,
        session_id="hf-1" if call else "",
        turn_id="turn-1" if call else "",
        call_id=call,
        sources=("read_file",) if call else (),
    )


async def add(database: Database, fact: NewFact, at: int = 1) -> Fact:
    return await database.write(memory.add, fact, seq=7 if fact.call_id else 0, at=at)


async def visible(database: Database, place: MemoryPlace = ANN) -> list[str]:
    return [fact.text for fact in await database.read(memory.list_visible, place)]


async def test_a_fact_cites_the_call_that_saved_it(database: Database) -> None:
    saved = await add(database, new("likes  tea,\n Grüße 茶 \udc80", call="call-1"), at=5)

    found = await database.read(memory.get_by_call, "hf-1", "turn-1", "call-1")
    assert found == saved
    assert (saved.id, saved.text, saved.at) == ("fact-1", "likes tea, Grüße 茶", 5)
    assert (saved.session_id, saved.seq, saved.sources, saved.state) == ("hf-1", 7, ("read_file",), "current")


async def test_a_place_has_only_the_facts_of_its_owner_and_project_and_those_of_everybody(database: Database) -> None:
    local = MemoryPlace(LOCAL_OWNER, "/srv/ann")
    await add(database, new("of Ann"))
    await add(database, new("of Ann in the project", scope="project"))
    await add(database, new("of Ben", BEN))
    await add(database, new("of Ben in the project", BEN, "project"))
    await add(database, new("of the owner", local))
    await add(database, new("of everybody", local, "global"))

    assert await visible(database) == ["of Ann", "of Ann in the project", "of everybody"]
    assert await visible(database, BEN) == ["of Ben", "of Ben in the project", "of everybody"]
    assert await visible(database, local) == ["of the owner", "of everybody"]
    assert await visible(database, MemoryPlace("telegram:1", "/srv/other")) == ["of Ann", "of everybody"]
    assert await visible(database, MemoryPlace("telegram:1")) == ["of Ann", "of everybody"]
    listed = await database.read(memory.list_page, FactFilter(owner="telegram:2"), limit=10)
    assert [fact.text for fact in listed] == ["of everybody", "of Ben in the project", "of Ben"]
    found = await database.read(memory.search, FactFilter(owner="telegram:2"), "project of Ann", limit=10)
    assert {fact.owner for fact in found} <= {"telegram:2", ""}


async def test_a_correction_supersedes_and_nothing_is_overwritten(database: Database) -> None:
    first = await add(database, new("likes tea"))
    second = await add(database, new("likes coffee", replaces=first.number))
    third = await database.write(memory.correct, second.number, "likes mate", by="Ann", at=9)

    versions = await database.read(memory.list_versions, first.number)
    assert [(one.text, one.state, one.replaced_by) for one in versions] == [
        ("likes tea", "superseded", second.number),
        ("likes coffee", "superseded", third.number),
        ("likes mate", "current", None),
    ]
    assert await visible(database) == ["likes mate"]
    with pytest.raises(Conflict, match=f"fact-{third.number} is the newer version"):
        await add(database, new("likes water", replaces=second.number))
    with pytest.raises(NotFound, match="no fact-3 in this memory"):
        await add(database, new("likes water", BEN, replaces=third.number))
    assert await visible(database) == ["likes mate"]


async def test_forgetting_removes_the_text_of_every_version_and_keeps_who_did_it(database: Database) -> None:
    first = await add(database, new("lives at 1 Secret Street", call="call-1"))
    second = await add(database, new("lives at 2 Secret Street", replaces=first.number))

    assert await database.write(memory.forget, first.number, by="Ann", at=8) == 2

    found = await database.read(lambda tx: list(memory.iterate(tx, EVERYTHING)))
    assert [(one.id, one.text, one.sources, one.forgotten_by, one.forgotten_at) for one in found] == [
        (second.id, "", (), "Ann", 8),
        (first.id, "", (), "Ann", 8),
    ]
    assert (found[1].session_id, found[1].seq) == ("hf-1", 7)
    assert await visible(database) == []
    assert await database.read(memory.search, EVERYTHING, "Secret Street", limit=10) == []
    for number in (first.number, second.number, 99):
        with pytest.raises(NotFound):
            await database.write(memory.forget, number, by="Ben", at=9)
        with pytest.raises(NotFound):
            await database.write(memory.correct, number, "x", by="Ben", at=9)


async def test_the_same_fact_is_kept_once(database: Database) -> None:
    first = await add(database, new("likes tea"))

    assert (await add(database, new(" likes\ttea "))).number == first.number
    assert (await add(database, new("likes tea", BEN))).number != first.number
    assert (await add(database, new("likes tea", scope="project"))).number != first.number


async def test_a_correction_to_what_another_fact_says_leaves_that_one(database: Database) -> None:
    tea, coffee = await add(database, new("likes tea")), await add(database, new("likes coffee"))

    assert await database.write(memory.correct, coffee.number, "likes coffee", by="Ann", at=2) == coffee
    assert await visible(database) == ["likes tea", "likes coffee"]
    assert await database.write(memory.correct, coffee.number, "likes tea", by="Ann", at=3) == tea

    assert await visible(database) == ["likes tea"]
    [before] = await database.read(memory.list_versions, coffee.number)
    assert (before.text, before.replaced_by) == ("likes coffee", tea.number)
    assert await add(database, new("likes tea", replaces=coffee.number)) == tea, "the call was repeated after a crash"
    with pytest.raises(Conflict, match=f"{tea.id} is the newer version"):
        await database.write(memory.correct, coffee.number, "likes milk", by="Ann", at=4)


async def test_limits_are_named_and_leave_everything_as_it_was(database: Database) -> None:
    with pytest.raises(Invalid, match=f"1,001 characters, and at most {MAX_FACT:,}"):
        await add(database, new("x" * (MAX_FACT + 1)))
    with pytest.raises(Invalid, match="no text"):
        await add(database, new(" \n"))
    with pytest.raises(Invalid, match="no project here"):
        await add(database, new("x", MemoryPlace("telegram:1"), "project"))

    def fill(tx: object) -> None:
        for number in range(MAX_FACTS):
            memory.add(tx, new(f"full {number}"), seq=0, at=1)  # type: ignore[arg-type]

    await database.write(fill)
    with pytest.raises(Invalid, match=f"scope user has {MAX_FACTS} facts, which is the limit"):
        await add(database, new("one more"))
    await add(database, new("of Ben", BEN))
    await add(database, new("in the project", scope="project"))
    await database.write(memory.correct, 1, "corrections still fit", by="Ann", at=1)
    assert len(await visible(database)) == MAX_FACTS + 1


async def test_a_turn_and_a_chain_of_corrections_are_limited(database: Database) -> None:
    def correct_often(tx: object) -> Fact:
        fact = memory.add(tx, new("version 1"), seq=0, at=1)  # type: ignore[arg-type]
        for number in range(2, MAX_VERSIONS + 1):
            fact = memory.correct(tx, fact.number, f"version {number}", by="Ann", at=1)  # type: ignore[arg-type]
        return fact

    last = await database.write(correct_often)
    with pytest.raises(Invalid, match=f"has {MAX_VERSIONS} versions, which is the limit"):
        await database.write(memory.correct, last.number, "one more", by="Ann", at=1)

    for number in range(MAX_PER_TURN):
        await add(database, new(f"of the turn {number}", call=f"call-{number}"))
    with pytest.raises(Invalid, match=f"has saved {MAX_PER_TURN} facts, which is the limit of a turn"):
        await add(database, new("one more", call="call-more"))
    await add(database, new("written by a person"))


async def test_concurrent_writers_lose_nothing(database: Database, another: Database) -> None:
    stores = (database, another)
    saved = await asyncio.gather(*(add(stores[n % 2], new(f"fact of writer {n}")) for n in range(40)))

    assert sorted(fact.number for fact in saved) == list(range(1, 41))
    assert sorted(await visible(database)) == sorted(f"fact of writer {n}" for n in range(40))


async def test_of_concurrent_corrections_one_wins_and_the_others_are_told(
    database: Database, another: Database
) -> None:
    first = await add(database, new("likes tea"))
    stores = (database, another)

    results = await asyncio.gather(
        *(add(stores[n % 2], new(f"likes {n}", replaces=first.number)) for n in range(8)), return_exceptions=True
    )

    won = [one for one in results if isinstance(one, Fact)]
    assert len(won) == 1
    assert all(isinstance(one, Conflict) for one in results if not isinstance(one, Fact))
    assert await visible(database) == [won[0].text]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Der Nutzer wohnt in der Bahnhofstraße", "BAHNHOFSTRASSE"),
        ("用户喜欢喝乌龙茶", "乌龙茶"),
        ("ユーザーは緑茶が好き", "緑茶"),
        ("사용자는 녹차를 좋아한다", "녹차"),
        ("المستخدم يحب الشاي", "الشاي"),
        ("Пользователь любит чай", "ЧАЙ"),
        ("उपयोगकर्ता को चाय पसंद है", "चाय"),
        ("ผู้ใช้ชอบชาเขียว", "ชาเขียว"),
        ("likes crème brûlée", "cre\u0300me"),
        ("deploys with 🚀 only", "🚀"),
    ],
)
async def test_words_are_found_in_every_script(database: Database, text: str, query: str) -> None:
    await add(database, new("likes something else"))
    expected = await add(database, new(text))

    found = await database.read(memory.search, FactFilter(owner="telegram:1"), query, limit=5)

    assert found[0].number == expected.number


async def test_pages_are_complete(database: Database) -> None:
    def fill(tx: object) -> None:
        for number in range(25):
            memory.add(tx, new(f"number {number}"), seq=0, at=1)  # type: ignore[arg-type]

    await database.write(fill)
    found = await database.read(lambda tx: list(memory.iterate(tx, EVERYTHING, page=10)))

    assert [fact.number for fact in found] == list(range(25, 0, -1))
