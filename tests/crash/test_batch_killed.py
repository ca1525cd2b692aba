"""A batch that is killed again and again, at any moment: each prompt is played once and has one line in the end."""

import asyncio
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from holdfast.engine.census import take_census
from holdfast.model.event import Ended, ModelSaid, TurnEnded, UserSaid
from holdfast.model.message import text_of
from holdfast.store import log, sessions
from holdfast.store.sqlite import open_sqlite
from holdfast.store.verify import verify
from tests.crash.effort import ROUNDS, limit
from tests.crash.programs import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(limit(5))]
PROMPTS = max(300, ROUNDS * 10)
KILLS = max(5, ROUNDS // 20)
SCRIPT = {"steps": [{"say": "All is well, and all will be well.", "delay_seconds": 0.002}], "loop": True}


def start(folder: Path) -> "subprocess.Popen[bytes]":
    env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    env |= {"HOME": str(folder), "HOLDFAST_HOME": str(folder / "home"), "HOLDFAST_MODEL": f"scripted:{folder}/s.json"}
    line = [sys.executable, "-m", "holdfast", "batch", "p.jsonl", "--workers", "6", "--out", "out.jsonl", "--json"]
    return subprocess.Popen(line, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def lines(folder: Path) -> list[bytes]:
    """What is whole in the file of results."""
    try:
        found = (folder / "out.jsonl").read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [line for line in found if line.endswith(b"\n")]


def kill_at(folder: Path, count: int) -> None:
    """Let it play until there are more results than that."""
    with start(folder) as process:
        try:
            wait_until(lambda: process.poll() is not None or len(lines(folder)) > count, "results come")
            assert process.poll() is None, "it is killed before it is done"
        finally:
            process.kill()


def test_promise_1_a_batch_killed_at_any_moment_plays_each_prompt_once(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(SCRIPT))
    asked = [{"prompt": f"Number {number}", "id": f"n{number}"} for number in range(PROMPTS)]
    (tmp_path / "p.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in asked))
    chance = random.Random(PROMPTS)
    seen: set[bytes] = set()
    for kill in range(1, KILLS + 1):
        wanted = kill * PROMPTS // (KILLS + 1) - chance.randrange(PROMPTS // (KILLS + 1))
        kill_at(tmp_path, wanted)
        seen.update(lines(tmp_path))
        with (tmp_path / "out.jsonl").open("ab") as out:
            out.write(b'{"line": 5, "ba')  # what a power cut may leave
    with start(tmp_path) as last:
        said, complaints = last.communicate()

    assert last.returncode == 0, complaints
    assert json.loads(said)["finished_before"] > 0
    results = lines(tmp_path)
    assert [json.loads(line)["line"] for line in results] == list(range(1, PROMPTS + 1))
    assert seen <= set(results), "what was finished stayed as it was"
    assert {json.loads(line)["status"] for line in results} == {"done"}
    asyncio.run(check(tmp_path, {json.loads(line)["session_id"]: json.loads(line)["id"] for line in results}))


async def check(folder: Path, names: dict[str, str]) -> None:
    """Each prompt has one session, was said once, answered whole once, and has ended as complete."""
    database = await open_sqlite(folder / "home" / "holdfast.db")
    try:
        counts = await database.read(sessions.stats)
        assert (await verify(database, None)).ok
        for session_id, name in names.items():
            session = await database.read(sessions.get, session_id)
            events = [entry.event for entry in await database.read(log.read_whole, session)]
            [said] = [event for event in events if isinstance(event, UserSaid)]
            assert f"n{text_of(said.parts).removeprefix('Number ')}" == name
            assert len([event for event in events if isinstance(event, ModelSaid) and not event.partial]) == 1
            assert [event.outcome for event in events if isinstance(event, TurnEnded)] == ["done"]
            assert isinstance(events[-1], Ended)
    finally:
        await database.close()
    census = take_census(counts, [])
    assert (census.total, census.by_reason) == (PROMPTS, Counter(batch_complete=PROMPTS))
