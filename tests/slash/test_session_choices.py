"""The choices that slash commands offer."""

import pytest

from holdfast.engine.admission.open_session import OpenRequest
from holdfast.slash import registry, session_choices
from holdfast.slash.format import DAY, HOUR, MICROSECONDS, format_local_time, relative_time
from holdfast.slash.session_choices import HERE
from tests.slash.conftest import TestContext


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (HOUR - 1, "59 min ago"),
        (HOUR, "1 h ago"),
        (DAY, "1 d ago"),
        (31 * DAY - 1, "30 d ago"),
    ],
)
def test_a_relative_time_has_one_unit(seconds: int, words: str) -> None:
    now = 10**15

    assert relative_time(now - seconds * MICROSECONDS, now) == words


def test_a_time_of_more_than_a_month_ago_is_a_date() -> None:
    now, at = 10**15, 10**15 - 40 * DAY * MICROSECONDS

    assert relative_time(at, now) == format_local_time(at)[:10]


async def test_sessions_of_this_directory_are_offered_first(context: TestContext) -> None:
    here = await context.engine.open(OpenRequest(source="chat", title="Here", workdir=context.workdir))
    elsewhere = await context.engine.open(OpenRequest(source="run", title="Elsewhere", workdir=context.workdir / "x"))

    await registry.run(context, "/resume")

    assert [choice.value for choice in context.offered] == [here.session.id, elsewhere.session.id]
    assert [choice.tags for choice in context.offered] == [(HERE, "chat"), ("run",)]
    assert "Here · just now · 0 messages · chat · " in context.offered[0].label


async def test_chats_are_offered_before_newer_sessions_of_other_sources(
    context: TestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_choices, "OFFERED", 2)
    folders = (context.workdir, context.workdir / "x")
    chats = [await context.engine.open(OpenRequest(source="chat", workdir=folder)) for folder in folders]
    for folder in (*folders, *folders):
        await context.engine.open(OpenRequest(source="batch", workdir=folder))

    await registry.run(context, "/resume")

    tags = [(HERE, "chat"), (HERE, "batch"), ("chat",), ("batch",)]
    assert [choice.tags for choice in context.offered] == tags
    assert [context.offered[0].value, context.offered[2].value] == [chat.session.id for chat in chats]


async def test_the_models_of_the_settings_and_of_recent_sessions_are_offered(context: TestContext) -> None:
    await context.engine.open(OpenRequest(source="chat", model="scripted:tools"))

    await registry.run(context, "/model")

    assert [choice.value for choice in context.offered] == ["scripted:echo", "scripted:tools"]
    assert context.last == "Model: scripted:echo. Change it with /model PROVIDER:NAME."


async def test_a_search_shows_a_few_hits_of_each_session(context: TestContext) -> None:
    for number in range(5):
        await registry.run(context, "/new")
        context.session_id = None
        await context.say_text(f"lighthouse {number}")
        await context.engine.settled()
    many = context.session_id
    for _ in range(6):
        await context.say_text("lighthouse again")
        await context.engine.settled()

    await registry.run(context, "/search lighthouse")

    assert context.last.count("\nhf-") + context.last.startswith("hf-") == 5
    assert context.last.startswith(str(many))
    assert "more in this session" in context.last
