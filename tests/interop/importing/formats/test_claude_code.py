"""A project file of Claude Code becomes a session; its subagents become side sessions."""

from pathlib import Path

from holdfast.model.event import Compacted, ModelSaid, Rewound, ToolEnded
from holdfast.model.message import Image, Reasoning, Text, ToolCall
from holdfast.model.session import standing
from holdfast.store.database import Database
from tests.interop import sample_files
from tests.interop.run_import import entries, events, session, taken, texts

ID = "11111111-2222-4333-8444-555555555555"


async def test_the_lines_of_one_reply_are_one_message(database: Database, tmp_path: Path) -> None:
    results = await taken(database, sample_files.claude(tmp_path / f"{ID}.jsonl"))

    assert sum(one.source for one in results) == sum(one.taken for one in results) == 20
    said = [event for event in await events(database, ID) if isinstance(event, ModelSaid)]
    assert said[0].parts == (
        Reasoning("I look.", "claude-code", {"signature": "sig"}),
        Text("Looking."),
        ToolCall("toolu_1", "Bash", '{"command": "ls"}'),
        ToolCall("toolu_2", "Bash", '{"command": "ls"}'),
    )
    assert (said[0].model, said[0].usage.tokens_in, said[0].usage.tokens_out) == ("claude-x", 16, 4)


async def test_parallel_calls_get_their_results(database: Database, tmp_path: Path) -> None:
    await taken(database, sample_files.claude(tmp_path / f"{ID}.jsonl"))

    ended = [event for event in await events(database, ID) if isinstance(event, ToolEnded)]

    assert [(one.call_id, one.outcome) for one in ended] == [("toolu_1", "ok"), ("toolu_2", "failed")]


async def test_an_edited_prompt_undoes_messages_and_keeps_them_in_the_log(database: Database, tmp_path: Path) -> None:
    await taken(database, sample_files.claude(tmp_path / f"{ID}.jsonl"))

    found = await entries(database, ID)

    assert len([entry for entry in found if isinstance(entry.event, Rewound)]) == 1
    all_said, stands = (texts([entry.event for entry in some]) for some in (found, standing(found)))
    assert "user: Now delete it" in all_said and "model: Deleted." in all_said
    assert "user: Now delete it" not in stands and "model: Deleted." not in stands
    assert "user: No, keep it" in stands and "model: One file." in stands
    pictures = [part for entry in found for part in getattr(entry.event, "parts", ()) if isinstance(part, Image)]
    assert pictures == [Image("data:image/png;base64,AAAA", "image/png")]


async def test_a_compaction_increases_the_epoch(database: Database, tmp_path: Path) -> None:
    await taken(database, sample_files.claude(tmp_path / f"{ID}.jsonl"))

    found = await entries(database, ID)

    compacted = next(entry for entry in found if isinstance(entry.event, Compacted))
    assert compacted.event.summary == "This session is being continued. Files were counted."
    assert compacted.event.upto_seq < compacted.seq
    summary = (await session(database, ID)).summary
    assert (summary.epoch, summary.title, summary.source) == (1, "Counting files", "import")


async def test_a_subagent_is_a_session_of_its_parent(database: Database, tmp_path: Path) -> None:
    results = await taken(database, sample_files.claude(tmp_path / f"{ID}.jsonl"))

    helper = await session(database, f"claude-code:{results[1].origin}")
    assert helper.summary.side_of == (await session(database, ID)).id
    assert texts(await events(database, helper.id)) == [
        "user: You are a helper: search",
        "model: ",
        "tool: nothing",
        "model: Nothing found.",
    ]


async def test_a_subagent_in_its_own_file_is_a_session_of_its_parent(database: Database, tmp_path: Path) -> None:
    sample_files.claude(tmp_path / f"{ID}.jsonl")
    agent = sample_files.Claude(ID)
    agent.side = True
    agent.user("Look for dogs", agentId="a1b2")
    agent.assistant(sample_files.words_block("None."), agentId="a1b2")
    sample_files.write_lines(tmp_path / ID / "subagents" / "agent-a1b2.jsonl", agent.lines)

    await taken(database, tmp_path)

    helper = await session(database, f"{ID}/a1b2")
    assert helper.summary.side_of == (await session(database, ID)).id
    assert texts(await events(database, helper.id)) == ["user: Look for dogs", "model: None."]


async def test_an_incomplete_last_line_is_reported_and_imported_the_next_time(
    database: Database, tmp_path: Path
) -> None:
    file = sample_files.claude(tmp_path / f"{ID}.jsonl")
    whole = file.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n", 0, whole.rfind(b'"And now?"'))
    file.write_bytes(whole[: last + 60])

    half = (await taken(database, file))[0]
    file.write_bytes(whole)
    rest = (await taken(database, file))[0]

    assert half.outcome == "new" and any("is incomplete" in note for note in half.notes)
    assert rest.outcome == "extended" and not rest.notes
    assert texts(await events(database, ID))[-2:] == ["user: And now?", "model: Done."]


async def test_a_damaged_line_is_reported_and_the_others_are_imported(database: Database, tmp_path: Path) -> None:
    lines = sample_files.claude(tmp_path / f"{ID}.jsonl").read_bytes().splitlines(keepends=True)
    lines[3] = b"\xff\xfe not json\n"

    result = (await taken(database, made_of(tmp_path / "d" / f"{ID}.jsonl", lines)))[0]

    assert any("line 4" in note for note in result.notes)
    assert result.skipped == 1


def made_of(path: Path, lines: list[bytes]) -> Path:
    path.parent.mkdir()
    path.write_bytes(b"".join(lines))
    return path
