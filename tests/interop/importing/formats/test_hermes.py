"""A state.db of Hermes becomes sessions here: a chain of compactions is one session, and nothing is lost. (promises 5, 16, 17, 23)"""

import itertools
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.engine.context.context import Context
from holdfast.model.event import Compacted, Ended, Forked, Imported, ModelSaid, Rewound, SessionOpened, ToolEnded
from holdfast.model.message import Image, Reasoning, Text, ToolCall
from holdfast.model.session import messages, standing
from holdfast.store.database import Database
from tests.interop import sample_files
from tests.interop.run_import import bring, entries, events, session, taken, texts


@pytest.mark.parametrize("version", sample_files.VERSIONS)
async def test_every_version_of_the_schema_is_read(database: Database, tmp_path: Path, version: int) -> None:
    source = sample_files.hermes_plain(tmp_path / "state.db", version)

    results = await taken(database, source.path)

    assert [(one.origin, one.outcome) for one in results] == [
        ("20260101_000000_aaaaaa", "new"),
        ("20260101_000100_bbbbbb", "new"),
        ("20260101_000200_empty0", "empty"),
    ]
    assert sum(one.source for one in results) == sum(one.taken for one in results) == source.count()
    found = await events(database, "20260101_000000_aaaaaa")
    assert texts(found) == [
        "user: hello",
        "model: hi there",
        "user: list the files",
        "model: ",
        "tool: a.txt\nb.txt",
        "model: two files",
    ]
    summary = (await session(database, "hermes:20260101_000000_aaaaaa")).summary
    assert (summary.source, summary.tokens_out, summary.message_count) == ("import", 20, 6)
    assert summary.tokens_in == (107 if version >= 5 else 100)
    assert summary.title == ("About cats" if version >= 3 else None)
    assert (summary.end_reason, summary.created_at) == ("cli_close", round((sample_files.BEGAN + 10) * 1e6))


async def test_calls_reasoning_and_times_are_kept(database: Database, tmp_path: Path) -> None:
    source = sample_files.Hermes(tmp_path / "state.db")
    source.session("s", model="hermes-4")
    source.say("s", "user", '\x00json:[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:x"}}]')
    source.tool("s", "call_1", "out", reasoning="thinking", reasoning_details='[{"type":"x"}]')

    await taken(database, source.path)
    found = await entries(database, "s")

    said = [entry for entry in found if isinstance(entry.event, ModelSaid)]
    assert said[0].event.parts == (
        Reasoning("thinking", "hermes", {"reasoning_details": '[{"type":"x"}]'}),
        ToolCall("call_1", "terminal", '{"command": "ls"}'),
    )
    assert (said[0].event.model, said[0].event.finish) == ("hermes-4", "tool_calls")
    assert said[0].at == round((sample_files.BEGAN + 12) * 1e6)
    assert found[2].event.parts == (Text("see"), Image("data:x"))  # type: ignore[union-attr]
    imported = found[-1].event
    assert isinstance(imported, Imported)
    assert (imported.format, imported.origin, imported.messages) == ("hermes", "s", 3)


async def test_a_call_during_which_hermes_died_has_an_unknown_outcome(database: Database, tmp_path: Path) -> None:
    await taken(database, sample_files.hermes_plain(tmp_path / "state.db").path)

    found = await events(database, "20260101_000100_bbbbbb")

    assert [event.outcome for event in found if isinstance(event, ToolEnded)] == ["unknown"]
    assert (await session(database, "20260101_000100_bbbbbb")).state == "waiting"


async def test_a_chain_of_compactions_is_one_session_with_every_old_id(database: Database, tmp_path: Path) -> None:
    source = sample_files.hermes_rotated(tmp_path / "state.db")

    results = await taken(database, source.path)

    assert sum(one.taken + one.copied for one in results) == source.count()
    ids = {(await session(database, name)).id for name in ("root", "second", "third", "hermes:second", "hermes:third")}
    assert len(ids) == 1
    found = await events(database, "third")
    assert texts(found) == [f"{who} {n}" for n in range(8) for who in ("user: question", "model: answer")]
    summary = (await session(database, "root")).summary
    assert (summary.epoch, summary.title, summary.tokens_out) == (2, "Long work", 12)


