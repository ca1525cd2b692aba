"""A command that needs a choice waits for the person's next message, and has no effect before."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.process_lookup import current_identity
from holdfast.processes.registry import ProcessLimits, ProcessRegistry
from holdfast.store.repos import aliases, sessions
from tests.engine.stage import set_up
from tests.fakes.channel import FakeChannel
from tests.gateway.gateway_fixture import GatewayFixture, run_gateway

pytestmark = pytest.mark.process


@asynccontextmanager
async def with_process(
    folder: Path, channel: FakeChannel
) -> AsyncIterator[tuple[GatewayFixture, ProcessRegistry, str]]:
    """A chat whose session has a background process."""
    stage = await set_up(folder, model="echo")
    limits = ProcessLimits(ttl_seconds=3600, output_bytes=1 << 20)
    registry = ProcessRegistry(
        stage.database, stage.engine.services.clock, current_identity(), folder, {"PATH": "/usr/bin:/bin"}, limits
    )
    async with run_gateway(folder, channel, stage=stage, registry=registry) as fixture:
        await channel.say("hello")
        await fixture.replies(1)
        session_id = str(await fixture.database.read(aliases.get_channel_session, "fake:c1"))
        await registry.start("sleep 300", folder, session_id)
        try:
            yield fixture, registry, session_id
        finally:
            for process in await registry.list():
                await registry.stop(process, "the test is over", grace_seconds=0)


@pytest.mark.parametrize(
    ("answer", "moved", "living"), [("stop", True, []), ("Keep", True, ["before"]), ("move", True, ["after"])]
)
async def test_new_with_running_processes_waits_for_the_answer_in_the_next_message(
    tmp_path: Path, answer: str, moved: bool, living: list[str]
) -> None:
    channel = FakeChannel(text=2000)
    async with with_process(tmp_path, channel) as (fixture, registry, before):
        await channel.say("/new A title")
        question = (await fixture.replies(2))[1]
        assert await fixture.database.read(aliases.get_channel_session, "fake:c1") == before, "no effect yet"
        assert len(await registry.list(session_id=before)) == 1
        await channel.say(answer)
        await fixture.replies(3)
        after = str(await fixture.database.read(aliases.get_channel_session, "fake:c1"))
        title = (await fixture.database.read(sessions.get, after)).summary.title
        left = {"before": await registry.list(session_id=before), "after": await registry.list(session_id=after)}

    assert "stop: " in question
    assert "cancel: change nothing" in question
    assert "A new session" not in question
    assert (after != before, title) == (moved, "A title")
    assert [name for name, found in left.items() if found] == living


@pytest.mark.parametrize(("answer", "count"), [("cancel", 3), ("what is the time?", 4)])
async def test_new_that_is_not_answered_with_a_choice_changes_nothing(tmp_path: Path, answer: str, count: int) -> None:
    channel = FakeChannel(text=2000)
    async with with_process(tmp_path, channel) as (fixture, registry, before):
        await channel.say("/new")
        await fixture.replies(2)
        await channel.say(answer)
        replies = await fixture.replies(count)
        await channel.say("stop", message="later")
        later = (await fixture.replies(count + 1))[-1]

        assert await fixture.database.read(aliases.get_channel_session, "fake:c1") == before
        assert len(await registry.list(session_id=before)) == 1
    assert replies[2] == "/new was cancelled; nothing was changed."
    assert later == "You said: stop", "the text goes to the model again"
