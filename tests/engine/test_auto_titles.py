"""Automatic titles: from a model or the first words, without delaying anything."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.engine.auto_titles import Titles, clean_title, first_words
from holdfast.model.errors import Unreachable
from holdfast.model.event import Titled, Usage
from holdfast.model.message import Text
from holdfast.model.provider import AskModel, Delta, ModelReply, ModelRequest, StreamRestarted
from holdfast.store.repos import sessions
from tests.engine.stage import Stage, set_up


def answering(text: str, asked: list[ModelRequest]) -> AskModel:
    async def ask(request: ModelRequest) -> AsyncIterator[Delta | StreamRestarted | ModelReply]:
        asked.append(request)
        yield ModelReply(parts=(Text(text),), model="m", finish="stop", usage=Usage(tokens_in=1000, tokens_out=5))

    return ask


async def failing(request: ModelRequest) -> AsyncIterator[Delta | StreamRestarted | ModelReply]:
    if request:
        raise Unreachable("nobody is there")
    yield ModelReply(parts=(), model="m", finish="stop")


async def titled(stage: Stage, titles: Titles, session_id: str) -> str | None:
    titles.give(session_id)
    titles.give(session_id)
    async with asyncio.timeout(10):
        while titles.is_at_work:
            await asyncio.sleep(0)
    return (await stage.engine.read(session_id))[0].summary.title


async def test_a_model_titles_the_session_and_its_usage_is_not_counted(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    session = await stage.session()
    await stage.play(session.id, "How do lighthouses work?")
    before = (await stage.engine.read(session.id))[0].summary
    asked: list[ModelRequest] = []

    title = await titled(
        stage, Titles(stage.engine.services, answering('"Lighthouses".\n', asked), lambda _: False), session.id
    )

    assert title == "Lighthouses"
    after = (await stage.engine.read(session.id))[0].summary
    assert (after.tokens_in, after.turn_count, after.message_count) == (before.tokens_in, 1, 2)
    [request] = asked
    assert "How do lighthouses work?" in request.messages[0].text
    assert "You said: How do lighthouses work?" in request.messages[0].text
    assert Titled(title="Lighthouses", by="model") in await stage.log(session.id)


async def test_small_models_are_not_called_and_the_first_words_are_used(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    session = await stage.session()
    await stage.play(session.id, "How do lighthouses of the north coast work?")

    title = await titled(stage, Titles(stage.engine.services, failing, lambda _: True), session.id)

    assert title == "How do lighthouses of the north…"


async def test_a_model_that_fails_only_logs_a_line(
    tmp_path: Path, stages: list[Stage], caplog: pytest.LogCaptureFixture
) -> None:
    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    session = await stage.session()
    await stage.play(session.id, "Hello")
    caplog.set_level("INFO")

    assert await titled(stage, Titles(stage.engine.services, failing, lambda _: False), session.id) is None

    assert any("got no title: nobody is there" in record.getMessage() for record in caplog.records)
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_a_title_set_by_a_user_is_kept(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    session = await stage.session()
    await stage.play(session.id, "Hello")
    asked: list[ModelRequest] = []

    async def slow(request: ModelRequest) -> AsyncIterator[Delta | StreamRestarted | ModelReply]:
        await stage.database.write(sessions.rename, session.id, "Mine", at=1)
        async for item in answering("Another", asked)(request):
            yield item

    assert await titled(stage, Titles(stage.engine.services, slow, lambda _: False), session.id) == "Mine"
    assert (
        await titled(stage, Titles(stage.engine.services, answering("Another", []), lambda _: False), session.id)
        == "Mine"
    )


async def test_a_session_without_a_reply_stays_untitled(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    session = await stage.session()

    assert await titled(stage, Titles(stage.engine.services, failing, lambda _: True), session.id) is None


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Lighthouses at night", "Lighthouses at night"),
        ('\n"Quoted words."\n\nAnd an explanation', "Quoted words"),
        ("**Title:** Ships", "Ships"),
        ("", ""),
        ("word " * 100, ""),
        ("\x1b[31mred", "[31mred"),
    ],
)
def test_the_reply_of_a_model_is_cleaned(answer: str, title: str) -> None:
    assert clean_title(answer) == title


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("Hello", "Hello"),
        ("one two three four five six seven", "one two three four five six…"),
        ("  \n ", ""),
        ("x" * 99, "x" * 60 + "…"),
    ],
)
def test_the_first_words_make_a_title(words: str, title: str) -> None:
    assert first_words(words) == title
