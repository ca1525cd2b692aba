"""A batch that is killed again and again at any moment: each prompt runs once and has one result line."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from holdfast.engine.stats import compute_stats
from holdfast.model.event import Ended, ModelSaid, TurnEnded, UserSaid
from holdfast.model.message import text_of
from holdfast.store.postgres.driver import open_postgres
from holdfast.store.repos import log, session_list, sessions
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.store.verify import verify
from tests.crash.programs import wait_until
from tests.postgres.cluster import cluster
from tests.sampling import ROUNDS, limit

pytestmark = [pytest.mark.crash, pytest.mark.timeout(limit(5))]
PROMPTS = max(300, ROUNDS * 10)
KILLS = max(5, ROUNDS // 20)
SCRIPT = {"steps": [{"say": "All is well, and all will be well.", "delay_seconds": 0.01}], "loop": True}


def start(folder: Path, out: str = "out.jsonl") -> "subprocess.Popen[bytes]":
    line = ["batch", "p.jsonl", "--workers", "6", "--out", out, "--json"]
    return holdfast(folder, *line)


def holdfast(folder: Path, *line: str) -> "subprocess.Popen[bytes]":
    env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    env |= {"HOME": str(folder), "HOLDFAST_HOME": str(folder / "home"), "HOLDFAST_MODEL": f"scripted:{folder}/s.json"}
    whole = [sys.executable, "-m", "holdfast", *line]
    return subprocess.Popen(whole, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def set_up(folder: Path, count: int) -> None:
    (folder / "s.json").write_text(json.dumps(SCRIPT))
    asked = [{"prompt": f"Number {number}", "id": f"n{number}"} for number in range(count)]
    (folder / "p.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in asked))


def lines(folder: Path) -> list[bytes]:
    """The complete lines of the results file."""
    try:
        found = (folder / "out.jsonl").read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [line for line in found if line.endswith(b"\n")]


def kill_at(folder: Path, count: int) -> bool:
    """Kill it once there are more results than that; return whether it was still running."""
    with start(folder) as process:
        try:
            wait_until(lambda: process.poll() is not None or len(lines(folder)) > count, "results come")
            return process.poll() is None
        finally:
            process.kill()


def test_promise_1_a_batch_killed_at_any_moment_runs_each_prompt_once(tmp_path: Path) -> None:
    set_up(tmp_path, PROMPTS)
    chance = random.Random(PROMPTS)
    seen: set[bytes] = set()
    killed = 0
    for kill in range(1, KILLS + 1):
        wanted = kill * PROMPTS // (KILLS + 1) - chance.randrange(PROMPTS // (KILLS + 1))
        killed += kill_at(tmp_path, wanted)
        seen.update(lines(tmp_path))
        with (tmp_path / "out.jsonl").open("ab") as out:
            out.write(b'{"line": 5, "ba')  # what a power cut may leave
    with start(tmp_path) as last:
        said, errors = last.communicate()

    assert last.returncode == 0, errors
    assert killed > 0, "it was killed before it was done"
    assert json.loads(said)["finished_before"] > 0
    results = lines(tmp_path)
    assert [json.loads(line)["line"] for line in results] == list(range(1, PROMPTS + 1))
    assert seen <= set(results), "finished results stay unchanged"
    assert {json.loads(line)["status"] for line in results} == {"done"}
    asyncio.run(check(tmp_path, names(results)))


def test_an_interrupted_batch_says_so_and_the_next_run_continues(tmp_path: Path) -> None:
    set_up(tmp_path, 200)
    with start(tmp_path) as process:
        wait_until(lambda: len(lines(tmp_path)) > 20, "results come")
        os.kill(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(said)["interrupted"]
    finished = lines(tmp_path)
    with start(tmp_path) as process:
        said, errors = process.communicate(timeout=60)

    assert process.returncode == 0, errors
    assert json.loads(said)["finished_before"] >= len(finished)
    assert set(finished) <= set(lines(tmp_path))
    asyncio.run(check(tmp_path, names(lines(tmp_path))))


def test_two_batches_on_one_store_share_the_work(tmp_path: Path) -> None:
    set_up(tmp_path, 200)
    with start(tmp_path) as one, start(tmp_path, "other.jsonl") as other:
        for process in (one, other):
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors

    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "other.jsonl").read_bytes()
    asyncio.run(check(tmp_path, names(lines(tmp_path))))


def test_any_worker_finishes_the_turns_of_a_killed_batch(tmp_path: Path) -> None:
    set_up(tmp_path, 200)
    kill_at(tmp_path, 20)
    with holdfast(tmp_path, "janitor", "--once") as janitor:
        assert janitor.wait(60) == 0
    with holdfast(tmp_path, "sessions", "stats", "--json") as stats:
        said, _ = stats.communicate(timeout=60)
    stats = json.loads(said)
    assert stats["leaked"] == 0
    assert stats["open"] == 0
    with start(tmp_path) as process:
        said, errors = process.communicate(timeout=60)

    assert process.returncode == 0, errors
    assert json.loads(said)["finished_before"] == stats["total"]
    asyncio.run(check(tmp_path, names(lines(tmp_path))))


def test_a_killed_batch_continues_on_postgresql(tmp_path: Path) -> None:
    set_up(tmp_path, 100)
    url = cluster().new_database()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(f'store = "{url}"\n')
    for count in (10, 60):
        kill_at(tmp_path, count)
    with start(tmp_path) as process:
        said, errors = process.communicate(timeout=120)

    assert process.returncode == 0, errors
    assert json.loads(said)["finished_before"] >= 60
    asyncio.run(check(tmp_path, names(lines(tmp_path)), url))


def test_a_prompt_that_crashes_every_worker_is_quarantined_and_can_be_retried(tmp_path: Path) -> None:
    set_up(tmp_path, 1)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text('[agent]\napprovals = "allow"\n')
    mark = tmp_path / "kill-me"
    kill = {"name": "terminal", "arguments": {"command": f"touch {mark}; sleep 30"}}
    (tmp_path / "s.json").write_text(json.dumps({"steps": [{"call": [kill]}], "loop": True}))
    for _ in range(3):
        with start(tmp_path) as process:
            wait_until(mark.exists, "its tool runs")
            process.kill()
        mark.unlink()
    with start(tmp_path) as process:
        said, _ = process.communicate(timeout=60)
    [failure] = json.loads(said)["failures"]
    assert process.returncode == 1
    assert failure["error"]["code"] == "quarantined"
    assert json.loads(lines(tmp_path)[0])["status"] == "failed"

    (tmp_path / "s.json").write_text(json.dumps(SCRIPT))
    with holdfast(tmp_path, "batch", "p.jsonl", "--out", "out.jsonl", "--retry-failed") as process:
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 0, errors
    assert [json.loads(line)["status"] for line in lines(tmp_path)][-1] == "done"


def names(results: list[bytes]) -> dict[str, str]:
    """The id of each prompt, by its session."""
    return {json.loads(line)["session_id"]: json.loads(line)["id"] for line in results}


async def check(folder: Path, names: dict[str, str], url: str = "") -> None:
    """Check that each prompt has one session, one message and one complete reply, and ended as complete."""
    database = await (open_postgres(url) if url else open_sqlite(folder / "home" / "holdfast.db"))
    try:
        counts = await database.read(session_list.count_by_kind)
        assert (await verify(database, None)).ok
        for session_id, name in names.items():
            session = await database.read(sessions.get, session_id)
            events = [entry.event for entry in await database.read(log.read_complete, session)]
            [said] = [event for event in events if isinstance(event, UserSaid)]
            assert f"n{text_of(said.parts).removeprefix('Number ')}" == name
            assert len([event for event in events if isinstance(event, ModelSaid) and not event.partial]) == 1
            assert [event.outcome for event in events if isinstance(event, TurnEnded)] == ["done"]
            assert isinstance(events[-1], Ended)
    finally:
        await database.close()
    stats = compute_stats(counts, [])
    assert (stats.total, stats.by_reason) == (len(names), Counter(batch_complete=len(names)))
