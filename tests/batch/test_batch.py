"""`holdfast batch` as a user runs it: which prompts run, which do not run again, and what the results file contains."""

import asyncio
import fcntl
import json
import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.batch.results import PromptResult, ResultFile
from holdfast.cli import progress
from holdfast.model.errors import Conflict, NotSaved
from holdfast.model.event import Ended, ModelSaid, Rewound, UserSaid
from holdfast.model.message import text_of
from holdfast.store.repos import log, session_list
from holdfast.store.sqlite.driver import open_sqlite
from tests.cli.conftest import ENVIRONMENT, Holdfast

ECHO = ("--model", "scripted:echo")
Scripted = Callable[..., str]


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def results(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def _logs(home: Path) -> dict[str, list[Any]]:
    database = await open_sqlite(home / "holdfast.db")
    try:
        page = await database.read(session_list.list_page, session_list.EVERYTHING, limit=1000)
        return {
            session.id: [entry.event for entry in await database.read(log.read_complete, session)]
            for session in page.sessions
        }
    finally:
        await database.close()


def logs(home: Path) -> dict[str, list[Any]]:
    """Every session of the store, with its events."""
    return asyncio.run(_logs(home))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "p.jsonl", {"prompt": "one", "id": "first", "meta": {"n": [1]}}, "two", {"prompt": "three"})


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "p.results.jsonl"


@pytest.mark.process
def test_each_prompt_runs_in_its_own_session_and_has_one_result_line_in_order(
    holdfast: Holdfast, file: Path, out: Path
) -> None:
    ran = holdfast("batch", str(file), "--workers", "3", *ECHO)

    assert ran.code == 0
    assert "3 of 3 prompts done, 0 failed" in ran.out
    found = results(out)
    assert [(one["line"], one["text"], one["status"]) for one in found] == [
        (1, "You said: one", "done"),
        (2, "You said: two", "done"),
        (3, "You said: three", "done"),
    ]
    assert found[0]["id"] == "first"
    assert found[0]["meta"] == {"n": [1]}
    listed = holdfast("sessions", "list", "--json").json["sessions"]
    assert {one["id"] for one in listed} == {one["session_id"] for one in found}
    assert {(one["source"], one["state"], one["end_reason"]) for one in listed} == {
        ("batch", "ended", "batch_complete")
    }
    assert out.stat().st_mode & 0o077 == 0, "only the owner may read it"


@pytest.mark.process
def test_a_finished_prompt_is_not_sent_again_wherever_the_file_is(
    holdfast: Holdfast, file: Path, out: Path, home: Path, tmp_path: Path
) -> None:
    holdfast("batch", str(file), *ECHO)
    before, found = logs(home), results(out)
    moved = tmp_path / "elsewhere" / file.name
    moved.parent.mkdir()
    file.rename(moved)
    write(tmp_path / "more.jsonl", "four")
    moved.write_bytes(moved.read_bytes() + (tmp_path / "more.jsonl").read_bytes())

    ran = holdfast("batch", str(moved), "--json", *ECHO)

    assert (ran.json["prompts"], ran.json["done"], ran.json["finished_before"]) == (4, 4, 3)
    assert results(moved.with_name("p.results.jsonl"))[:3] == found
    after = logs(home)
    assert len(after) == 4
    assert {name: after[name] for name in before} == before


@pytest.mark.process
def test_another_name_model_or_text_is_new_work(
    holdfast: Holdfast, file: Path, home: Path, tmp_path: Path, scripted: Scripted
) -> None:
    elsewhere = ("--out", str(tmp_path / "b.jsonl"))
    holdfast("batch", str(file), *ECHO)
    assert holdfast("batch", str(file), *elsewhere, "--name", "again", *ECHO).code == 0
    (tmp_path / "b.jsonl").unlink()
    other = scripted({"say": "hm"}, loop=True)
    assert holdfast("batch", str(file), *elsewhere, "--model", other).code == 0
    write(file, {"prompt": "one, changed", "id": "first"}, "two")
    holdfast("batch", str(file), *ECHO)

    assert len(logs(home)) == 3 + 3 + 3 + 1
    assert [one["text"] for one in results(tmp_path / "p.results.jsonl")] == ["You said: one, changed", "You said: two"]


