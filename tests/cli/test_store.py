"""Backup, restore and migrate from the command line. What they promise is tested in tests/store."""

from pathlib import Path

import pytest

from tests.cli.conftest import Holdfast
from tests.cli.seed import Seed


def test_a_backup_is_restored_and_the_previous_store_is_saved(holdfast: Holdfast, seed: Seed, tmp_path: Path) -> None:
    before = seed.session(title="before")
    file = tmp_path / "backup.db"
    made = holdfast("backup", str(file), "--json").json
    seed.session(title="after")

    refused = holdfast("restore", str(file))
    done = holdfast("restore", str(file), "--replace", "--json").json

    assert made == {"file": str(file), "bytes": file.stat().st_size, "sessions": 1, "events": 8, "verified": True}
    assert refused.code == 1 and "contains 2 sessions" in refused.err and "--replace" in refused.err
    assert (done["sessions"], done["events"], done["saved_is_damaged"]) == (1, 8, False)
    assert [one["id"] for one in holdfast("sessions", "list", "--json").json["sessions"]] == [before]
    saved = Path(done["saved_as"])
    assert saved.parent == holdfast.home and saved.name.startswith("before-restore-")
    assert holdfast("restore", str(saved), "--replace", "--json").json["sessions"] == 2


def test_the_text_output_says_what_was_verified_and_where_files_are(
    holdfast: Holdfast, seed: Seed, tmp_path: Path
) -> None:
    seed.session()
    file = tmp_path / "backup.db"

    backed_up = holdfast("backup", str(file))
    restored = holdfast("restore", str(file), "--replace")

    assert str(file) in backed_up.out and "1 session, 8 events" in backed_up.out
    assert "Saved the previous store as" in restored.out and "all hashes verified" in restored.out


def test_nothing_is_restored_while_a_worker_is_live(holdfast: Holdfast, seed: Seed, tmp_path: Path) -> None:
    seed.session()
    file = tmp_path / "backup.db"
    holdfast("backup", str(file))
    worker = seed.worker()

    ran = holdfast("restore", str(file), "--replace")

    assert ran.code == 4
    assert worker in ran.err and "stop it" in ran.err


def test_a_dead_worker_blocks_nothing(holdfast: Holdfast, seed: Seed, tmp_path: Path) -> None:
    session_id = seed.session()
    seed.worker(holds=session_id, started="long ago")
    file = tmp_path / "backup.db"
    holdfast("backup", str(file))

    assert holdfast("restore", str(file), "--replace").code == 0
    assert holdfast("sessions", "end", session_id).code == 0, "no worker holds it any more"


def test_without_a_store_there_is_nothing_to_back_up(holdfast: Holdfast, tmp_path: Path) -> None:
    ran = holdfast("backup", str(tmp_path / "b.db"))

    assert ran.code == 3
    assert not (tmp_path / "b.db").exists()


def test_migrate_reports_the_schema_of_the_store(holdfast: Holdfast) -> None:
    checked = holdfast("migrate", "--check", "--json").json
    assert checked["before"] == checked["after"] == 0
    assert not Path(checked["store"]).exists()

    made = holdfast("migrate", "--json").json
    assert (made["before"], made["after"]) == (0, made["known"])
    assert holdfast("migrate", "--json").json["before"] == made["known"]
    assert "is up to date" in holdfast("migrate").out


@pytest.mark.parametrize("name", ["holdfast.db", "holdfast.db-wal", "holdfast.db-shm", "search.db", "config.toml"])
def test_no_backup_replaces_a_file_of_the_store(holdfast: Holdfast, seed: Seed, name: str) -> None:
    seed.session()
    ran = holdfast("backup", str(holdfast.home / name), "--force")

    assert ran.code == 2 and "name another" in ran.err
    assert holdfast("sessions", "verify").code == 0


def test_a_store_is_not_copied_onto_itself(holdfast: Holdfast, seed: Seed) -> None:
    seed.session()
    ran = holdfast("migrate", "--to", f"sqlite:///{holdfast.home}/../{holdfast.home.name}/holdfast.db")

    assert ran.code == 2 and "the same store" in ran.err
