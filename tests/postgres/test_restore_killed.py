"""A restore into PostgreSQL by a real process that dies: the store is unchanged, or equals the backup."""

import signal
from pathlib import Path

import pytest

from holdfast.store import verify
from holdfast.store.backup import backup
from holdfast.store.backup.copy_store import copy_store
from holdfast.store.backup.endpoints import PostgresEndpoint, SqliteEndpoint
from tests.cli.seed import Seed
from tests.postgres.test_move import nobody
from tests.store import copies
from tests.store.backup.test_killed import moments, run_until

RESTORE = """
from holdfast.store.backup.endpoints import PostgresEndpoint
from holdfast.store.backup.restore_postgres import PostgresRestoreTarget, restore_to_postgres
home, source, url = sys.argv[1:]
store = PostgresEndpoint(url)
place = PostgresRestoreTarget(store=store, home=Path(home), replace=True, alive=lambda worker: False, at=0)
restore_to_postgres(Path(source), place)
"""


def heads(url: str) -> dict[str, tuple[int, str]]:
    with PostgresEndpoint(url).reading() as tx:
        return {one: (seq, hash_) for one, seq, hash_ in verify.list_heads(tx)}


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_a_restore_killed_at_any_moment_leaves_the_old_store_or_the_new(tmp_path: Path, url: str) -> None:
    seed, copy, home = Seed(tmp_path / "s" / "holdfast.db"), tmp_path / "copy.db", tmp_path / "home"
    home.mkdir()
    seed.sessions(3, turns=2)
    backup.backup(seed.path, copy)
    seed.sessions(2)
    copy_store(SqliteEndpoint(seed.path), PostgresEndpoint(url), nobody)
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
