"""Nothing is deleted silently: trash, restore, prune."""

import json
from pathlib import Path

from holdfast.model.session import Session, SessionSummary
from holdfast.wiring.workdir import own_workdir_name
from tests.cli.conftest import Holdfast
from tests.cli.seed import Seed


def test_deleting_needs_no_confirmation_and_says_how_to_undo_it(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()

    ran = holdfast("sessions", "delete", session_id)

    assert ran.code == 0
    assert f"holdfast sessions restore {session_id}" in ran.out
    assert holdfast("sessions", "list", "--json").json["sessions"] == []

    assert holdfast("sessions", "restore", session_id).code == 0
    restored = holdfast("sessions", "list", "--json").json["sessions"]
    assert [(one["id"], one["message_count"]) for one in restored] == [(session_id, 4)]


def test_several_are_deleted_together_or_not_at_all(holdfast: Holdfast, seed: Seed) -> None:
    first, second = seed.sessions(2)

    failed = holdfast("sessions", "delete", first, "no such session")
    assert failed.code == 3
    assert len(holdfast("sessions", "list", "--json").json["sessions"]) == 2

    done = holdfast("sessions", "delete", first, second, "--json").json
    assert [one["id"] for one in done["sessions"]] == [first, second]
    assert holdfast("sessions", "list", "--json").json["sessions"] == []


def test_a_prefix_of_what_is_in_the_trash_finds_nothing_and_says_where_it_is(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()
    seed.trash(session_id, days_ago=1)

    ran = holdfast("sessions", "rename", session_id, "x")

    assert ran.code == 3
    assert "in the trash" in ran.err and f"sessions restore {session_id}" in ran.err


def test_promise_23_prune_only_lists_and_then_removes_exactly_that(holdfast: Holdfast, seed: Seed) -> None:
    old, older, young, pinned, kept = seed.sessions(5)
    for session_id, days in ((old, 31), (older, 90), (young, 5), (pinned, 400)):
        if session_id == pinned:
            holdfast("sessions", "pin", pinned)
        seed.trash(session_id, days_ago=days)

    preview = holdfast("sessions", "prune", "--json").json
    assert preview["removed"] is False
    assert len(holdfast("sessions", "list", "--all", "--json").json["sessions"]) == 5

    done = holdfast("sessions", "prune", "--yes", "--json").json
    left = {one["id"] for one in holdfast("sessions", "list", "--all", "--json").json["sessions"]}

    assert done["removed"] is True
    assert done["sessions"] == preview["sessions"]
    assert [one["id"] for one in done["sessions"]] == [older, old]
    assert left == {young, pinned, kept}
    assert holdfast("sessions", "verify").code == 0


def test_pruning_frees_disk_space(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session("x" * 20_000, turns=50)
    seed.trash(session_id, days_ago=60)
    before = (holdfast.home / "holdfast.db").stat().st_size

    freed = holdfast("sessions", "prune", "--yes", "--json").json["bytes_freed"]
    after = (holdfast.home / "holdfast.db").stat().st_size

    assert freed > 900_000
    assert after <= before - 900_000


def test_the_text_output_lists_what_would_be_deleted_and_that_nothing_was(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session(title="old notes")
    seed.trash(session_id, days_ago=40)

    ran = holdfast("sessions", "prune")
    assert "old notes" in ran.out and "--yes" in ran.err
    assert "deleted 1 session" in holdfast("sessions", "prune", "--yes").err
    assert "no session has been in the trash" in holdfast("sessions", "prune").err


def test_pruning_finishes_an_interrupted_prune_and_touches_no_other_directory(holdfast: Holdfast, seed: Seed) -> None:
    first, second, kept = seed.sessions(3)
    files = holdfast.home / "files"
    for session_id in (first, second, kept):
        (files / session_id).mkdir(parents=True)
        (files / session_id / "photo.png").write_bytes(b"x")
    (files / "not ours").mkdir()
    seed.trash(first, days_ago=40)
    assert holdfast("sessions", "prune", "--yes").code == 0
    assert not (files / first).exists()

    # A process that died between the store and the directories leaves the first; one that died earlier leaves the second.
    (files / first).mkdir()
    notes = holdfast.home / "pruning"
    (notes / first).write_text(json.dumps([f"files/{first}"]))
    (notes / kept).write_text(json.dumps([f"files/{kept}"]))
    seed.trash(second, days_ago=40)
    assert holdfast("sessions", "prune", "--yes").code == 0

    assert sorted(path.name for path in files.iterdir()) == sorted([kept, "not ours"])
    assert list(notes.iterdir()) == []


def test_a_directory_that_cannot_be_deleted_is_an_error_and_retried(
    holdfast: Holdfast, seed: Seed, tmp_path: Path
) -> None:
    session_id = seed.session()
    folder, elsewhere = holdfast.home / "files" / session_id, tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis").write_text("x")
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(elsewhere)
    seed.trash(session_id, days_ago=40)

    ran = holdfast("sessions", "prune", "--yes")
    assert ran.code == 5 and f"cannot delete {folder}" in ran.err
    assert (elsewhere / "thesis").exists(), "a link is not followed"

    folder.unlink()
    folder.mkdir()
    assert holdfast("sessions", "prune", "--yes").code == 0
    assert not folder.exists()


def work_directory(home: Path, session_id: str, channel: str | None = None) -> Path:
    """The session's own directory for work, with a file in it."""
    folder = home / "work" / own_workdir_name(Session(session_id, 1, "", None, 0, SessionSummary(channel=channel)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.csv").write_text("x")
    return folder


def test_pruning_deletes_the_working_directory_and_the_trash_keeps_it(holdfast: Holdfast, seed: Seed) -> None:
    pruned, trashed = seed.sessions(2)
    gone, kept = work_directory(holdfast.home, pruned), work_directory(holdfast.home, trashed)
    seed.trash(pruned, days_ago=40)
    seed.trash(trashed, days_ago=5)

    assert holdfast("sessions", "prune").code == 0
    assert gone.exists(), "a list removes nothing"
    assert holdfast("sessions", "prune", "--yes").code == 0

    assert [path.name for path in (holdfast.home / "work").iterdir()] == [kept.name]
    assert holdfast("sessions", "restore", trashed).code == 0
    assert (kept / "result.csv").exists()


def test_the_directory_of_a_channel_stays_while_a_session_of_the_channel_exists_also_in_the_trash(
    holdfast: Holdfast, seed: Seed
) -> None:
    first, second = seed.sessions(2, source="gateway", channel="telegram:42")
    shared = work_directory(holdfast.home, first, "telegram:42")
    seed.trash(first, days_ago=40)
    seed.trash(second, days_ago=5)

    assert holdfast("sessions", "prune", "--yes").code == 0
    assert (shared / "result.csv").exists()

    assert holdfast("sessions", "prune", "--yes", "--trashed-days", "1").code == 0
    assert not shared.exists()


def test_a_directory_in_which_another_session_was_opened_stays(holdfast: Holdfast, seed: Seed) -> None:
    pruned = seed.session()
    folder = work_directory(holdfast.home, pruned)
    seed.session(workdir=str(folder / "sub"))
    seed.trash(pruned, days_ago=40)

    assert holdfast("sessions", "prune", "--yes").code == 0

    assert (folder / "result.csv").exists()


def test_pruning_finishes_a_working_directory_that_a_crash_left_renamed(holdfast: Holdfast, seed: Seed) -> None:
    pruned, later = seed.sessions(2)
    folder = work_directory(holdfast.home, pruned)
    seed.trash(pruned, days_ago=40)
    assert holdfast("sessions", "prune", "--yes").code == 0
    left = work_directory(holdfast.home, pruned).rename(folder.with_name(f".removed-{pruned}"))
    (holdfast.home / "pruning" / pruned).write_text(json.dumps([{"folder": f"work/{pruned}"}]))
    seed.trash(later, days_ago=40)

    assert holdfast("sessions", "prune", "--yes").code == 0

    assert not left.exists()
    assert list((holdfast.home / "pruning").iterdir()) == []
