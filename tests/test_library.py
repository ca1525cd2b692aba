"""`holdfast.open()`, as the page for library users shows it."""

from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.engine.streaming.bus import LiveText
from holdfast.library import LibrarySession
from holdfast.model.entry import Entry
from holdfast.model.errors import Conflict, Invalid
from holdfast.model.event import ApprovalAsked, GoalSet, ToolEnded
from holdfast.model.message import text_of

pytestmark = pytest.mark.process


async def test_a_program_gets_or_creates_a_session_by_its_own_key(tmp_path: Path) -> None:
    async with holdfast.open(home=tmp_path, model="scripted:echo") as hf:
        session = await hf.session(key="notes")
        kinds = [item.kind async for item in session.say("Hello") if isinstance(item, Entry)]
    async with holdfast.open(home=tmp_path, model="scripted:echo") as hf:
        again = await hf.session(key="notes")
        live = [item.text async for item in again.say("And again") if isinstance(item, LiveText)]
        said = [message.text for message in await again.messages()]

    assert again.id == session.id
    assert kinds == ["turn_started", "user_said", "model_said", "turn_ended"]
    assert "".join(live) == "You said: And again"
    assert said == ["Hello", "You said: Hello", "And again", "You said: And again"]


async def test_a_program_can_open_a_session_by_reference_or_start_a_new_one(tmp_path: Path) -> None:
    async with holdfast.open(f"sqlite:///{tmp_path}/mine.db", home=tmp_path, model="scripted:echo") as hf:
        one = await hf.session(title="Plans")
        other = await hf.session()
        found = await hf.session("Plans")

    assert found.id == one.id != other.id
    assert (tmp_path / "mine.db").exists()


async def test_a_model_that_does_not_exist_is_refused_at_once_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="unknown:x"):
        async with holdfast.open(home=tmp_path, model="unknown:x"):
            pass
    async with holdfast.open(home=tmp_path, model="scripted:echo") as hf:
        with pytest.raises(Invalid, match="unknown:x"):
            await hf.session(model="unknown:x")


async def test_a_program_sets_pauses_resumes_and_clears_a_goal(tmp_path: Path) -> None:
    async with holdfast.open(home=tmp_path, model="scripted:echo") as hf:
        session = await hf.session()
        async with aclosing(session.set_goal("Write the notes", max_turns=5)) as items:
            first = await anext(items)
        states = [(await change()).state for change in (session.pause_goal, session.resume_goal, session.clear_goal)]
        goal = await session.goal()

    assert isinstance(first, Entry) and isinstance(first.event, GoalSet)
    assert states == ["paused", "active", "cleared"]
    assert goal is not None and (goal.text, goal.max_turns, goal.state) == ("Write the notes", 5, "cleared")


def risky(folder: Path, name: str) -> str:
    """A message that makes the model run a command that needs approval."""
    return f'Go\nuse tool terminal {{"command": "rm -r {folder / name}"}}'


async def outcomes(session: LibrarySession, said: str, **answer: Any) -> list[tuple[str, str]]:
    """Send the message, answer each question like this, and return the outcomes of the calls."""
    found = []
    async for item in session.say(said):
        if isinstance(item, Entry) and isinstance(item.event, ApprovalAsked):
            [question] = await session.questions()
            await session.answer(question, **answer)
            found.append(("asked", question.proposal.command))
        if isinstance(item, Entry) and isinstance(item.event, ToolEnded):
            found.append((item.event.outcome, text_of(item.event.parts)))
    return found


async def test_a_program_denies_a_call_with_a_reason_for_the_model(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    async with holdfast.open(home=tmp_path / "home", model="scripted:tools") as hf:
        session = await hf.session(workdir=tmp_path)
        _, (outcome, told) = await outcomes(session, risky(tmp_path, "old"), allowed=False, reason="it is still used")

    assert outcome == "denied"
    assert "Approval was denied: it is still used" in told
    assert (tmp_path / "old").exists()


@pytest.mark.parametrize(
    ("scope", "match", "asked"), [("once", "exact", 4), ("session", "exact", 2), ("always", "prefix", 1)]
)
async def test_a_program_allows_calls_once_for_the_session_or_always(
    tmp_path: Path, scope: str, match: str, asked: int
) -> None:
    told: list[tuple[str, str]] = []
    async with holdfast.open(home=tmp_path / "home", model="scripted:tools") as hf:
        for _ in range(2):
            session = await hf.session(workdir=tmp_path)
            for _ in range(2):
                (tmp_path / "old").mkdir()
                told += await outcomes(session, risky(tmp_path, "old"), allowed=True, scope=scope, match=match)

    assert not (tmp_path / "old").exists()
    assert [kind for kind, _ in told].count("asked") == asked
    assert [kind for kind, _ in told].count("ok") == 4


async def test_an_unsafe_rule_is_refused_and_the_question_stays_open(tmp_path: Path) -> None:
    async with holdfast.open(home=tmp_path / "home", model="scripted:tools") as hf:
        session = await hf.session(workdir=tmp_path)
        async for item in session.say(risky(tmp_path, "old")):
            if isinstance(item, Entry) and isinstance(item.event, ApprovalAsked):
                [question] = await session.questions()
                for wrong in (
                    {"allowed": True, "scope": "always", "match": "tool"},
                    {"allowed": True, "scope": "forever"},
                    {"allowed": False, "scope": "always"},
                ):
                    with pytest.raises(Invalid):
                        await session.answer(question, **wrong)  # type: ignore[arg-type]
                assert len(await session.questions()) == 1
                await session.answer(question, allowed=False)


async def test_a_program_lists_and_changes_remembered_facts(tmp_path: Path) -> None:
    async with holdfast.open(home=tmp_path, model="scripted:echo") as hf:
        fact = await hf.memory.add("likes tea")
        better = await hf.memory.correct(fact.id, "likes coffee")
        found = [one.text for one in await hf.memory.list("COFFEE")]
        with pytest.raises(Conflict, match=f"{better.id} is the newer version"):
            await hf.memory.correct(fact.id, "likes milk")
        assert await hf.memory.forget(better.id) == 2
        assert await hf.memory.list() == []

    assert found == ["likes coffee"]
