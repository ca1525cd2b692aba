"""End to end over a platform in memory: messages are deduplicated, replies are delivered at least once."""

import asyncio
import json
from pathlib import Path

import pytest

from holdfast.engine.admission.open_session import OpenRequest
from holdfast.gateway.port import DeliveryUnknown, Rejected, RetryLater
from holdfast.model.errors import Conflict
from holdfast.model.event import KIND_OF, UserSaid
from holdfast.model.message import text_of
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import aliases, contacts, inbox, outbox, platforms, sessions
from holdfast.tasks import stop
from tests.engine.stage import Stage, gone, set_up
from tests.fakes.channel import FakeChannel
from tests.gateway.gateway_fixture import GatewayFixture, run_gateway


async def said(fixture: GatewayFixture, chat: str = "c1") -> list[str]:
    """The user messages of the chat's current session."""
    session_id = await fixture.database.read(aliases.get_channel_session, f"fake:{chat}")
    assert session_id is not None
    return [text_of(e.parts) for e in await fixture.stage.log(session_id) if isinstance(e, UserSaid)]


async def test_a_message_is_answered_where_it_was_written(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        message = await channel.say("Hello there")
        replies = await fixture.replies(1)

    assert "Hello there" in replies[0]
    assert channel.arrived[0].chat == "c1"
    assert channel.arrived[0].reply_to == message


async def test_promise_21_a_redelivered_message_is_one_turn_also_after_a_restart(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    async with run_gateway(tmp_path, channel, stage=stage) as fixture:
        for _ in range(5):
            await channel.say("once", message="m1")
        await fixture.replies(1)
    async with run_gateway(tmp_path, channel, stage=stage) as fixture:
        for _ in range(5):
            await channel.say("once", message="m1")
        await channel.say("twice", message="m2")
        await fixture.replies(2)

        assert await said(fixture) == ["once", "twice"]
    assert len(channel.arrived) == 2


async def test_the_same_id_with_another_text_does_not_count(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("first", message="m1")
        await channel.say("another", message="m1")
        await channel.say("end", message="m2")
        await fixture.replies(2)

        assert await said(fixture) == ["first", "end"]


async def test_messages_of_a_chat_keep_their_order_and_all_are_answered(tmp_path: Path) -> None:
    channel = FakeChannel(tells_queued=False)
    async with run_gateway(tmp_path, channel) as fixture:
        for number in range(30):
            await channel.say(f"number {number}", message=f"m{number}")
        replies = await fixture.replies(30)

        assert await said(fixture) == [f"number {number}" for number in range(30)]
        for number, reply in enumerate(replies):
            assert f"number {number}" in reply


async def test_each_chat_has_its_own_session(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("in one", chat="c1")
        await channel.say("in two", chat="c2")
        await fixture.replies(2)

        assert await said(fixture, "c1") == ["in one"]
        assert await said(fixture, "c2") == ["in two"]


async def test_a_message_during_a_turn_is_queued_and_the_person_is_told(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(
        tmp_path,
        channel,
        ScriptStep(call=(ScriptedCall("sleep"),)),
        ScriptStep(say="one"),
        ScriptStep(say="two"),
        ScriptStep(say="three"),
    ) as fixture:
        await channel.say("first")
        await fixture.stage.hanging_tool.sleeping.wait()
        await channel.say("second")
        await channel.say("third")
        told = await fixture.replies(2)

        assert told == ["Queued at position 1.", "Queued at position 2."]
        assert len(await said(fixture)) == 1


async def test_promise_21_a_payload_that_cannot_be_parsed_is_stored_and_blocks_nothing(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.posted.put("no json at all")
        await channel.posted.put(b"\xff\xfe\x00 no text")
        await channel.posted.put(json.dumps({"chat": "", "message": "m"}))
        await channel.say("still there?")
        await fixture.replies(1)

        dead = await fixture.dead()
        assert len(dead) == 3
        assert {json.loads(message.payload) for message in dead} >= {"no json at all", "\udcff\udcfe\x00 no text"}
        assert all(message.outcome for message in dead)
    assert len(channel.acknowledged) == 4


async def test_a_message_is_acknowledged_only_after_it_is_stored(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("kept", message="m1")
        await channel.until(lambda: bool(channel.acknowledged))

        found = await fixture.database.read(platforms.get, "fake")
        assert found is not None
        assert (found.received, found.position, found.state) == (1, "1", "connected")


async def test_a_reply_that_is_not_accepted_is_retried_and_later_ones_wait(tmp_path: Path) -> None:
    channel = FakeChannel(tells_queued=False)
    channel.results = [RetryLater("too many"), RetryLater("still too many", after_seconds=0.1)]
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("one", message="1")
        await channel.say("two", message="2")
        replies = await fixture.replies(2)

    assert "one" in replies[0]
    assert "two" in replies[1]


async def test_a_rejected_reply_is_kept_and_does_not_block_the_next_one(tmp_path: Path) -> None:
    channel = FakeChannel(tells_queued=False)
    channel.results = [Rejected("the chat is gone")]
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("one", message="1")
        await channel.say("two", message="2")
        await fixture.replies(1)
        undelivered = await fixture.undelivered()

        assert [(row.state, row.error) for row in undelivered] == [("failed", "the chat is gone")]
        await fixture.database.write(outbox.replay, undelivered[0], at=fixture.stage.engine.services.clock.now())
        replies = await fixture.replies(2)
        assert "one" in replies[1]


async def test_promise_21_a_reply_that_may_have_arrived_is_sent_again_with_a_mark_and_counted(tmp_path: Path) -> None:
    channel = FakeChannel()
    channel.results = [DeliveryUnknown("the connection broke")]
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("one")
        first, second = await fixture.replies(2)

    assert second == f"(This may be a repeat.) {first}"


async def test_a_platform_that_recognises_keys_gets_the_message_again_without_a_mark(tmp_path: Path) -> None:
    channel = FakeChannel(keyed=True, tells_queued=False)
    channel.results = [DeliveryUnknown("the connection broke")]
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("one", message="1")
        await channel.say("two", message="2")
        replies = await fixture.replies(2)

    assert "one" in replies[0]
    assert "two" in replies[1]


async def test_a_reply_that_may_have_arrived_waits_for_a_person_if_so_configured(tmp_path: Path) -> None:
    channel = FakeChannel(tells_queued=False)
    channel.results = [DeliveryUnknown("the connection broke")]
    async with run_gateway(tmp_path, channel, allow=["alice"], on_unknown="hold") as fixture:
        await channel.say("one", message="1")
        await channel.say("two", message="2")
        await fixture.replies(2)

        assert [row.state for row in await fixture.undelivered()] == ["unknown"]
    assert not any("repeat" in text for text in channel.texts)


async def test_a_long_reply_is_split_and_nothing_is_dropped(tmp_path: Path) -> None:
    channel = FakeChannel()
    words = " ".join(f"word{number}" for number in range(200))
    async with run_gateway(tmp_path, channel, ScriptStep(say=words)) as fixture:
        await channel.say("speak")
        await channel.until(lambda: "word199" in channel.texts[-1] if channel.arrived else False)

    assert all(len(message.text) <= 200 for message in channel.arrived)
    assert " ".join(message.text for message in channel.arrived).split() == words.split()
    assert [bool(message.reply_to) for message in channel.arrived[:2]] == [True, False]
    assert fixture is not None


async def test_unknown_people_get_a_pairing_code_once_and_nothing_else(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("let me in", person="mallory", chat="m")
        await channel.say("let me in!", person="mallory", chat="m")
        [told] = await fixture.replies(1)
        await channel.until(lambda: len(channel.acknowledged) == 2)
        async with asyncio.timeout(20):
            while await fixture.database.read(inbox.count_by_state):
                await asyncio.sleep(0.02)
        code = told.partition("pair ")[2][:9]
        let_in = await fixture.database.write(contacts.approve, code, at=fixture.stage.engine.services.clock.now())
        await channel.say("now?", person="mallory", chat="m")
        replies = await fixture.replies(2)

        assert let_in.person == "mallory"
        assert "now?" in replies[1]
        assert await said(fixture, "m") == ["now?"]


async def test_in_a_group_only_messages_to_the_agent_count(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("between us", private=False, addressed=False)
        await channel.say("from a stranger", private=False, person="mallory")
        await channel.say("you there", private=False)
        await fixture.replies(1)

        assert await said(fixture) == ["you there"]


async def test_commands_come_from_the_one_registry_and_are_answered(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("hello")
        await fixture.replies(1)
        before = await fixture.database.read(aliases.get_channel_session, "fake:c1")
        await channel.say("/new Another")
        await fixture.replies(2)
        await channel.say("/nwe")
        replies = await fixture.replies(3)
        after = await fixture.database.read(aliases.get_channel_session, "fake:c1")

        assert "new session" in replies[1]
        assert "/new" in replies[2]
        assert before != after


async def test_retry_answers_again_in_the_chat(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("hello")
        first = await fixture.replies(1)
        await channel.say("/retry")

        assert await fixture.replies(2) == first * 2
        assert await said(fixture) == ["hello", "hello"]


async def test_commands_that_reach_beyond_the_chat_are_for_owners(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel, allow=["alice"], owners=["owner"]) as fixture:
        await channel.say("/sessions")
        await channel.say("/sessions", person="owner", chat="o")
        replies = await fixture.replies(2)

    assert any("Only an owner" in reply for reply in replies)
    assert any("No sessions yet" in reply for reply in replies)


async def test_a_chat_cannot_resume_the_session_of_another(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("secret", chat="c2")
        await fixture.replies(1)
        theirs = await fixture.database.read(aliases.get_channel_session, "fake:c2")
        await channel.say(f"/resume {theirs}")
        replies = await fixture.replies(2)

        assert "only an owner" in replies[1]
        assert await fixture.database.read(aliases.get_channel_session, "fake:c1") != theirs


async def test_busy_is_remembered_for_the_chat(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    async with run_gateway(tmp_path, channel, stage=stage) as fixture:
        await channel.say("/busy interrupt")
        await fixture.replies(1)
    async with run_gateway(tmp_path, channel, stage=stage) as fixture:
        assert await fixture.database.read(contacts.get_busy_mode, "fake:c1") == "interrupt"


async def test_a_question_goes_to_the_chat_and_its_button_answers_it(tmp_path: Path) -> None:
    channel = FakeChannel(text=4000)
    steps = (ScriptStep(call=(ScriptedCall("mail", {"to": "all"}),)), ScriptStep(say="sent"))
    stage = await set_up(tmp_path, *steps, approval_seconds=None)
    async with run_gateway(tmp_path, channel, *steps, stage=stage) as fixture:
        await channel.say("mail all")
        [question] = await fixture.replies(1)
        asked = channel.arrived[0]
        await channel.say("", pressed=asked.choices[0].value, about=asked.about, message="press")
        replies = await fixture.replies(3)

    assert "a mail to everybody" in question
    assert "mail wants to run with these arguments:\n  to: all" in question
    assert "requested by: fake:" in question
    assert replies[1:] == ["Allowed.", "sent"]
    assert (tmp_path / "outbox").read_text() == "all\n"


async def test_no_is_an_answer_too(tmp_path: Path) -> None:
    channel = FakeChannel(text=4000)
    steps = (ScriptStep(call=(ScriptedCall("mail", {"to": "all"}),)), ScriptStep(say="as you like"))
    stage = await set_up(tmp_path, *steps, approval_seconds=None)
    async with run_gateway(tmp_path, channel, *steps, stage=stage) as fixture:
        await channel.say("mail all")
        await fixture.replies(1)
        await channel.say("No")
        replies = await fixture.replies(3)

    assert replies[1:] == ["Denied.", "as you like"]
    assert not (tmp_path / "outbox").exists()


async def test_a_text_that_is_neither_yes_nor_no_is_queued_and_denies_nothing(tmp_path: Path) -> None:
    channel = FakeChannel(text=4000)
    steps = (
        ScriptStep(call=(ScriptedCall("mail", {"to": "all"}),)),
        ScriptStep(say="sent"),
        ScriptStep(say="To you: Bo"),
    )
    stage = await set_up(tmp_path, *steps, approval_seconds=None)
    async with run_gateway(tmp_path, channel, *steps, stage=stage) as fixture:
        await channel.say("mail all")
        await fixture.replies(1)
        await channel.say("who is everybody?")
        await fixture.replies(2)
        await channel.say("Yes, go ahead")
        replies = await fixture.replies(5)

    assert "Queued" in replies[1]
    assert replies[2:] == ["Allowed.", "sent", "To you: Bo"]
    assert (tmp_path / "outbox").read_text() == "all\n"


async def test_the_reason_of_a_refusal_in_a_chat_reaches_the_model(tmp_path: Path) -> None:
    channel = FakeChannel(text=4000)
    steps = (ScriptStep(call=(ScriptedCall("mail", {"to": "all"}),)), ScriptStep(say="as you like"))
    stage = await set_up(tmp_path, *steps, approval_seconds=None)
    async with run_gateway(tmp_path, channel, *steps, stage=stage) as fixture:
        await channel.say("mail all")
        await fixture.replies(1)
        await channel.say("no, because Bo is ill")
        await fixture.replies(3)

    assert "Approval was denied: because Bo is ill" in str(stage.requests[-1].messages)


async def test_attachments_are_saved_as_files_and_oversized_ones_are_named(tmp_path: Path) -> None:
    channel = FakeChannel()
    channel.files = {"small": b"content", "lies": b"x" * 3_000_000}
    async with run_gateway(tmp_path, channel, allow=["alice"], max_attachment_mb=1) as fixture:
        files = [
            {"ref": "small", "name": "../../etc/a note.txt", "media_type": "text/plain"},
            {"ref": "huge", "name": "huge.iso", "size": 4 * 1024**3},
            {"ref": "lies", "name": "lies.bin", "size": 10},
        ]
        await channel.say("look", attachments=files)
        await fixture.replies(1)
        [words] = await said(fixture)
        session_id = await fixture.database.read(aliases.get_channel_session, "fake:c1")

    kept = list((tmp_path / "files" / str(session_id)).iterdir())
    assert [path.read_bytes() for path in kept] == [b"content"]
    assert kept[0].name.endswith("a_note.txt")
    assert str(kept[0]) in words
    assert "huge.iso was not saved" in words
    assert "lies.bin was not saved" in words


async def test_a_reply_is_previewed_and_then_replaces_the_preview(tmp_path: Path) -> None:
    channel = FakeChannel(edits=True, typing_seconds=0.1, text=2000)
    words = " ".join(f"word{number}" for number in range(60))
    async with run_gateway(tmp_path, channel, ScriptStep(say=words, delay_seconds=0.08)):
        await channel.say("speak")
        await channel.until(lambda: bool(channel.shown.get("r1")) and channel.shown["r1"][-1] == words)

    assert len(channel.arrived) == 1
    assert len(channel.shown["r1"]) >= 3
    assert channel.shown["r1"][0].endswith(" …")
    assert channel.typed


async def test_messages_from_another_interface_are_not_answered_in_the_chat(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("hello", message="1")
        await fixture.replies(1)
        current = await fixture.stage.engine.open(OpenRequest(channel="fake:c1"))
        await fixture.stage.play(current.session.id, "from a terminal")
        await channel.say("again", message="2")
        replies = await fixture.replies(2)

    assert "again" in replies[1]


async def test_a_failing_message_becomes_a_dead_letter_after_three_attempts(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.posted.put(json.dumps({"chat": "c1", "message": "m0", "person": "alice", "text": 7}))
        await channel.say("and now?")
        replies = await fixture.replies(1)
        [dead] = await fixture.dead()

    assert "and now?" in replies[0]
    assert dead.attempts == 3
    assert "AttributeError" in dead.outcome
    assert json.loads(json.loads(dead.payload))["text"] == 7


async def test_an_attachment_that_crashes_the_platform_is_named_and_the_message_is_answered(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("look", attachments=[{"ref": "breaks the fetcher", "name": "x"}])
        replies = await fixture.replies(2)
        [words] = await said(fixture)

    assert replies[0] == "! The attachment x could not be read."
    assert words.startswith("look")
    assert "[attachment x was not saved" in words


async def test_a_message_that_crashes_the_worker_becomes_a_dead_letter(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    payload = json.dumps({"chat": "c1", "message": "m1", "person": "alice", "text": "poison"})
    post = inbox.NewInboundMessage("in-1", "c1", "m1", json.dumps(payload), "digest")
    await stage.database.write(inbox.put, "fake", [post], at=1)
    await stage.database.write(platforms.take, "fake", stage.worker_id, at=1)
    for _ in range(3):
        await stage.database.write(inbox.begin, "in-1", stage.worker_id)
    async with run_gateway(tmp_path, channel, stage=stage) as fixture:
        await channel.say("and now?")
        [reply] = await fixture.replies(1)

        assert "and now?" in reply
        assert [message.id for message in await fixture.dead()] == ["in-1"]


async def test_an_interrupted_command_is_not_run_again(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    payload = json.dumps({"chat": "c1", "message": "m1", "person": "alice", "text": "/undo"})
    post = inbox.NewInboundMessage("in-1", "c1", "m1", json.dumps(payload), "digest")
    await stage.database.write(inbox.put, "fake", [post], at=1)
    await stage.database.write(platforms.take, "fake", stage.worker_id, at=1)
    await stage.database.write(inbox.begin, "in-1", stage.worker_id)
    async with run_gateway(tmp_path, channel, stage=stage) as fixture:
        [reply] = await fixture.replies(1)

    assert "/undo was interrupted" in reply


async def test_the_message_of_a_dead_sender_is_unknown_and_sent_again(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    other = await set_up(tmp_path, model="echo", database=stage.database)
    await stage.database.write(platforms.take, "fake", other.worker_id, at=1)
    to = outbox.Address("fake", "c1")
    await stage.database.write(outbox.put, "out-1", to, outbox.OutboundMessage(text="hello"), at=1)
    await stage.database.write(outbox.begin, "out-1", other.worker_id)
    await other.engine.close()
    async with run_gateway(tmp_path, channel, stage=stage) as fixture:
        replies = await fixture.replies(1)
        delivery = await fixture.database.read(outbox.find, "out-1")

    assert replies == ["(This may be a repeat.) hello"]
    assert delivery.doubts == 1


async def test_the_message_of_a_live_sender_is_not_touched(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    other = await set_up(tmp_path, model="echo", database=stage.database)
    for number, chat in enumerate(("c1", "c2"), 1):
        to = outbox.Address("fake", chat)
        await stage.database.write(outbox.put, f"out-{number}", to, outbox.OutboundMessage(text=chat), at=1)
    await stage.database.write(platforms.take, "fake", other.worker_id, at=1)
    await stage.database.write(outbox.begin, "out-1", other.worker_id)
    await stage.database.write(platforms.release, "fake", other.worker_id, at=1)
    async with run_gateway(tmp_path, channel, stage=stage) as fixture:
        replies = await fixture.replies(1)

    assert replies == ["c2"]


async def test_a_turn_can_be_stopped_from_the_chat(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(
        tmp_path, channel, ScriptStep(call=(ScriptedCall("sleep"),)), ScriptStep(say="never")
    ) as fixture:
        await channel.say("sleep")
        await fixture.stage.hanging_tool.sleeping.wait()
        await channel.say("/stop")
        replies = await fixture.replies(2)

    assert any("Stopping the turn" in reply for reply in replies)
    assert any("was interrupted" in reply for reply in replies)


async def crashed(tmp_path: Path, source: str, *steps: ScriptStep) -> tuple[Stage, str]:
    """A worker that died during a turn of a chat."""
    stage = await set_up(tmp_path, *steps, who=gone())
    session = await stage.session(source=source)
    await stage.database.write(aliases.set_channel_session, "fake:c1", session.id, at=1)
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel, *steps, stage=stage):
        await channel.say("sleep")
        await stage.hanging_tool.sleeping.wait()
        stage.scheduler.abandon(Conflict("it is dead"))
    return stage, session.id


@pytest.mark.parametrize("source", ["gateway", "chat"])
async def test_a_turn_whose_worker_died_is_finished_and_its_reply_delivered(tmp_path: Path, source: str) -> None:
    steps = (ScriptStep(call=(ScriptedCall("sleep"),)), ScriptStep(say="at last"))
    dead, session_id = await crashed(tmp_path, source, *steps)
    successor = await set_up(tmp_path, *steps, database=dead.database)
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel, *steps, stage=successor) as fixture:
        await successor.janitor().sweep()
        replies = await fixture.replies(1)

    assert replies == ["at last"]
    assert "tool_ended" in [KIND_OF[type(event)] for event in await successor.log(session_id)]


async def test_a_person_whose_turn_is_abandoned_is_told(tmp_path: Path) -> None:
    steps = tuple(ScriptStep(call=(ScriptedCall("sleep"),)) for _ in range(9))
    stage, session_id = await crashed(tmp_path, "gateway", *steps)
    crash_points = 1
    while True:
        dead, stage = stage, await set_up(tmp_path, *steps, database=stage.database, who=gone())
        await stage.janitor().sweep()
        dead.scheduler.abandon(Conflict("it is dead"))
        playing = asyncio.create_task(stage.engine.settled())
        sleeping = asyncio.create_task(stage.hanging_tool.sleeping.wait())
        await asyncio.wait({playing, sleeping}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        await stop(playing, sleeping)
        if (await stage.database.read(sessions.get, session_id)).summary.quarantined is not None:
            break
        crash_points += 1
    successor = await set_up(tmp_path, database=stage.database, model="echo")
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel, stage=successor) as fixture:
        [told] = await fixture.replies(1)

    assert crash_points <= 5
    assert "The turn failed: the worker died 3 times in a row while it ran sleep" in told
