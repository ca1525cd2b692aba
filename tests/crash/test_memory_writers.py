"""Several processes save facts in one store, and half of them are killed: each acknowledged fact is there exactly once."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

from holdfast.store.repos import memory
from holdfast.store.repos.memory import FactFilter
from tests import sampling
from tests.contract.store_urls import KINDS, new_place, open_place

pytestmark = [pytest.mark.crash, pytest.mark.timeout(sampling.limit(2))]
ROOT = Path(__file__).parents[2]
PROCESSES = 6
FACTS = 40


async def write_facts(address: str, kill_after: int | None) -> list[str]:
    """Run a writer, and kill it once it has acknowledged so many facts; returns what it acknowledged."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.crash.memory_writer", address, str(FACTS)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    lines: list[str] = []
    async for line in process.stdout:
        lines.append(line.decode().strip())
        if len(lines) == kill_after:
            process.kill()
    await process.wait()
    assert kill_after is not None or len(lines) == FACTS
    return lines


@pytest.mark.parametrize("kind", KINDS)
async def test_promise_1_an_acknowledged_fact_survives_concurrent_writers_and_kills(kind: str, tmp_path: Path) -> None:
    address = new_place(kind, tmp_path, migrated=True)
    chance = random.Random(7)
    deaths = [chance.randrange(1, FACTS) if n % 2 else None for n in range(PROCESSES)]

    acknowledged = [
        line for lines in await asyncio.gather(*(write_facts(address, n) for n in deaths)) for line in lines
    ]

    database = await open_place(address)
    found = await database.read(lambda tx: list(memory.iterate(tx, FactFilter(history=True))))
    await database.close()
    stored = [f"{fact.number} {fact.text}" for fact in found]
    assert len(set(acknowledged)) == len(acknowledged)
    assert set(acknowledged) <= set(stored)
    assert len({fact.text for fact in found}) == len(found), "no fact is there twice"
    assert sorted(fact.number for fact in found) == list(range(1, len(found) + 1))
    assert len(found) <= len(acknowledged) + PROCESSES // 2, "a killed writer has at most one that it did not report"