async def test_each_compaction_shows_the_context_that_hermes_had(database: Database, tmp_path: Path) -> None:
    await taken(database, sample_files.hermes_rotated(tmp_path / "state.db").path)

    found = await entries(database, "root")

    compactions = [entry.event for entry in found if isinstance(entry.event, Compacted)]
    assert [one.epoch for one in compactions] == [1, 2]
    assert compactions[0].summary == sample_files.SUMMARY and compactions[1].summary.endswith("And dogs.")
    said = {entry.seq: entry for entry in found}
    for compaction, first in zip(compactions, ("question 5", "question 6"), strict=True):
        assert [said[seq].event.parts[0].text for seq in compaction.pinned] == ["question 0", "answer 0"]  # type: ignore[union-attr]
        kept = [message for message in messages(found) if message.seq > compaction.upto_seq]
        assert kept[0].text == first


@pytest.mark.parametrize(
    ("maker", "ref", "kept"),
    [(sample_files.hermes_rotated, "root", ("6", "7")), (sample_files.hermes_in_place, "c1", ("4", "5"))],
)
async def test_the_model_is_shown_what_hermes_would_have_shown_it(
    database: Database, tmp_path: Path, maker: Callable[[Path], sample_files.Hermes], ref: str, kept: tuple[str, str]
) -> None:
    await taken(database, maker(tmp_path / "state.db").path)

    context = Context(await entries(database, ref)).visible_to("t")

    first, last = kept
    shown = [message.text for message in context]
    assert shown[:2] == ["question 0", "answer 0"]
    assert sample_files.SUMMARY + " And dogs." in shown[2]
    assert shown[3:] == [f"{who} {n}" for n in (first, last) for who in ("question", "answer")]


async def test_subagents_and_branches_are_separate_sessions(database: Database, tmp_path: Path) -> None:
    await taken(database, sample_files.hermes_rotated(tmp_path / "state.db").path)
    root = (await session(database, "root")).id

    assert (await session(database, "helper")).summary.side_of == root
    assert (await session(database, "branch")).summary.parent_id == root
    branch = await events(database, "branch")
    assert isinstance(branch[0], SessionOpened) and isinstance(branch[1], Forked)
    assert texts(branch) == ["user: question 0", "model: another answer"]


async def test_compaction_in_place_keeps_archived_rows_and_undoes_what_was_undone(
    database: Database, tmp_path: Path
) -> None:
    source = sample_files.hermes_in_place(tmp_path / "state.db")

    result = (await taken(database, source.path))[0]

    assert (result.source, result.taken, result.copied) == (source.count(), 16, 8)
    found = await entries(database, "c1")
    all_said = texts([entry.event for entry in found])
    questions = [f"{who} {n}" for n in range(6) for who in ("user: question", "model: answer")]
    assert all_said == [*questions[:8], "user: a mistake", "model: an answer to it", *questions[8:]]
    assert texts([entry.event for entry in standing(found)]) == questions
    assert [type(entry.event) for entry in found if isinstance(entry.event, Rewound | Compacted)] == [
        Rewound,
        Compacted,
        Compacted,
    ]
    assert (await session(database, "c1")).summary.epoch == 2


async def test_a_chain_whose_summary_is_not_recognised_still_loses_nothing(database: Database, tmp_path: Path) -> None:
    source = sample_files.Hermes(tmp_path / "state.db")
    source.session("a")
    for n in range(3):
        source.exchange("a", f"q{n}", f"r{n}")
    source.end("a", "compression")
    source.session("b", parent_session_id="a")
    source.say("b", "user", "In short: q and r.")
    source.exchange("b", "q3", "r3")

    await taken(database, source.path)

    found = await events(database, "a")
    assert [text.partition(": ")[2] for text in texts(found)][-3:] == ["In short: q and r.", "q3", "r3"]
    assert (await session(database, "b")).summary.epoch == 1


