"""A batch that is killed again and again, at any moment: each prompt is played once and has one line in the end."""

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

from holdfast.engine.census import take_census
from holdfast.model.event import Ended, ModelSaid, Recovered, TurnEnded, UserSaid
from holdfast.model.message import text_of
from holdfast.store import log, sessions
from holdfast.store.postgres import open_postgres
from holdfast.store.sqlite import open_sqlite
from holdfast.store.verify import verify
from tests.crash.effort import ROUNDS, limit
from tests.crash.programs import wait_until
from tests.postgres.cluster import cluster

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
    """What is whole in the file of results."""
    try:
        found = (folder / "out.jsonl").read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [line for line in found if line.endswith(b"\n")]


def kill_at(folder: Path, count: int) -> bool:
    """Let it play until there are more results than that, and kill it; whether it was still at it."""
    with start(folder) as process:
        try:
            wait_until(lambda: process.poll() is not None or len(lines(folder)) > count, "results come")
            return process.poll() is None
        finally:
            process.kill()


def test_promise_1_a_batch_killed_at_any_moment_plays_each_prompt_once(tmp_path: Path) -> None:
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
        said, complaints = last.communicate()

    assert last.returncode == 0, complaints
    assert killed > 0, "it was killed before it was done"
    assert json.loads(said)["finished_before"] > 0
    results = lines(tmp_path)
    assert [json.loads(line)["line"] for line in results] == list(range(1, PROMPTS + 1))
    assert seen <= set(results), "what was finished stayed as it was"
    assert {json.loads(line)["status"] for line in results} == {"done"}
    asyncio.run(check(tmp_path, names(results)))


def test_a_batch_that_is_interrupted_says_so_and_goes_on_with_the_next_run(tmp_path: Path) -> None:
    set_up(tmp_path, 200)
    with start(tmp_path) as process:
        wait_until(lambda: len(lines(tmp_path)) > 20, "results come")
        os.kill(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(said)["interrupted"]
    finished = lines(tmp_path)
    with start(tmp_path) as process:
        said, complaints = process.communicate(timeout=60)

    assert process.returncode == 0, complaints
    assert json.loads(said)["finished_before"] >= len(finished)
    assert set(finished) <= set(lines(tmp_path))
    asyncio.run(check(tmp_path, names(lines(tmp_path))))


def test_two_batches_on_one_store_share_the_work(tmp_path: Path) -> None:
    set_up(tmp_path, 200)
    with start(tmp_path) as one, start(tmp_path, "other.jsonl") as other:
        for process in (one, other):
            _, complaints = process.communicate(timeout=120)
            assert process.returncode == 0, complaints

    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "other.jsonl").read_bytes()
    asyncio.run(check(tmp_path, names(lines(tmp_path))))


def test_what_a_killed_batch_left_under_way_any_worker_finishes(tmp_path: Path) -> None:
    set_up(tmp_path, 200)
    kill_at(tmp_path, 20)
    with holdfast(tmp_path, "janitor", "--once") as janitor:
        assert janitor.wait(60) == 0
    with holdfast(tmp_path, "sessions", "stats", "--json") as stats:
        said, _ = stats.communicate(timeout=60)
    census = json.loads(said)
    assert census["leaked"] == 0
    assert census["open"] == 0
    with start(tmp_path) as process:
        said, complaints = process.communicate(timeout=60)

    assert process.returncode == 0, complaints
    assert json.loads(said)["finished_before"] == census["total"]
    asyncio.run(check(tmp_path, names(lines(tmp_path))))


def test_on_postgresql_a_killed_batch_goes_on_too(tmp_path: Path) -> None:
    set_up(tmp_path, 100)
    url = cluster().new_database()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(f'store = "{url}"\n')
    for count in (10, 60):
        kill_at(tmp_path, count)
    with start(tmp_path) as process:
        said, complaints = process.communicate(timeout=120)

    assert process.returncode == 0, complaints
    assert json.loads(said)["finished_before"] >= 60
    asyncio.run(check(tmp_path, names(lines(tmp_path)), url))


def test_a_prompt_that_brings_every_worker_down_is_given_up_and_can_be_tried_again(tmp_path: Path) -> None:
    set_up(tmp_path, 1)
    (tmp_path / "s.json").write_text(json.dumps({"steps": [{"say": "Let me", "hang": True}]}))
    for attempt in range(4):
        with start(tmp_path) as process:
            try:
                wait_until(lambda: asyncio.run(taken_up(tmp_path)) == attempt, "its turn is begun or taken up")  # noqa: B023 - it is waited for here
            finally:
                process.kill()
    with start(tmp_path) as process:
        said, _ = process.communicate(timeout=60)
    [failure] = json.loads(said)["failures"]
    assert process.returncode == 1
    assert failure["error"]["code"] == "quarantined"
    assert json.loads(lines(tmp_path)[0])["status"] == "failed"

    (tmp_path / "s.json").write_text(json.dumps(SCRIPT))
    with holdfast(tmp_path, "batch", "p.jsonl", "--out", "out.jsonl", "--retry-failed") as process:
        _, complaints = process.communicate(timeout=60)

    assert process.returncode == 0, complaints
    asyncio.run(check(tmp_path, names(lines(tmp_path))))


async def taken_up(folder: Path) -> int | None:
    """How often the turn of the only session was taken up; None while there is none."""
    if not (folder / "home" / "holdfast.db").exists():
        return None
    database = await open_sqlite(folder / "home" / "holdfast.db")
    try:
        page = await database.read(sessions.list_page, sessions.EVERYTHING, limit=1)
        events = [entry.event for one in page.sessions for entry in await database.read(log.read, one.id)]
        return sum(isinstance(event, Recovered) for event in events) if events else None
    finally:
        await database.close()


def names(results: list[bytes]) -> dict[str, str]:
    """The id of each prompt, by its session."""
    return {json.loads(line)["session_id"]: json.loads(line)["id"] for line in results}


async def check(folder: Path, names: dict[str, str], url: str = "") -> None:
    """Each prompt has one session, was said once, answered whole once, and has ended as complete."""
    database = await (open_postgres(url) if url else open_sqlite(folder / "home" / "holdfast.db"))
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
    assert (census.total, census.by_reason) == (len(names), Counter(batch_complete=len(names)))
