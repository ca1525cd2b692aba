"""A restore into PostgreSQL by a real process that dies: the store is what it was, or what the backup is."""

import signal
from pathlib import Path

import pytest

from holdfast.store import backup, verify
from holdfast.store.move import move
from holdfast.store.move_ends import PostgresEnd, SqliteEnd
from tests.cli.seed import Seed
from tests.postgres.test_move import nobody
from tests.store import copies
from tests.store.test_copies_killed import moments, run_until

RESTORE = """
from holdfast.store.move_ends import PostgresEnd
from holdfast.store.restore_elsewhere import Elsewhere, restore_elsewhere
home, source, url = sys.argv[1:]
store = PostgresEnd(url)
place = Elsewhere(store=store, home=Path(home), replace=True, alive=lambda worker: False, at=0)
restore_elsewhere(Path(source), place)
"""


def heads(url: str) -> dict[str, tuple[int, str]]:
    with PostgresEnd(url).reading() as tx:
        return {one: (seq, hash_) for one, seq, hash_ in verify.heads(tx)}


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_a_restore_killed_at_any_moment_leaves_the_old_store_or_the_new(tmp_path: Path, url: str) -> None:
    seed, copy, home = Seed(tmp_path / "s" / "holdfast.db"), tmp_path / "copy.db", tmp_path / "home"
    home.mkdir()
    seed.sessions(3, turns=2)
    backup.backup(seed.path, copy)
    seed.sessions(2)
    move(SqliteEnd(seed.path), PostgresEnd(url), nobody)
    old, new = heads(url), copies.heads(copy)
    killed = 0
    for nth in moments(10**6):
        status = run_until(nth, "sendto", RESTORE, home, copy, url)
        found = heads(url)
        assert found in (old, new), f"after the {nth}. word to the server"
        killed += status in (-signal.SIGKILL, 128 + signal.SIGKILL)
        if found == new:
            break
    assert killed > 15
