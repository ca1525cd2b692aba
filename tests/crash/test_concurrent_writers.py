"""Several real processes write to one file at once, and some of them are killed."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from holdfast.model.event import UserSaid
from holdfast.model.ids import SESSION, Ids
from holdfast.torture.invariants import user_texts
from holdfast.torture.programs import writer
from holdfast.torture.result import TrialContext, TrialResult
from holdfast.torture.scratch_store import DEFAULT_OPENER
from holdfast.torture.subprocesses import ChildProcess, start_program
from holdfast.torture.trials.kill_storm import SHARED, check_messages, run_storm, stop_writers
from tests import sampling
from tests.crash.verification import Logs, verify
from tests.crash.writer import DATABASE

pytestmark = [pytest.mark.crash, pytest.mark.timeout(sampling.limit(8))]

PROCESSES = 8


@pytest.fixture
def trial(tmp_path: Path) -> TrialContext:
    url = f"sqlite:///{tmp_path / DATABASE}"
    return TrialContext(url, DEFAULT_OPENER, tmp_path, random.Random(sampling.KILLS), sampling.KILLS)


@pytest.mark.parametrize("processes", [2, PROCESSES])
async def test_concurrent_writers_lose_double_and_reorder_nothing(
    processes: int, trial: TrialContext, ids: Ids
) -> None:
    shared = [ids.make(SESSION) for _ in range(SHARED)]
    async with AsyncExitStack() as stack:
        parameters = trial.parameters(shared=shared)
        started = [await stack.enter_async_context(start_program(writer, parameters)) for _ in range(processes)]
        await asyncio.sleep(sampling.SECONDS)
        await stop_writers(started)

    logs = await verified_logs(trial, started, under_way=0)
    assert min(len(writers(logs[session_id])) for session_id in shared) > 1, "no two processes wrote to one session"


async def test_a_storm_of_kills_loses_nothing_and_dead_workers_write_nothing(trial: TrialContext) -> None:
    result = TrialResult("storm")

    started = await run_storm(trial, result, PROCESSES)

    assert result.tried == {"kills": sampling.KILLS}
    late = Counter(line["late"] for child in started for line in child.lines if "late" in line)
    assert late.keys() == {"refused"}
    assert late.total() >= sampling.KILLS
    await verified_logs(trial, started, under_way=(SHARED + 1) * sampling.KILLS)


async def verified_logs(trial: TrialContext, started: list[ChildProcess], *, under_way: int) -> Logs:
    """Verify the store, and check that it holds every acknowledged message once and at most `under_way` others."""
    lines = [line for child in started for line in child.lines]
    heads = [tuple(line["head"]) for line in lines if "head" in line]
    logs, _ = await asyncio.to_thread(verify, trial.folder / DATABASE, heads)
    result = TrialResult("messages")
    check_messages(logs, lines, result)
    assert result.findings == []
    assert [child.stderr for child in started] == [""] * len(started)
    assert len(heads) <= sum(len(user_texts(entries)) for entries in logs.values()) <= len(heads) + under_way
    return logs


def writers(entries: Iterable[object]) -> set[str]:
    return {entry.event.turn_id for entry in entries if isinstance(entry.event, UserSaid)}  # type: ignore[attr-defined]