@pytest.mark.process
def test_the_same_text_twice_is_two_prompts(holdfast: Holdfast, tmp_path: Path, out: Path) -> None:
    file = write(tmp_path / "p.jsonl", "same", "same")

    holdfast("batch", str(file), *ECHO)

    assert len({one["session_id"] for one in results(out)}) == 2


@pytest.mark.process
def test_failed_prompts_are_results_and_can_be_retried(
    holdfast: Holdfast, tmp_path: Path, out: Path, home: Path, scripted: Scripted
) -> None:
    broken = scripted({"fail": "refused", "message": "not that"})
    file = write(tmp_path / "p.jsonl", "fine", {"prompt": "bad", "model": broken})

    ran = holdfast("batch", str(file), *ECHO)
    assert ran.code == 1
    assert "line 2 failed: " in ran.err
    assert "not that" in ran.err
    assert results(out)[1]["status"] == "failed"
    assert results(out)[1]["error"]["code"] == "refused"

    again = holdfast("batch", str(file), "--json", *ECHO)
    assert (again.code, again.json["failed"], again.json["finished_before"]) == (1, 1, 2), "no retry without the option"

    scripted({"say": "all right"})
    mended = holdfast("batch", str(file), "--retry-failed", "--json", *ECHO)
    assert (mended.code, mended.json["failed"], mended.json["finished_before"]) == (0, 0, 1)
    assert [one["text"] for one in results(out)] == ["You said: fine", "all right"]
    events = logs(home)[results(out)[1]["session_id"]]
    assert [type(event) for event in events if isinstance(event, Rewound | UserSaid | ModelSaid)] == [
        UserSaid,
        Rewound,
        UserSaid,
        ModelSaid,
    ]
    assert isinstance(events[-1], Ended)
    assert events[-1].reason == "batch_complete"


@pytest.mark.process
def test_a_prompt_can_have_its_own_system_prompt_and_model(
    holdfast: Holdfast, tmp_path: Path, home: Path, scripted: Scripted
) -> None:
    model = scripted({"say": "Arr."})
    file = write(tmp_path / "p.jsonl", {"prompt": "hello", "system": "Talk like a pirate.", "model": model})

    assert holdfast("batch", str(file), *ECHO).code == 0

    [events] = logs(home).values()
    assert (events[0].system, events[0].model) == ("Talk like a pirate.", model)


@pytest.mark.process
def test_a_later_message_to_a_session_of_a_batch_does_not_end_it_as_complete(
    holdfast: Holdfast, file: Path, out: Path, home: Path
) -> None:
    holdfast("batch", str(file), *ECHO)
    session_id = results(out)[0]["session_id"]

    assert holdfast("run", "--session", session_id, "more", *ECHO).code == 0

    ends = [event.reason for event in logs(home)[session_id] if isinstance(event, Ended)]
    assert ends == ["batch_complete", "cli_close"]
    assert holdfast("batch", str(file), "--json", *ECHO).json["finished_before"] == 3
    assert results(out)[0]["text"] == "You said: one", "the batch's own turn is its result"


# The results file.


@pytest.mark.process
@pytest.mark.parametrize("damage", ["torn", "missing", "doubled", "gone", "emptied"])
def test_a_damaged_results_file_is_rebuilt_from_the_store(
    holdfast: Holdfast, file: Path, out: Path, damage: str
) -> None:
    holdfast("batch", str(file), *ECHO)
    whole = out.read_bytes()
    lines = whole.splitlines(keepends=True)
    match damage:
        case "torn":
            out.write_bytes(whole[:-40])
        case "missing":
            out.write_bytes(lines[0] + lines[2])
        case "doubled":
            out.write_bytes(lines[1] + whole + lines[1])
        case "gone":
            out.unlink()
        case "emptied":
            out.write_bytes(b"")

    ran = holdfast("batch", str(file), *ECHO)

    assert ran.code == 0
    assert out.read_bytes() == whole


