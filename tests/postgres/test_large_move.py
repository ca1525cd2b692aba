"""A large store is copied to PostgreSQL and back without being loaded into memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.event import SessionOpened
from holdfast.store import verify
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions
from holdfast.store.sqlite.driver import open_sqlite
from tests.cli.conftest import ENVIRONMENT
from tests.contract.logs import user

SESSIONS, EACH = 50, 2_000
TEXT = "A nightingale sang in a wood by the sea. " * 25
MOST_MEGABYTES = 120
"""The texts alone are 100 MB; a command that does little takes about 50."""


def fill(tx: Transaction, number: int) -> None:
    session_id = f"hf-{number:04}"
    sessions.create(tx, session_id, SessionOpened(source="run"), at=1)
    log.append_unheld(tx, session_id, [user(f"{n} {TEXT}") for n in range(EACH - 1)], at=1)


WATCHED = """
import atexit, re, runpy, sys
def tell():
    with open("/proc/self/status") as file:
        print(re.search(r"VmHWM:\\s+(\\d+) kB", file.read())[1], file=sys.stderr)
atexit.register(tell)
runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
"""
"""The command, which prints its peak memory at the end. A count by its parent would include the parent's own."""


def moved(home: Path, source: str, target: str) -> int:
    """Copies the store with the command; returns the peak memory in megabytes."""
    environment = {**ENVIRONMENT, "HOLDFAST_STORE": source}
    command = [sys.executable, "-c", WATCHED, "--home", str(home), "migrate", "--to", target, "--json"]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    return int(done.stderr.split()[-1]) // 1024


async def heads(path: Path) -> list[tuple[str, int, str]]:
    database = await open_sqlite(path)
    found = await database.read(verify.list_heads)
    await database.close()
    return found


@pytest.mark.timeout(300)
async def test_a_hundred_thousand_events_are_copied_there_and_back_in_bounded_memory(tmp_path: Path, url: str) -> None:
    here, back = tmp_path / "here.db", tmp_path / "back.db"
    database = await open_sqlite(here)
    for number in range(SESSIONS):
        await database.write(fill, number)
    await database.close()

    assert moved(tmp_path, f"sqlite:///{here}", url) < MOST_MEGABYTES
    assert moved(tmp_path, url, f"sqlite:///{back}") < MOST_MEGABYTES
    before = await heads(here)
    assert before == await heads(back) and sum(seq for _, seq, _ in before) == SESSIONS * EACH
