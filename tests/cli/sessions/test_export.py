"""Export and import: nothing is lost, nothing happens twice."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Holdfast
from tests.cli.seed import NASTY, Seed


def exported(holdfast: Holdfast, session_id: str, out: Path) -> Path:
    assert holdfast("sessions", "export", session_id, "--out", str(out)).code == 0
    return out


def elsewhere(holdfast: Holdfast, tmp_path: Path) -> Holdfast:
    """The same program with another home."""
    other = Holdfast.__new__(Holdfast)
    other.__dict__ |= holdfast.__dict__ | {"home": tmp_path / "elsewhere"}
    return other


def test_an_exported_and_imported_session_has_the_same_hashes(holdfast: Holdfast, seed: Seed, tmp_path: Path) -> None:
    session_id = seed.session(NASTY, title="notes", turns=3)
    file = exported(holdfast, session_id, tmp_path / "notes.jsonl")
    other = elsewhere(holdfast, tmp_path)

    done = other("sessions", "import", str(file), "--json").json["files"][0]

    assert (done["session_id"], done["outcome"], done["added"]) == (session_id, "new", 22)
    assert other("sessions", "show", session_id, "--json").out == holdfast("sessions", "show", session_id, "--json").out
    assert other("sessions", "export", session_id).out == file.read_text()
    assert other("sessions", "verify").code == 0


def test_the_file_has_a_header_and_one_event_per_line(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()

    header, *events = map(json.loads, holdfast("sessions", "export", session_id).out.splitlines())

    assert (header["format"], header["version"], header["seq"]) == ("holdfast-log", 1, 8)
    assert header["session"]["id"] == session_id
    assert header["hash"] == events[-1]["hash"] == header["session"]["hash"]
    assert [list(event) for event in events] == [["seq", "kind", "at", "hash", "body"]] * 8
    assert [event["seq"] for event in events] == list(range(1, 9))


def test_importing_again_changes_nothing(holdfast: Holdfast, seed: Seed, tmp_path: Path) -> None:
    session_id = seed.session()
    file = exported(holdfast, session_id, tmp_path / "x.jsonl")

    ran = holdfast("sessions", "import", str(file))

    assert ran.code == 0 and "already imported" in ran.out
    assert holdfast("sessions", "show", session_id, "--json").json["seq"] == 8


def test_an_older_and_a_newer_export_of_one_session_are_both_accepted(
    holdfast: Holdfast, seed: Seed, tmp_path: Path
) -> None:
    session_id = seed.session()
    old = exported(holdfast, session_id, tmp_path / "old.jsonl")
    holdfast("sessions", "rename", session_id, "newer")
    new = exported(holdfast, session_id, tmp_path / "new.jsonl")
    other = elsewhere(holdfast, tmp_path)

    outcomes = [other("sessions", "import", str(file), "--json").json["files"][0] for file in (old, new, old)]

    assert [(one["outcome"], one["added"]) for one in outcomes] == [("new", 8), ("extended", 1), ("behind", 0)]
    assert other("sessions", "show", session_id, "--json").json["title"] == "newer"
    assert "unchanged" in other("sessions", "import", str(old)).out


def test_two_histories_under_one_id_are_never_mixed(holdfast: Holdfast, seed: Seed, tmp_path: Path) -> None:
    session_id = seed.session()
    other = elsewhere(holdfast, tmp_path)
    other("sessions", "import", str(exported(holdfast, session_id, tmp_path / "x.jsonl")))
    holdfast("sessions", "rename", session_id, "here")
    other("sessions", "rename", session_id, "there")
    file = exported(holdfast, session_id, tmp_path / "diverged.jsonl")

    refused = other("sessions", "import", str(file))
    assert refused.code == 1
    assert "different from event 9 on" in refused.err and "--as-new" in refused.err
    assert other("sessions", "show", session_id, "--json").json["title"] == "there"

    kept = other("sessions", "import", str(file), "--as-new", "--json").json["files"][0]
    shown = other("sessions", "show", kept["session_id"], "--events", "--json").json
    assert kept["session_id"] != session_id
    assert shown["title"] == "here"
    assert shown["events"][-1]["body"] == {"format": "holdfast-log", "origin": session_id, "messages": 4}
    assert other("sessions", "verify").code == 0


def test_all_sessions_can_be_exported_and_imported(holdfast: Holdfast, seed: Seed, tmp_path: Path) -> None:
    made = [*seed.sessions(3), seed.session(side_of="hf-x")]
    seed.trash(made[0], days_ago=1)

    ran = holdfast("sessions", "export", "--all", "--out", str(tmp_path / "all"), "--json")
    files = [one["file"] for one in ran.json["files"]]
    other = elsewhere(holdfast, tmp_path)
    done = other("sessions", "import", *files, "--json")

    assert done.code == 0
    assert {one["session_id"] for one in done.json["files"]} == set(made)
    ours = holdfast("sessions", "list", "--all", "--json").json["sessions"]
    assert other("sessions", "list", "--all", "--json").json["sessions"] == ours


def test_one_damaged_file_does_not_stop_the_others(holdfast: Holdfast, seed: Seed, tmp_path: Path) -> None:
    good = exported(holdfast, seed.session(), tmp_path / "good.jsonl")
    bad = tmp_path / "bad.jsonl"
    bad.write_text("nonsense\n")
    other = elsewhere(holdfast, tmp_path)

    ran = other("sessions", "import", str(bad), str(good), "--json")

    assert ran.code == 1
    assert list(ran.json["files"][0]) == ["file", "error"]
    assert len(other("sessions", "list", "--json").json["sessions"]) == 1


@pytest.mark.process
def test_a_session_can_be_piped_from_one_home_to_another(holdfast: Holdfast, seed: Seed, tmp_path: Path) -> None:
    session_id = seed.session()
    text = holdfast("sessions", "export", session_id).out
    other = elsewhere(holdfast, tmp_path)

    ran = other.process("sessions", "import", "-", input=text.encode())

    assert ran.code == 0 and session_id in ran.out


def test_an_exported_file_is_private_and_replaces_nothing_by_accident(
    holdfast: Holdfast, seed: Seed, tmp_path: Path
) -> None:
    session_id = seed.session()
    file = exported(holdfast, session_id, tmp_path / "x.jsonl")
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("mine")

    refused = holdfast("sessions", "export", session_id, "--out", str(file))
    assert refused.code == 2 and "--force" in refused.err
    assert file.read_text() == "mine"

    assert holdfast("sessions", "export", session_id, "--out", str(file), "--force").code == 0
    assert file.read_text() != "mine"
    assert [path.name for path in tmp_path.glob("*.partial")] == []


@pytest.mark.parametrize(("form", "sign"), [("md", "# notes"), ("html", "<!doctype html>")])
def test_markdown_and_html_exports_are_readable(holdfast: Holdfast, seed: Seed, form: str, sign: str) -> None:
    session_id = seed.session(NASTY, title="notes")

    ran = holdfast("sessions", "export", session_id, "--format", form)

    assert ran.out.startswith(sign)
    assert "hello to you" in ran.out and "\x1b" not in ran.out


@pytest.mark.process
def test_a_full_disk_is_not_reported_as_a_complete_export(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session(turns=30)

    to_a_file = holdfast("sessions", "export", session_id, "--out", "/dev/full")
    assert to_a_file.code == 5 and "the disk is full" in to_a_file.err

    with Path("/dev/full").open("wb") as full:
        for args in (("export", session_id), ("list",)):
            ran = holdfast.process("sessions", *args, stdout=full, stderr=-1)
            assert ran.code == 5
            assert (
                ran.err
                == "holdfast: the disk is full: standard output was not written; free some space and try again\n"
            )


@pytest.mark.process
def test_a_closed_pipe_causes_no_traceback(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session("x" * 5000, turns=100)

    ran = holdfast.process("sessions", "export", session_id, stdout=_closed_pipe(), stderr=-1)

    assert ran.err == ""


def _closed_pipe() -> int:
    import os

    reading, writing = os.pipe()
    os.close(reading)
    return writing