@pytest.mark.parametrize(
    "content", ["important notes\n", '{"line": 1}\n', '{"line":1,"batch":"other","session_id":"x"}\n']
)
def test_a_file_with_other_content_is_left_unchanged(
    holdfast: Holdfast, file: Path, tmp_path: Path, home: Path, content: str
) -> None:
    notes = tmp_path / "notes"
    notes.write_text(content)

    ran = holdfast("batch", str(file), "--out", str(notes), *ECHO)

    assert ran.code == 2
    assert "left unchanged" in ran.err
    assert notes.read_text() == content
    assert logs(home) == {}


def test_results_never_replace_the_prompts_or_a_device(holdfast: Holdfast, file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    before = file.read_bytes()

    assert holdfast("batch", str(file), "--out", str(link), *ECHO).code == 2
    assert holdfast("batch", str(file), "--out", "/dev/null", *ECHO).code == 2
    assert holdfast("batch", str(file), "--out", str(tmp_path), *ECHO).code == 2
    assert holdfast("batch", str(file), "--out", str(tmp_path / "no" / "such"), *ECHO).code == 2
    assert "--out must name a file" in holdfast("batch", str(file), "--out", "-", *ECHO).err

    assert file.read_bytes() == before


def test_two_runs_cannot_use_one_results_file(holdfast: Holdfast, file: Path, out: Path) -> None:
    with out.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        ran = holdfast("batch", str(file), *ECHO)

    assert ran.code == 4
    assert "another batch" in ran.err


def test_results_that_cannot_be_written_are_an_error_and_leave_the_file_unchanged(tmp_path: Path) -> None:
    def result(line: int) -> PromptResult:
        return PromptResult(
            line=line, id=None, batch="b", status="done", session_id="s", turn_id="t", model="m", text="x" * 300
        )

    file = ResultFile(tmp_path / "out", "b")
    file.begin([result(1)])
    before = (tmp_path / "out").read_bytes()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(NotSaved):
            file.begin([result(1), result(2), result(3)])
        with pytest.raises(NotSaved):
            for line in range(2, 10):
                file.add(result(line))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        file.close()

    assert (tmp_path / "out").read_bytes().startswith(before)
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


# Bad input.


def test_every_wrong_line_is_named_and_nothing_runs(holdfast: Holdfast, tmp_path: Path, home: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes(
        b'{"prompt": "fine", "id": 7}\n'
        b"not json\n"
        b"\n"
        b'{"prompt": "  "}\n'
        b'{"promt": "x"}\n'
        b'{"prompt": "x", "extra": 1}\n'
        b'{"prompt": "x", "id": 7}\n'
        b"[1]\n"
        b'"\xff"\n'
        b'{"prompt": "x", "model": "gpt"}\n'
        b'{"prompt": NaN}\n' + b"[" * 100_000
    )

    ran = holdfast("batch", str(file), *ECHO)

    assert ran.code == 2
    for number, what in (
        (2, "not JSON"),
        (4, "empty"),
        (5, "unknown field promt"),
        (6, "unknown field extra"),
        (7, "id 7 is already used in line 1"),
        (8, "expected an object"),
        (9, "not UTF-8"),
        (10, "provider:name"),
        (11, "NaN"),
        (12, "nested"),
    ):
        assert f"line {number}: " in ran.err
        assert what in ran.err
    assert "line 3" not in ran.err, "empty lines are ignored"
    assert not (home / "holdfast.db").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["missing.jsonl"], 3),
        (["/"], 2),
        (["{file}", "--workers", "0"], 2),
        (["{file}", "--workers", "many"], 2),
        (["{file}", "--model", "nobody:x"], 2),
        (["{file}", "--name", " "], 2),
        ([], 2),
    ],
)
def test_wrong_usage_has_the_exit_status_of_the_contract(
    holdfast: Holdfast, file: Path, arguments: list[str], code: int
) -> None:
    assert holdfast("batch", *(one.format(file=file) for one in arguments)).code == code


