"""A ChatGPT export becomes sessions: the branch that is shown, and a fork for each other branch."""

import json
from pathlib import Path

import pytest

from holdfast.interop.importing.formats import chatgpt
from holdfast.model.errors import Corrupt
from holdfast.model.event import Forked, ModelSaid, ToolEnded
from holdfast.model.message import Reasoning, Text, ToolCall
from holdfast.store.database import Database
from tests.interop import sample_files
from tests.interop.run_import import bring, events, session, taken, texts


async def test_the_branch_that_is_shown_is_the_session(database: Database, tmp_path: Path) -> None:
    results = await taken(database, sample_files.chatgpt(tmp_path / "conversations.json"))

    assert [one.origin for one in results] == ["conv-1", "conv-1/u2b", "conv-1/u1b", "conv-2"]
    assert sum(one.source for one in results) == sum(one.taken for one in results) == 12, "each message counts once"
    found = await events(database, "conv-1")
    assert texts(found) == [
        "user: Draw a cat",
        "model: Which colour?",
        "user: Black",
        "model: ",
        "tool: ok",
        "model: Here it is.",
    ]
    assert (await session(database, "conv-1")).summary.title == "A cat"


async def test_other_branches_are_forks_with_their_earlier_messages(database: Database, tmp_path: Path) -> None:
    await taken(database, sample_files.chatgpt(tmp_path / "conversations.json"))

    found = await events(database, "chatgpt:conv-1/u2b")

    assert texts(found) == ["user: Draw a cat", "model: Which colour?", "user: White", "model: A white cat."]
    assert (
        next(event for event in found if isinstance(event, Forked)).parent_id == (await session(database, "conv-1")).id
    )
    other = await events(database, "chatgpt:conv-1/u1b")
    assert texts(other) == ["user: [image file-service://file-1]What is this?"]


async def test_a_message_to_a_tool_is_a_call(database: Database, tmp_path: Path) -> None:
    await taken(database, sample_files.chatgpt(tmp_path / "conversations.json"))

    found = await events(database, "conv-1")

    said = [event for event in found if isinstance(event, ModelSaid)]
    assert said[0].parts == (Text("Which colour?"),) and said[0].model == "gpt-4o"
    assert said[1].parts == (Reasoning("Cats\nBlack.", "chatgpt"), ToolCall("c2", "python", "draw()"))
    assert [(end.call_id, end.name) for end in found if isinstance(end, ToolEnded)] == [("c2", "python")]


async def test_an_invalid_session_is_reported_with_its_position(database: Database, tmp_path: Path) -> None:
    file = sample_files.chatgpt(tmp_path / "conversations.json")
    odd = [None, "words", {"title": "Without a tree", "id": "conv-8"}, {"mapping": {}, "conversation_id": "conv-9"}]
    file.write_text(json.dumps([*json.loads(file.read_text("utf-8")), *odd]), "utf-8")
    before = len(json.loads(file.read_text("utf-8"))) - len(odd)

    results = [one for one in await taken(database, file) if one.outcome == "empty"]

    assert [one.origin for one in results] == [f"number {before + 1}", f"number {before + 2}", "conv-8", "conv-9"]
    for number, one in enumerate(results, before + 1):
        assert one.notes[0] == f"not imported: entry {number} of the list, which has no messages"


async def test_a_truncated_export_is_imported_up_to_the_damage(database: Database, tmp_path: Path) -> None:
    file = sample_files.chatgpt(tmp_path / "conversations.json")
    whole = file.read_bytes()
    file.write_bytes(whole[: whole.index(b'"conv-2"')])

    results = await bring(database, file)

    assert [one.taken.origin for one in results if one.taken is not None] == ["conv-1", "conv-1/u2b", "conv-1/u1b"]
    assert "truncated in session 2" in str(results[-1].error) and str(file) in str(results[-1].error)
    file.write_bytes(whole)
    assert [one.outcome for one in await taken(database, file)] == ["same", "same", "same", "new"]


async def test_an_invalid_session_does_not_stop_the_others(database: Database, tmp_path: Path) -> None:
    strange = [{"mapping": {"x": 3, "y": {"message": [], "parent": "y"}}}, 5, {"mapping": {}, "id": "e"}]
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([*strange, *sample_files.chatgpt_sessions()]))

    results = await bring(database, file)

    assert [one.error for one in results if one.error is not None] == []
    assert {one.taken.origin for one in results if one.taken and one.taken.outcome == "new"} >= {"conv-1", "conv-2"}


async def test_a_session_alone_in_its_file_is_read(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    file.write_text(json.dumps(sample_files.chatgpt_sessions()[1], indent=2))

    assert [one.origin for one in await taken(database, file)] == ["conv-2"]


@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_the_list_is_read_piece_by_piece(tmp_path: Path, piece: int) -> None:
    values: list[object] = [{"a": "x" * n, "b": ['"]}[{\\', n]} for n in range(60)]
    file = tmp_path / "x.json"
    file.write_text(" \n" + json.dumps(values, indent=1) + "\n")

    assert [value for value, _ in chatgpt.read_values(file, piece)] == values

    file.write_text(json.dumps(values)[:-30])
    found = []
    with pytest.raises(Corrupt):
        for value, _ in chatgpt.read_values(file, piece):
            found.append(value)
    assert found == values[:59]