async def test_the_file_is_read_while_hermes_has_it_open_and_is_never_written_to(
    database: Database, tmp_path: Path
) -> None:
    source = sample_files.hermes_plain(tmp_path / "h" / "state.db")
    before = {path.name: path.read_bytes() for path in source.path.parent.iterdir() if not path.name.endswith("-shm")}
    assert "state.db-wal" in before

    await taken(database, source.path)

    after = {path.name: path.read_bytes() for path in source.path.parent.iterdir() if not path.name.endswith("-shm")}
    assert after == before
    source.exchange("20260101_000100_bbbbbb", "still here?", "yes")
    assert source.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0, (
        "nothing of ours is in the way"
    )
    assert [one.outcome for one in await taken(database, source.path)] == ["same", "extended", "empty"]


async def test_reading_a_closed_file_creates_no_files_beside_it(database: Database, tmp_path: Path) -> None:
    source = sample_files.hermes_plain(tmp_path / "h" / "state.db")
    source.close()

    await taken(database, source.path)

    assert [path.name for path in source.path.parent.iterdir()] == ["state.db"]


async def test_hermes_may_exit_at_any_moment_of_an_import(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The WAL is then merged into the file and removed."""
    looks, real = itertools.count(), Path.stat
    leaves_at, hermes = -1, None

    def stat(path: Path, **options: bool) -> os.stat_result:
        if path.name.startswith("state.db") and next(looks) == leaves_at and hermes is not None:
            hermes.close()
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    stays = sample_files.hermes_plain(tmp_path / "stays" / "state.db")
    await taken(database, stays.path)
    for leaves_at in range(next(looks)):
        looks, hermes = itertools.count(), sample_files.hermes_plain(tmp_path / str(leaves_at) / "state.db")
        assert {one.outcome for one in await taken(database, hermes.path)} == {"same", "empty"}
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            hermes.count()


async def test_a_newer_version_is_refused_by_its_number(database: Database, tmp_path: Path) -> None:
    source = sample_files.Hermes(tmp_path / "state.db", 23)

    results = await bring(database, source.path)

    assert "version 23" in str(results[0].error) and "22" in str(results[0].error)


async def test_a_session_that_grew_by_a_compaction_grows_here_too(database: Database, tmp_path: Path) -> None:
    source = sample_files.Hermes(tmp_path / "state.db")
    source.session("root")
    for n in range(4):
        source.exchange("root", f"question {n}", f"answer {n}")
    await taken(database, source.path)
    source.end("root", "compression")
    source.session("next", parent_session_id="root")
    source.say("next", "user", sample_files.SUMMARY)
    source.exchange("next", "question 3", "answer 3")
    source.exchange("next", "question 4", "answer 4")

    again = (await taken(database, source.path))[0]

    assert (again.outcome, again.copied) == ("extended", 2)
    found = await events(database, "next")
    assert texts(found) == [f"{who} {n}" for n in range(5) for who in ("user: question", "model: answer")]
    assert (await session(database, "root")).summary.epoch == 1
    assert [one.outcome for one in await taken(database, source.path)] == ["same"]


async def test_a_session_that_continued_after_its_end_is_open_again(database: Database, tmp_path: Path) -> None:
    source = sample_files.hermes_plain(tmp_path / "state.db")
    await taken(database, source.path)
    source.connection.execute("UPDATE sessions SET ended_at = NULL, end_reason = NULL")
    source.exchange("20260101_000000_aaaaaa", "more", "less")

    await taken(database, source.path)

    assert (await session(database, "20260101_000000_aaaaaa")).state == "waiting"
    found = await events(database, "20260101_000000_aaaaaa")
    assert len([event for event in found if isinstance(event, Ended)]) == 1
    assert texts(found)[-2:] == ["user: more", "model: less"]
