"""A rollout of Codex becomes a session: its items as messages, its calls with their results."""

from pathlib import Path

from holdfast.model.event import Compacted, ModelSaid, Rewound, ToolEnded, Usage, UserSaid
from holdfast.model.message import Image, Reasoning, Text, ToolCall
from holdfast.model.session import standing
from holdfast.store.database import Database
from tests.interop import sample_files
from tests.interop.run_import import entries, events, session, taken, texts


async def test_items_become_messages(database: Database, tmp_path: Path) -> None:
    result = (await taken(database, sample_files.codex(tmp_path / "rollout-x.jsonl")))[0]

    found = await events(database, sample_files.CODEX_ID)
    said = [event for event in found if isinstance(event, ModelSaid)]
    assert (result.origin, result.source, result.taken) == (sample_files.CODEX_ID, 9, 9)
    assert said[0].parts == (
        Reasoning("I should look.", "codex", {"encrypted_content": "gAAA"}),
        ToolCall("call_a", "shell", '{"command":["ls"]}'),
        ToolCall("call_b", "shell", '{"command":["pwd"]}'),
    )
    assert said[0].usage == Usage(tokens_in=100, tokens_out=9, cache_read=40, reasoning=3)
    assert said[0].model == "gpt-5-codex"
    assert [(end.call_id, end.outcome) for end in found if isinstance(end, ToolEnded)] == [
        ("call_a", "ok"),
        ("call_b", "failed"),
        ("call_c", "unknown"),
    ]
    summary = (await session(database, f"codex:{sample_files.CODEX_ID}")).summary
    assert (summary.title, summary.tokens_in, summary.tokens_out) == ("How many files are here?", 100, 9)


async def test_rollouts_of_the_first_releases_are_read(database: Database, tmp_path: Path) -> None:
    result = (await taken(database, sample_files.codex_old(tmp_path / "rollout-y.jsonl")))[0]

    assert result.source == result.taken == 2
    assert texts(await events(database, "0199-old")) == ["user: Hello?", "model: Hello!"]


async def test_a_compaction_pins_the_messages_that_codex_kept(database: Database, tmp_path: Path) -> None:
    kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "How many files are here?"}]}
    bridge = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Summary: two files."}]}
    lines = [
        *sample_files.codex_lines()[:12],
        sample_files.codex_line(20, "compacted", {"message": "", "replacement_history": [kept, bridge]}),
        sample_files.codex_said(21, "user", "And now?"),
        sample_files.codex_said(22, "assistant", "Still two."),
    ]

    await taken(database, sample_files.write_lines(tmp_path / "r.jsonl", lines))

    found = await entries(database, sample_files.CODEX_ID)
    compacted = next(entry.event for entry in found if isinstance(entry.event, Compacted))
    assert (compacted.epoch, compacted.summary) == (1, "Summary: two files.")
    pinned = [entry.event for entry in found if entry.seq in compacted.pinned]
    assert [event.parts for event in pinned if isinstance(event, UserSaid)] == [(Text("How many files are here?"),)]


async def test_a_compaction_that_cannot_be_read_hides_nothing(database: Database, tmp_path: Path) -> None:
    lines = [
        *sample_files.codex_lines()[:12],
        sample_files.codex_line(20, "compacted", {"message": "", "replacement_history": None}),
    ]

    result = (await taken(database, sample_files.write_lines(tmp_path / "r.jsonl", lines)))[0]

    assert any("compaction" in note for note in result.notes)
    assert (await session(database, sample_files.CODEX_ID)).summary.epoch == 0


async def test_turns_that_were_rolled_back_no_longer_count(database: Database, tmp_path: Path) -> None:
    lines = [
        *sample_files.codex_lines()[:12],
        sample_files.codex_said(20, "user", "Delete them"),
        sample_files.codex_said(21, "assistant", "Done."),
        sample_files.codex_line(22, "event_msg", {"type": "thread_rolled_back", "num_turns": 1}),
        sample_files.codex_said(23, "user", "Keep them"),
        sample_files.codex_said(24, "assistant", "Kept."),
    ]

    await taken(database, sample_files.write_lines(tmp_path / "r.jsonl", lines))

    found = await entries(database, sample_files.CODEX_ID)
    assert len([entry for entry in found if isinstance(entry.event, Rewound)]) == 1
    assert "user: Delete them" in texts([entry.event for entry in found])
    stands = texts([entry.event for entry in standing(found)])
    assert stands[-3:] == ["model: Two files.", "user: Keep them", "model: Kept."]


async def test_images_subagents_and_unknown_items(database: Database, tmp_path: Path) -> None:
    await taken(database, sample_files.codex(tmp_path / "a.jsonl"))
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": sample_files.CODEX_ID, "depth": 1}}}
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA"}
    lines = [
        sample_files.codex_line(
            0, "session_meta", {"id": "child", "timestamp": sample_files.iso(0), "source": spawned}
        ),
        sample_files.codex_line(1, "response_item", {"type": "message", "role": "user", "content": [picture]}),
        sample_files.codex_line(
            2, "response_item", {"type": "web_search_call", "id": "w", "action": {"query": "cats"}}
        ),
        sample_files.codex_line(3, "response_item", {"type": "hologram", "data": 1}),
    ]

    result = (await taken(database, sample_files.write_lines(tmp_path / "b.jsonl", lines)))[0]

    assert (result.source, result.taken, result.skipped) == (3, 2, 1)
    assert result.notes == ("not imported: an item of type 'hologram'",)
    child = await session(database, "child")
    assert child.summary.side_of == (await session(database, sample_files.CODEX_ID)).id
    assert (await events(database, "child"))[2].parts == (Image("data:image/png;base64,AA"),)  # type: ignore[union-attr]
