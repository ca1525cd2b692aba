"""A call that is interrupted counts for the model that was asked, however it ends."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.engine.spending.report import report_session
from holdfast.engine.streaming.bus import LiveText
from holdfast.model.errors import Unreachable
from holdfast.model.event import ModelSaid, TurnEnded
from holdfast.model.provider import FallbackAsked, ModelRequest, ReplyItem, StreamRestarted, TextDelta
from holdfast.providers.scripted import ScriptStep
from holdfast.store.repos import log
from tests.engine.stage import Stage, set_up


async def turns_and_calls(stage: Stage, session_id: str) -> dict[str, tuple[int, int]]:
    """How many turns and calls the session has had, by model."""
    at = stage.engine.services.clock.now()
    found = await report_session(stage.database, stage.engine.meter, session_id, at=at)
    return {model: (one.turns, one.calls) for model, one in found.by_model.items()}


async def test_a_reply_that_a_person_stopped(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="One two three four", hang=True)))
    session = await stage.session()
    async for item in stage.say(session.id, "Count"):
        if isinstance(item, LiveText) and item.kept:
            draft = await stage.database.read(log.get_draft, session.id)
            assert draft is not None
            assert draft.called == "play", "another worker attributes it, if this one is killed"
            await stage.engine.interrupt(session.id)

    assert await turns_and_calls(stage, session.id) == {"play": (1, 1)}


async def test_a_call_that_a_person_stopped_before_its_first_word(tmp_path: Path, stages: list[Stage]) -> None:
    asked = asyncio.Event()

    async def silent(request: ModelRequest) -> AsyncIterator[ReplyItem]:
        asked.set()
        await asyncio.Event().wait()
        yield TextDelta("")

    stages.append(stage := await set_up(tmp_path, ask=silent, model="test:asked"))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Count"))
    await asked.wait()
    await stage.engine.interrupt(session.id)
    await turn

    assert await turns_and_calls(stage, session.id) == {"test:asked": (1, 0)}


@pytest.mark.parametrize("said", ["", "One two"])
async def test_a_call_that_failed_counts_for_the_fallback_that_was_asked_last(
    tmp_path: Path, stages: list[Stage], said: str
) -> None:
    async def ask(request: ModelRequest) -> AsyncIterator[ReplyItem]:
        yield TextDelta("Zero")
        yield StreamRestarted("away")
        yield FallbackAsked("test:second")
        yield TextDelta(said)
        raise Unreachable("away")

    stages.append(stage := await set_up(tmp_path, ask=ask, model="first"))
    session = await stage.session()
    await stage.play(session.id, "Count")

    assert await turns_and_calls(stage, session.id) == {"test:second": (1, 1 if said else 0)}


async def test_a_turn_with_complete_replies_names_no_unanswered_model(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="One.")))
    session = await stage.session()
    *_, said, ended = await stage.play(session.id, "Count")

    assert isinstance(said, ModelSaid)
    assert isinstance(ended, TurnEnded)
    assert ended.called == ""
