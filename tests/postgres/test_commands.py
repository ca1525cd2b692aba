"""The commands on a store in PostgreSQL, as a user runs them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ENVIRONMENT, Holdfast, Ran
from tests.cli.seed import Seed
from tests.postgres.cluster import cluster, name_of

SETTINGS = {"HOLDFAST_MODEL": "scripted:echo"}


class OnPostgres:
    """Runs commands as separate processes, with a PostgreSQL store."""

    def __init__(self, home: Path, url: str) -> None:
        self._command = [sys.executable, "-m", "holdfast", "--home", str(home)]
        self._environment = {**ENVIRONMENT, **SETTINGS, "HOLDFAST_STORE": url}

    def __call__(self, *args: str) -> Ran:
        done = subprocess.run([*self._command, *args], check=False, capture_output=True, env=self._environment)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def there(home: Path, url: str) -> OnPostgres:
    return OnPostgres(home, url)


def test_a_turn_is_run_listed_found_verified_and_backed_up(there: OnPostgres, tmp_path: Path) -> None:
    done = there("run", "Is there a nightingale?", "--json")
    assert done.code == 0, done.err
    session_id = done.json["session_id"]

    assert [one["id"] for one in there("sessions", "list", "--json").json["sessions"]] == [session_id]
    assert "nightingale" in there("sessions", "search", "NIGHTIN", "--json").out
    assert there("run", "Again", "--session", session_id, "--json").json["seq"] > done.json["seq"]
    assert there("sessions", "verify", "--json").json["ok"]
    assert session_id in there("why", session_id).out
    health = there("doctor", "--json").json
    assert health["store"]["sessions"] == 1 and health["problems"] == []
    assert there("migrate", "--check", "--json").json["before"] == health["store"]["schema"]

    file = tmp_path / "backup.db"
    saved = there("backup", str(file), "--json")
    assert saved.code == 0, saved.err
    assert saved.json["sessions"] == 1 and saved.json["verified"]
    assert sorted(one.name for one in tmp_path.iterdir() if one.name != "home") == ["backup.db"]


def test_a_backup_is_restored_and_the_previous_store_is_kept(
    there: OnPostgres, home: Path, tmp_path: Path, url: str
) -> None:
    file = tmp_path / "backup.db"
    session_id = there("run", "Is there a nightingale?", "--json").json["session_id"]
    assert there("backup", str(file)).code == 0
    later = there("run", "Is there a lark?", "--json").json["session_id"]
    before = there("sessions", "show", session_id, "--json").json

    refused = there("restore", str(file))
    assert refused.code != 0 and "contains 2 sessions and was left unchanged; --replace" in refused.err
    done = there("restore", str(file), "--replace", "--json")
    assert done.code == 0, done.err
    assert (done.json["sessions"], done.json["saved_is_damaged"], done.json["store"]) == (1, False, url)
    assert [one["id"] for one in there("sessions", "list", "--all", "--json").json["sessions"]] == [session_id]
    assert there("sessions", "show", session_id, "--json").json == before
    assert there("sessions", "verify", "--json").json["ok"]
    assert "nightingale" in there("sessions", "search", "nightingale", "--json").out
    assert there("sessions", "search", "lark", "--json").json["hits"] == []
    assert there("run", "Go on", "--session", session_id, "--json").code == 0

    saved = Path(done.json["saved_as"])
    assert saved.parent == home and saved.stat().st_mode & 0o077 == 0
    assert there("restore", str(saved), "--replace").code == 0
    ids = {one["id"] for one in there("sessions", "list", "--all", "--json").json["sessions"]}
    assert ids == {session_id, later}
    assert not list(home.glob("*.taking")) and not list(home.glob("*.restoring*"))


def test_a_damaged_store_is_replaced_and_kept_and_a_damaged_backup_is_refused(
    there: OnPostgres, tmp_path: Path, url: str
) -> None:
    file = tmp_path / "backup.db"
    there("run", "Is there a nightingale?", "--json")
    assert there("backup", str(file)).code == 0
    cluster().execute("UPDATE event SET body = replace(body, 'nightingale', 'vulture')", name_of(url))
    assert there("backup", str(tmp_path / "bad.db")).code == 1
    done = there("restore", str(file), "--replace", "--json")

    assert done.code == 0 and done.json["saved_is_damaged"], done.err
    assert there("sessions", "verify", "--json").json["ok"]
    for wrong, words in (
        (tmp_path / "none.db", "no file"),
        (tmp_path, "not a file"),
        (Path(done.json["saved_as"]), "damaged"),
    ):
        refused = there("restore", str(wrong), "--replace")
        assert refused.code != 0 and words in refused.err and "Traceback" not in refused.err
    assert cluster().execute("SELECT count(*) FROM event WHERE body LIKE '%nightingale%'", name_of(url)) != [(0,)]


def test_a_store_is_copied_there_and_back(
    holdfast: Holdfast,
    seed: Seed,
    there: OnPostgres,
    url: str,
    tmp_path: Path,
) -> None:
    session_id = seed.session(title="moved")
    done = holdfast("migrate", "--to", url, "--json")
    assert done.code == 0, done.err
    assert done.json["sessions"] == 1 and done.json["verified"]

    before, after = holdfast("sessions", "show", session_id, "--json"), there("sessions", "show", session_id, "--json")
    assert before.json == after.json
    told = holdfast("migrate", "--to", f"{url}&application_name=x").out
    assert f"HOLDFAST_STORE='{url}&application_name=x'," in told, "a shell takes it as one word"
    back = there("migrate", "--to", f"sqlite:///{tmp_path}/back.db")
    assert back.code == 0 and "all hashes verified" in back.out
    assert holdfast("migrate", "--to", url, "--check").code == 2
    assert (
        holdfast("migrate", "--to", "mysql://here").code == 2
        or "sqlite:///path" in holdfast("migrate", "--to", "x").err
    )


def test_an_unavailable_store_is_named_without_its_password(home: Path) -> None:
    away = OnPostgres(home, "postgresql://me:hunter2@127.0.0.1:1/db")

    done = away("sessions", "list")

    assert done.code != 0 and "cannot reach postgresql://127.0.0.1:1/db" in done.err
    assert "hunter2" not in done.err and "Traceback" not in done.err
    examined = away("doctor")
    assert examined.code == 1 and "cannot reach" in examined.out and "hunter2" not in examined.out


def test_two_homes_share_one_store(tmp_path: Path, url: str) -> None:
    one, other = OnPostgres(tmp_path / "a", url), OnPostgres(tmp_path / "b", url)
    session_id = one("run", "Hello", "--json").json["session_id"]

    assert other("run", "And on", "--session", session_id, "--json").json["session_id"] == session_id
    assert cluster().execute("SELECT turn_count FROM session", name_of(url)) == [(2,)]


def test_a_backup_is_written_relative_to_the_current_directory_and_leaves_nothing_else(
    there: OnPostgres, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert there("run", "Is there a nightingale?").code == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    before = sorted(home.iterdir())

    saved = there("backup", "my.db")

    assert saved.code == 0, saved.err
    assert [one.name for one in elsewhere.iterdir()] == ["my.db"]
    assert sorted(home.iterdir()) == before


def test_a_store_is_not_copied_onto_itself_under_another_spelling(there: OnPostgres, url: str) -> None:
    assert there("run", "Is there a nightingale?").code == 0

    ran = there("migrate", "--to", f"{url}&application_name=other")

    assert ran.code == 2 and "the same store" in ran.err
    assert "nightingale" in there("sessions", "search", "nightingale", "--json").out
