"""/memory: each person sees and changes only her own facts, and every message says what to do."""

import json

import pytest

from holdfast.model.memory.fact import MemoryScope, NewFact
from holdfast.model.memory.owner import LOCAL_OWNER, MemoryPlace
from holdfast.slash.registry import run
from holdfast.store.repos import memory
from tests.slash.conftest import TestContext


async def save(context: TestContext, text: str, owner: str = LOCAL_OWNER, scope: MemoryScope = "user") -> None:
    new = NewFact(place=MemoryPlace(owner, "/srv/p"), scope=scope, text=text, author="somebody")
    await context.engine.services.database.write(memory.add, new, seq=0, at=1)


async def test_facts_are_added_listed_searched_corrected_and_forgotten(context: TestContext) -> None:
    await run(context, "/memory")
    assert context.last == "No facts yet. Ask the model to remember something."
    await run(context, "/memory add I like   tea")
    assert context.last == "Saved as fact-1."
    await run(context, "/memory add 我喜欢喝乌龙茶")
    await run(context, "/memory")
    assert [line.split("  [")[0] for line in context.last.splitlines()] == [
        "fact-2  我喜欢喝乌龙茶",
        "fact-1  I like tea",
    ]
    await run(context, "/memory 乌龙茶")
    assert context.last.startswith("fact-2  ")
    assert len(context.last.splitlines()) == 1
    await run(context, "/memory correct fact-1 I like coffee")
    assert context.last == "fact-3 replaces fact-1."
    await run(context, "/memory correct 1 I like milk")
    assert "fact-3 is the newer version" in context.last
    await run(context, "/memory show 1")
    assert "corrected by fact-3" in context.last.splitlines()[0]
    assert "I like coffee" in context.last.splitlines()[1]
    await run(context, "/memory export")
    assert [json.loads(line)["text"] for line in context.last.splitlines()] == ["我喜欢喝乌龙茶", "I like coffee"]
    await run(context, "/memory forget 3")
    assert context.last.startswith("Forgot fact-3 (2 versions).")
    await run(context, "/memory show 1")
    assert "coffee" not in context.last
    assert "forgotten" in context.last
    await run(context, "/memory coffee tea milk")
    assert context.last.startswith("No fact matches")


async def test_a_person_sees_and_changes_only_her_own(context: TestContext) -> None:
    await save(context, "Ann's secret", "telegram:1")
    await save(context, "Ann's project", "telegram:1", "project")
    await save(context, "For all", scope="global")
    context.memory_owner = "telegram:2"

    await run(context, "/memory")
    assert "Ann" not in context.last
    assert "For all" in context.last
    for line in ("show 1", "correct 1 x", "forget 1", "forget 2"):
        await run(context, f"/memory {line}")
        assert context.last.startswith("! there is no fact-"), line
    for line in ("correct 3 x", "forget 3"):
        await run(context, f"/memory {line}")
        assert "only the owner of this installation can change it" in context.last, line
    await run(context, "/memory secret")
    assert context.last.startswith("No fact matches")
    await run(context, "/memory export")
    assert "Ann" not in context.last
    context.memory_owner = "telegram:1"
    await run(context, "/memory secret")
    assert "Ann's secret" in context.last


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/memory show", "use /memory show ID"),
        ("/memory correct 1", "the fact has no text"),
        ("/memory forget the first", "there is no fact 'the first'"),
        ("/memory forget 99", "there is no fact-99"),
        (f"/memory add {'x' * 1001}", "at most 1,000 are allowed"),
    ],
)
async def test_wrong_input_is_answered_with_what_to_do(context: TestContext, line: str, expected: str) -> None:
    await save(context, "A fact")

    await run(context, line)

    assert expected in context.last


async def test_it_is_off_where_others_read_along(context: TestContext) -> None:
    context.memory_owner = ""
    for line in ("/memory", "/memory add x", "/memory forget 1"):
        await run(context, line)
        assert "memory is off in this chat" in context.last
