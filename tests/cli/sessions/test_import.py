"""`sessions import` as a user runs it: one command for everything, and a report of each item."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Holdfast
from tests.cli.sessions.test_export import elsewhere
from tests.interop import sample_files


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    """A folder with something of every program."""
    folder = tmp_path / "everything"
    sample_files.hermes_rotated(folder / "hermes" / "state.db").close()
    sample_files.codex(folder / "codex" / "sessions" / "2026" / "rollout-1.jsonl")
    sample_files.claude(folder / "claude" / "projects" / "-tmp" / "11111111-2222-4333-8444-555555555555.jsonl")
    sample_files.chatgpt(folder / "chatgpt" / "conversations.json")
    (folder / "notes.json").write_text("{}")
    return folder


def test_a_folder_with_everything_is_imported_and_reported(holdfast: Holdfast, everything: Path) -> None:
    ran = holdfast("sessions", "import", str(everything), "--json")

    assert ran.code == 0
    assert ran.json["counts"] | {"new": 0, "ignored": 0} == dict.fromkeys(ran.json["counts"], 0)
    assert (ran.json["counts"]["new"], ran.json["counts"]["ignored"]) == (10, 1)
    items = [one for one in ran.json["files"] if "outcome" in one]
    assert {one["format"] for one in items} == {"hermes", "codex", "claude-code", "chatgpt"}
    for one in items:
        assert one["messages"]["source"] == sum(one["messages"][key] for key in ("taken", "copied", "skipped"))
        assert holdfast("sessions", "show", one["session_id"], "--json").json["hash"] == one["hash"]
    assert holdfast("sessions", "verify").code == 0


def test_a_second_import_reports_already_imported(holdfast: Holdfast, everything: Path) -> None:
    holdfast("sessions", "import", str(everything))

    again = holdfast("sessions", "import", str(everything), "--json")
    said = holdfast("sessions", "import", str(everything))

    assert again.code == said.code == 0
    assert again.json["counts"]["same"] == 10
    assert said.out.count("already imported") == 10
    assert "skipped" in said.err and "notes.json" in said.err
    assert "10 same, 1 ignored" in said.err


def test_a_dry_run_writes_nothing(holdfast: Holdfast, everything: Path) -> None:
    ran = holdfast("sessions", "import", str(everything), "--dry-run")

    assert ran.code == 0 and ran.out.count("would be imported") == 10
    assert holdfast("sessions", "list", "--all", "--json").json["sessions"] == []


def test_a_dry_run_of_a_holdfast_export_writes_nothing(holdfast: Holdfast, everything: Path, tmp_path: Path) -> None:
    holdfast("sessions", "import", str(everything / "codex"))
    out = tmp_path / "x.jsonl"
    holdfast("sessions", "export", sample_files.CODEX_ID, "--out", str(out))
    other = elsewhere(holdfast, tmp_path)

    ran = other("sessions", "import", str(out), "--dry-run", "--json")

    assert ran.json["files"][0]["outcome"] == "new"
    assert other("sessions", "list", "--all", "--json").json["sessions"] == []


@pytest.mark.process
@pytest.mark.parametrize(
    "ref", ["third", "hermes:second", sample_files.CODEX_ID, "conv-1", "11111111-2222-4333-8444-555555555555"]
)
def test_an_imported_session_can_be_continued_at_once_by_any_of_its_names(
    holdfast: Holdfast, everything: Path, ref: str
) -> None:
    holdfast("sessions", "import", str(everything))
    before = holdfast("sessions", "show", ref, "--json").json

    ran = holdfast.process("run", "--session", ref, "--model", "scripted:echo", "--json", "and now?")

    assert ran.code == 0, ran.err
    assert ran.json["session_id"] == before["id"]
    after = holdfast("sessions", "show", ref, "--json").json
    assert after["message_count"] == before["message_count"] + 2
    assert holdfast("sessions", "import", str(everything), "--json").json["counts"]["behind"] == 1


def test_a_source_with_a_problem_is_named_and_the_rest_is_imported(holdfast: Holdfast, everything: Path) -> None:
    junk = everything / "junk.jsonl"
    junk.write_bytes(b"\x00\x01\x02")

    ran = holdfast("sessions", "import", str(junk), str(everything / "codex"), str(everything / "nowhere"))

    assert ran.code == 1
    assert "junk.jsonl is not" in ran.err and "no file or folder" in ran.err and "1 new, 2 failed" in ran.err
    assert "imported (9 messages) codex" in ran.out


def test_what_is_not_there_is_not_found(holdfast: Holdfast, tmp_path: Path) -> None:
    assert holdfast("sessions", "import", str(tmp_path / "nowhere")).code == 3


@pytest.mark.process
def test_exports_of_other_programs_can_be_piped_in(holdfast: Holdfast, everything: Path) -> None:
    data = (everything / "chatgpt" / "conversations.json").read_bytes()

    ran = holdfast.process("sessions", "import", "-", "--json", input=data)

    assert ran.code == 0 and ran.json["counts"]["new"] == 4
    assert {one["file"] for one in ran.json["files"]} == {"standard input"}


@pytest.mark.process
def test_a_full_disk_stops_the_import_and_says_so(holdfast: Holdfast, everything: Path, tmp_path: Path) -> None:
    holdfast("sessions", "list")
    size = "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))"
    limit = f"import os, resource, sys; {size}; os.execv(sys.argv[1], sys.argv[1:])"
    lines = [sample_files.codex_said(n, "user", "x" * 100_000) for n in range(5)]
    big = sample_files.write_lines(tmp_path / "big.jsonl", [sample_files.codex_lines()[0], *lines])

    ran = holdfast.process("sessions", "import", str(big), before=[sys.executable, "-c", limit])

    assert ran.code == 5, ran.err
    assert "Traceback" not in ran.err


@pytest.mark.process
def test_a_progress_bar_is_for_terminals_only(holdfast: Holdfast, everything: Path) -> None:
    ran = holdfast.process("sessions", "import", str(everything), "--json")

    assert ran.err == ""
    assert json.loads(ran.out)["counts"]["new"] == 10


def test_imported_titles_cannot_control_the_terminal(holdfast: Holdfast, tmp_path: Path) -> None:
    source = sample_files.Hermes(tmp_path / "state.db")
    source.session("\x1b[31mred", title="\x1b]0;gotcha\x07\u202etitle")
    source.exchange("\x1b[31mred", "hello", "hi")
    source.close()

    ran = holdfast("sessions", "import", str(source.path))

    assert ran.code == 0 and "\x1b" not in ran.out + ran.err and "\u202e" not in ran.out


@pytest.mark.process
def test_a_session_from_a_directory_that_does_not_exist_here_can_use_tools(holdfast: Holdfast, tmp_path: Path) -> None:
    lines = sample_files.codex_lines()
    lines[0]["payload"]["cwd"] = "/nowhere/at/all"  # type: ignore[index]
    holdfast("sessions", "import", str(sample_files.write_lines(tmp_path / "r.jsonl", lines)))

    ran = holdfast.process(
        "run",
        "--session",
        sample_files.CODEX_ID,
        "--model",
        "scripted:tools",
        "--json",
        'use tool terminal {"command": "pwd"}',
    )

    assert ran.code == 0, ran.err
    results = [
        one
        for one in holdfast("sessions", "show", sample_files.CODEX_ID, "--json").json["messages"]
        if one["role"] == "tool"
    ]
    assert results[-1]["outcome"] == "ok" and str(holdfast.home) in results[-1]["content"]
