"""Memory on platforms: for the person of a direct chat, never in a group."""

from pathlib import Path

from holdfast.model.event import UserSaid
from holdfast.model.memory.fact import NewFact
from holdfast.model.memory.owner import MemoryPlace
from holdfast.store.repos import aliases, memory
from tests.engine.stage import Stage
from tests.engine.turn.test_memory import stage_with_memory
from tests.fakes.channel import FakeChannel
from tests.gateway.gateway_fixture import run_gateway

BOTH = {"allow": ["alice", "bob"]}


async def save(stage: Stage, person: str, text: str) -> None:
    new = NewFact(place=MemoryPlace(f"fake:{person}"), scope="user", text=text, author=person)
    await stage.database.write(memory.add, new, seq=0, at=1)


async def test_a_direct_chat_has_the_facts_of_its_person_and_a_group_has_none(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await stage_with_memory(tmp_path, model="echo")
    await save(stage, "alice", "Alice's secret")
    await save(stage, "bob", "Bob's secret")
    async with run_gateway(tmp_path, channel, stage=stage, **BOTH) as fixture:
        await channel.say("Hello", chat="direct")
        await fixture.replies(1)
        await channel.say("Hello", chat="group", private=False)
        await fixture.replies(2)
        await channel.say("Hello", chat="other", person="bob")
        await fixture.replies(3)
        await channel.say("/memory", chat="direct")
        await fixture.replies(4)
        await channel.say("/memory", chat="group", private=False)
        listed = await fixture.replies(5)
        group = await stage.database.read(aliases.get_channel_session, "fake:group")

    told = [request.system for request in stage.requests]
    assert [("Alice's" in text, "Bob's" in text) for text in told] == [(True, False), (False, False), (False, True)]
    assert "Alice's secret" in listed[3]
    assert "memory is off in this chat" in listed[4]
    assert [event.shared for event in await stage.log(group or "") if isinstance(event, UserSaid)] == [True]


async def test_a_chat_that_continues_the_session_of_another_has_no_memory(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await stage_with_memory(tmp_path, model="echo")
    await save(stage, "alice", "Alice's secret")
    async with run_gateway(tmp_path, channel, stage=stage, allow=["alice", "bob"], owners=["alice"]) as fixture:
        await channel.say("Hello", chat="of-bob", person="bob")
        await fixture.replies(1)
        of_bob = await stage.database.read(aliases.get_channel_session, "fake:of-bob")
        await channel.say("Hello", chat="of-alice")
        await fixture.replies(2)
        await channel.say(f"/resume {of_bob}", chat="of-alice")
        await fixture.replies(3)
        await channel.say("What do you know?", chat="of-alice")
        await fixture.replies(4)

    assert "secret" in stage.requests[1].system
    assert "secret" not in stage.requests[-1].system