def test_a_file_without_prompts_is_an_error(holdfast: Holdfast, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text("\n\n")

    ran = holdfast("batch", str(file), *ECHO)

    assert ran.code == 2
    assert "contains no prompts" in ran.err


@pytest.mark.process
def test_surrogates_are_preserved(holdfast: Holdfast, tmp_path: Path, out: Path, home: Path) -> None:
    file = write(tmp_path / "p.jsonl", "\ud800 \0 \u202e", "日本語")

    assert holdfast("batch", str(file), *ECHO).code == 0
    assert holdfast("batch", str(file), "--json", *ECHO).json["finished_before"] == 2

    said = [text_of(event.parts) for events in logs(home).values() for event in events if isinstance(event, UserSaid)]
    assert sorted(said) == sorted(["\ud800 \0 \u202e", "日本語"])
    assert results(out)[1]["text"] == "You said: 日本語"


# Progress.


def test_the_progress_line_shows_count_rate_and_time_left() -> None:
    assert progress.format_line("batch", 900, 3, 2000, 500, 20.0).endswith("45%  900/2,000  3 failed  20/s  55 s left")
    assert progress.format_line("batch", 0, 0, 10, 0, 1.0).endswith("  0%  0/10")
    assert progress.format_line("batch", 1, 0, 1000, 0, 10.0).endswith("1/1,000  6.0/min  2 h 46 min left")
    assert progress.format_line("batch", 50, 0, 100, 0, 10.0).endswith("5.0/s  10 s left")
    assert progress.format_duration(200) == "3 min 20 s"


@pytest.mark.process
def test_only_a_terminal_shows_progress(holdfast: Holdfast, file: Path) -> None:
    ours, theirs = os.openpty()
    shown = b""
    with subprocess.Popen(holdfast.command("batch", str(file), *ECHO), env=ENVIRONMENT, stderr=theirs) as process:
        os.close(theirs)
        try:
            while chunk := os.read(ours, 4096):
                shown += chunk
        except OSError:  # the end of a terminal
            pass
    os.close(ours)

    assert process.returncode == 0
    assert "batch ░" in shown.decode("utf-8", "replace") or "batch █" in shown.decode("utf-8", "replace")
    assert shown.endswith(b"\r\x1b[2K"), "and is cleared at the end"
    assert holdfast.process("batch", str(file), *ECHO).err == ""


@pytest.mark.process
def test_imported_sessions_of_a_batch_do_not_run_again(
    holdfast: Holdfast, file: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert holdfast("batch", str(file), "--out", str(out), *ECHO).code == 0
    first = results(out)
    assert holdfast("sessions", "export", "--all", "--out", str(tmp_path / "logs")).code == 0
    elsewhere = Holdfast(tmp_path / "elsewhere", capsys)
    assert elsewhere("sessions", "import", str(tmp_path / "logs")).code == 0

    ran = elsewhere("batch", str(file), "--out", str(tmp_path / "again.jsonl"), *ECHO)

    assert ran.code == 0, ran.err
    assert "(3 finished earlier)" in ran.out
    assert results(tmp_path / "again.jsonl") == first


@pytest.mark.parametrize("change", ["truncated", "appended to", "replaced"])
def test_a_file_that_another_program_changes_is_left_unchanged_with_an_error(tmp_path: Path, change: str) -> None:
    path, mine = tmp_path / "r.jsonl", b"my own notes\n"
    file = ResultFile(path, "b")
    file.begin([])
    file.add(_result(1))
    match change:
        case "truncated":
            os.truncate(path, 3)
        case "appended to":
            with path.open("ab") as stream:
                stream.write(mine)
        case _:
            (tmp_path / "mine").write_bytes(mine)
            (tmp_path / "mine").replace(path)
    left = path.read_bytes()

    with pytest.raises(Conflict, match="another program changed"):
        file.finish()
    file.close()
    assert path.read_bytes() == left


def test_a_file_that_is_deleted_meanwhile_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    file = ResultFile(path, "b")
    file.begin([])
    file.add(_result(1))
    path.unlink()
    file.finish()
    file.close()

    assert [one["line"] for one in results(path)] == [1]


def _result(line: int) -> PromptResult:
    return PromptResult(
        line=line,
        id=None,
        batch="b",
        status="done",
        session_id="hf-1",
        turn_id="turn-1",
        model="scripted:echo",
        text="x",
    )
