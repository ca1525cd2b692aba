"""Messages in once, replies out for sure: the whole way, over a platform in memory."""

import asyncio
import json
from pathlib import Path

import pytest

from holdfast.engine.opening import Opening
from holdfast.engine.together import stop
from holdfast.gateway.port import Later, Never, Unsure
from holdfast.model.errors import Conflict
from holdfast.model.event import KIND_OF, UserSaid
from holdfast.model.message import text_of
from holdfast.providers.scripted import Call, Step
from holdfast.store import aliases, inbox, outbox, people, platforms, sessions
from tests.engine.stage import Stage, gone, set_up
from tests.fakes.channel import FakeChannel
from tests.gateway.hall import Hall, opened


async def said(hall: Hall, chat: str = "c1") -> list[str]:
    """What people have said in the chat's current session."""
    session_id = await hall.database.read(aliases.current, f"fake:{chat}")
    assert session_id is not None
    return [text_of(e.parts) for e in await hall.stage.log(session_id) if isinstance(e, UserSaid)]


async def test_a_message_is_answered_where_it_was_written(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel) as hall:
        message = await channel.say("Hello there")
        replies = await hall.replies(1)

    assert "Hello there" in replies[0]
    assert channel.arrived[0].chat == "c1"
    assert channel.arrived[0].reply_to == message


async def test_a_redelivered_message_is_one_turn_also_after_a_restart(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    async with opened(tmp_path, channel, stage=stage) as hall:
        for _ in range(5):
            await channel.say("once", message="m1")
        await hall.replies(1)
    async with opened(tmp_path, channel, stage=stage) as hall:
        for _ in range(5):
            await channel.say("once", message="m1")
        await channel.say("twice", message="m2")
        await hall.replies(2)

        assert await said(hall) == ["once", "twice"]
    assert len(channel.arrived) == 2


async def test_the_same_id_with_other_words_does_not_count(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel) as hall:
        await channel.say("first", message="m1")
        await channel.say("another", message="m1")
        await channel.say("end", message="m2")
        await hall.replies(2)

        assert await said(hall) == ["first", "end"]


async def test_messages_of_a_chat_keep_their_order_and_all_are_answered(tmp_path: Path) -> None:
    channel = FakeChannel(tells_queued=False)
    async with opened(tmp_path, channel) as hall:
        for number in range(30):
            await channel.say(f"number {number}", message=f"m{number}")
        replies = await hall.replies(30)

        assert await said(hall) == [f"number {number}" for number in range(30)]
        for number, reply in enumerate(replies):
            assert f"number {number}" in reply


async def test_chats_have_sessions_of_their_own(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel) as hall:
        await channel.say("in one", chat="c1")
        await channel.say("in two", chat="c2")
        await hall.replies(2)

        assert await said(hall, "c1") == ["in one"]
        assert await said(hall, "c2") == ["in two"]


async def test_words_during_a_turn_wait_and_people_are_told(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(
        tmp_path, channel, Step(call=(Call("sleep"),)), Step(say="one"), Step(say="two"), Step(say="three")
    ) as hall:
        await channel.say("first")
        await hall.stage.sleeper.sleeping.wait()
        await channel.say("second")
        await channel.say("third")
        told = await hall.replies(2)

        assert told == ["Queued: number 1 in line.", "Queued: number 2 in line."]
        assert len(await said(hall)) == 1


async def test_what_cannot_be_understood_is_kept_and_stops_nothing(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel) as hall:
        await channel.posted.put("no json at all")
        await channel.posted.put(b"\xff\xfe\x00 no text")
        await channel.posted.put(json.dumps({"chat": "", "message": "m"}))
        await channel.say("still there?")
        await hall.replies(1)

        dead = await hall.dead()
        assert len(dead) == 3
        assert {json.loads(letter.payload) for letter in dead} >= {"no json at all", "\udcff\udcfe\x00 no text"}
        assert all(letter.outcome for letter in dead)
    assert len(channel.acknowledged) == 4


async def test_a_message_is_acknowledged_only_when_it_is_kept(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel) as hall:
        await channel.say("kept", message="m1")
        await channel.until(lambda: bool(channel.acknowledged))

        found = await hall.database.read(platforms.get, "fake")
        assert found is not None
        assert (found.received, found.position, found.state) == (1, "1", "connected")


async def test_a_reply_that_is_not_taken_is_tried_again_and_those_behind_it_wait(tmp_path: Path) -> None:
    channel = FakeChannel(tells_queued=False)
    channel.fates = [Later("too many"), Later("still too many", after_seconds=0.1)]
    async with opened(tmp_path, channel) as hall:
        await channel.say("one", message="1")
        await channel.say("two", message="2")
        replies = await hall.replies(2)

    assert "one" in replies[0]
    assert "two" in replies[1]


async def test_a_reply_that_will_never_be_taken_is_kept_and_lets_the_next_one_pass(tmp_path: Path) -> None:
    channel = FakeChannel(tells_queued=False)
    channel.fates = [Never("the chat is gone")]
    async with opened(tmp_path, channel) as hall:
        await channel.say("one", message="1")
        await channel.say("two", message="2")
        await hall.replies(1)
        trouble = await hall.trouble()

        assert [(row.state, row.error) for row in trouble] == [("failed", "the chat is gone")]
        await hall.database.write(outbox.replay, trouble[0], at=hall.stage.engine.ground.clock.now())
        replies = await hall.replies(2)
        assert "one" in replies[1]


async def test_a_reply_that_may_have_arrived_is_sent_again_with_a_mark_and_counted(tmp_path: Path) -> None:
    channel = FakeChannel()
    channel.fates = [Unsure("the connection broke")]
    async with opened(tmp_path, channel) as hall:
        await channel.say("one")
        first, second = await hall.replies(2)

    assert second == f"(This may be a repeat.) {first}"


async def test_a_platform_that_knows_our_keys_gets_the_same_message_again_without_a_mark(tmp_path: Path) -> None:
    channel = FakeChannel(keyed=True, tells_queued=False)
    channel.fates = [Unsure("the connection broke")]
    async with opened(tmp_path, channel) as hall:
        await channel.say("one", message="1")
        await channel.say("two", message="2")
        replies = await hall.replies(2)

    assert "one" in replies[0]
    assert "two" in replies[1]


async def test_a_reply_that_may_have_arrived_waits_for_a_person_if_so_configured(tmp_path: Path) -> None:
    channel = FakeChannel(tells_queued=False)
    channel.fates = [Unsure("the connection broke")]
    async with opened(tmp_path, channel, allow=["alice"], on_unknown="hold") as hall:
        await channel.say("one", message="1")
        await channel.say("two", message="2")
        await hall.replies(2)

        assert [row.state for row in await hall.trouble()] == ["unknown"]
    assert not any("repeat" in text for text in channel.texts)


async def test_a_long_reply_comes_in_parts_and_nothing_is_left_out(tmp_path: Path) -> None:
    channel = FakeChannel()
    words = " ".join(f"word{number}" for number in range(200))
    async with opened(tmp_path, channel, Step(say=words)) as hall:
        await channel.say("speak")
        await channel.until(lambda: "word199" in channel.texts[-1] if channel.arrived else False)

    assert all(len(message.text) <= 200 for message in channel.arrived)
    assert " ".join(message.text for message in channel.arrived).split() == words.split()
    assert [bool(message.reply_to) for message in channel.arrived[:2]] == [True, False]
    assert hall is not None


async def test_strangers_get_a_code_once_and_nothing_else(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel) as hall:
        await channel.say("let me in", person="mallory", chat="m")
        await channel.say("let me in!", person="mallory", chat="m")
        [told] = await hall.replies(1)
        await channel.until(lambda: len(channel.acknowledged) == 2)
        async with asyncio.timeout(20):
            while await hall.database.read(inbox.depths):
                await asyncio.sleep(0.02)
        code = told.partition("pair ")[2][:9]
        let_in = await hall.database.write(people.let_in, code, at=hall.stage.engine.ground.clock.now())
        await channel.say("now?", person="mallory", chat="m")
        replies = await hall.replies(2)

        assert let_in.person == "mallory"
        assert "now?" in replies[1]
        assert await said(hall, "m") == ["now?"]


async def test_in_a_group_only_words_to_the_agent_count(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel) as hall:
        await channel.say("between us", private=False, addressed=False)
        await channel.say("from a stranger", private=False, person="mallory")
        await channel.say("you there", private=False)
        await hall.replies(1)

        assert await said(hall) == ["you there"]


async def test_commands_come_from_the_one_registry_and_are_answered(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel) as hall:
        await channel.say("hello")
        await hall.replies(1)
        before = await hall.database.read(aliases.current, "fake:c1")
        await channel.say("/new Another")
        await hall.replies(2)
        await channel.say("/nwe")
        replies = await hall.replies(3)
        after = await hall.database.read(aliases.current, "fake:c1")

        assert "new session" in replies[1]
        assert "/new" in replies[2]
        assert before != after


async def test_retry_answers_again_in_the_chat(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel) as hall:
        await channel.say("hello")
        first = await hall.replies(1)
        await channel.say("/retry")

        assert await hall.replies(2) == first * 2
        assert await said(hall) == ["hello", "hello"]


async def test_commands_that_reach_beyond_the_chat_are_for_owners(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel, allow=["alice"], owners=["owner"]) as hall:
        await channel.say("/sessions")
        await channel.say("/sessions", person="owner", chat="o")
        replies = await hall.replies(2)

    assert any("Only an owner" in reply for reply in replies)
    assert any("no sessions yet" in reply for reply in replies)


async def test_a_chat_cannot_take_up_the_session_of_another(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel) as hall:
        await channel.say("secret", chat="c2")
        await hall.replies(1)
        theirs = await hall.database.read(aliases.current, "fake:c2")
        await channel.say(f"/resume {theirs}")
        replies = await hall.replies(2)

        assert "only an owner" in replies[1]
        assert await hall.database.read(aliases.current, "fake:c1") != theirs


async def test_busy_is_remembered_for_the_chat(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    async with opened(tmp_path, channel, stage=stage) as hall:
        await channel.say("/busy interrupt")
        await hall.replies(1)
    async with opened(tmp_path, channel, stage=stage) as hall:
        assert await hall.database.read(people.busy, "fake:c1") == "interrupt"


async def test_a_question_goes_to_the_chat_and_its_button_answers_it(tmp_path: Path) -> None:
    channel = FakeChannel()
    steps = (Step(call=(Call("mail", {"to": "all"}),)), Step(say="sent"))
    stage = await set_up(tmp_path, *steps, approval_seconds=None)
    async with opened(tmp_path, channel, *steps, stage=stage) as hall:
        await channel.say("mail all")
        [question] = await hall.replies(1)
        asked = channel.arrived[0]
        await channel.say("", pressed=asked.choices[0].value, about=asked.about, message="press")
        replies = await hall.replies(3)

    assert "a mail to everybody" in question
    assert replies[1:] == ["Allowed.", "sent"]
    assert (tmp_path / "outbox").read_text() == "all\n"


async def test_no_is_an_answer_too(tmp_path: Path) -> None:
    channel = FakeChannel()
    steps = (Step(call=(Call("mail", {"to": "all"}),)), Step(say="as you like"))
    stage = await set_up(tmp_path, *steps, approval_seconds=None)
    async with opened(tmp_path, channel, *steps, stage=stage) as hall:
        await channel.say("mail all")
        await hall.replies(1)
        await channel.say("No")
        replies = await hall.replies(3)

    assert replies[1:] == ["Denied.", "as you like"]
    assert not (tmp_path / "outbox").exists()


async def test_attachments_are_kept_as_files_and_too_large_ones_are_named(tmp_path: Path) -> None:
    channel = FakeChannel()
    channel.files = {"small": b"content", "lies": b"x" * 3_000_000}
    async with opened(tmp_path, channel, allow=["alice"], max_attachment_mb=1) as hall:
        files = [
            {"ref": "small", "name": "../../etc/a note.txt", "media_type": "text/plain"},
            {"ref": "huge", "name": "huge.iso", "size": 4 * 1024**3},
            {"ref": "lies", "name": "lies.bin", "size": 10},
        ]
        await channel.say("look", attachments=files)
        await hall.replies(1)
        [words] = await said(hall)
        session_id = await hall.database.read(aliases.current, "fake:c1")

    kept = list((tmp_path / "files" / str(session_id)).iterdir())
    assert [path.read_bytes() for path in kept] == [b"content"]
    assert kept[0].name.endswith("a_note.txt")
    assert str(kept[0]) in words
    assert "huge.iso was not kept" in words
    assert "lies.bin was not kept" in words


async def test_a_reply_is_shown_while_it_is_made_and_then_takes_its_own_place(tmp_path: Path) -> None:
    channel = FakeChannel(edits=True, typing_seconds=0.1, text=2000)
    words = " ".join(f"word{number}" for number in range(60))
    async with opened(tmp_path, channel, Step(say=words, delay_seconds=0.08)):
        await channel.say("speak")
        await channel.until(lambda: bool(channel.shown.get("r1")) and channel.shown["r1"][-1] == words)

    assert len(channel.arrived) == 1
    assert len(channel.shown["r1"]) >= 3
    assert channel.shown["r1"][0].endswith(" …")
    assert channel.typed


async def test_words_put_in_from_elsewhere_are_not_answered_in_the_chat(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel) as hall:
        await channel.say("hello", message="1")
        await hall.replies(1)
        current = await hall.stage.engine.open(Opening(channel="fake:c1"))
        await hall.stage.play(current.session.id, "from a terminal")
        await channel.say("again", message="2")
        replies = await hall.replies(2)

    assert "again" in replies[1]


async def test_a_poisonous_message_is_given_up_after_three_attempts_and_kept(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel) as hall:
        await channel.say("poison", attachments=[{"ref": "breaks the fetcher", "name": "x"}])
        await channel.say("and now?")
        replies = await hall.replies(1)
        [dead] = await hall.dead()

    assert "and now?" in replies[0]
    assert dead.attempts == 3
    assert "KeyError" in dead.outcome
    assert json.loads(json.loads(dead.payload))["text"] == "poison"


async def test_a_message_that_brings_the_worker_down_is_given_up_as_well(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    payload = json.dumps({"chat": "c1", "message": "m1", "person": "alice", "text": "poison"})
    post = inbox.Post("in-1", "c1", "m1", json.dumps(payload), "digest")
    await stage.database.write(inbox.put, "fake", [post], at=1)
    await stage.database.write(platforms.take, "fake", stage.worker_id, at=1)
    for _ in range(3):
        await stage.database.write(inbox.begin, "in-1", stage.worker_id)
    async with opened(tmp_path, channel, stage=stage) as hall:
        await channel.say("and now?")
        [reply] = await hall.replies(1)

        assert "and now?" in reply
        assert [letter.id for letter in await hall.dead()] == ["in-1"]


async def test_a_command_that_was_cut_off_is_not_run_again(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    payload = json.dumps({"chat": "c1", "message": "m1", "person": "alice", "text": "/undo"})
    post = inbox.Post("in-1", "c1", "m1", json.dumps(payload), "digest")
    await stage.database.write(inbox.put, "fake", [post], at=1)
    await stage.database.write(platforms.take, "fake", stage.worker_id, at=1)
    await stage.database.write(inbox.begin, "in-1", stage.worker_id)
    async with opened(tmp_path, channel, stage=stage) as hall:
        [reply] = await hall.replies(1)

    assert "/undo was cut off" in reply


async def test_what_a_dead_sender_left_behind_is_in_doubt_and_sent_again(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    other = await set_up(tmp_path, model="echo", database=stage.database)
    await stage.database.write(platforms.take, "fake", other.worker_id, at=1)
    to = outbox.Address("fake", "c1")
    await stage.database.write(outbox.put, "out-1", to, outbox.Message(text="hello"), at=1)
    await stage.database.write(outbox.begin, "out-1", other.worker_id)
    await other.engine.close()
    async with opened(tmp_path, channel, stage=stage) as hall:
        replies = await hall.replies(1)
        delivery = await hall.database.read(outbox.get, "out-1")

    assert replies == ["(This may be a repeat.) hello"]
    assert delivery.doubts == 1


async def test_a_living_senders_message_is_left_to_it(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    other = await set_up(tmp_path, model="echo", database=stage.database)
    for number, chat in enumerate(("c1", "c2"), 1):
        to = outbox.Address("fake", chat)
        await stage.database.write(outbox.put, f"out-{number}", to, outbox.Message(text=chat), at=1)
    await stage.database.write(platforms.take, "fake", other.worker_id, at=1)
    await stage.database.write(outbox.begin, "out-1", other.worker_id)
    await stage.database.write(platforms.release, "fake", other.worker_id, at=1)
    async with opened(tmp_path, channel, stage=stage) as hall:
        replies = await hall.replies(1)

    assert replies == ["c2"]


async def test_a_turn_can_be_stopped_from_the_chat(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel, Step(call=(Call("sleep"),)), Step(say="never")) as hall:
        await channel.say("sleep")
        await hall.stage.sleeper.sleeping.wait()
        await channel.say("/stop")
        replies = await hall.replies(2)

    assert any("being ended" in reply for reply in replies)
    assert any("was interrupted" in reply for reply in replies)


async def crashed(tmp_path: Path, source: str, *steps: Step) -> tuple[Stage, str]:
    """A worker that died in the midst of a turn which somebody on a platform waits for."""
    stage = await set_up(tmp_path, *steps, who=gone())
    session = await stage.session(source=source)
    await stage.database.write(aliases.point, "fake:c1", session.id, at=1)
    channel = FakeChannel()
    async with opened(tmp_path, channel, *steps, stage=stage):
        await channel.say("sleep")
        await stage.sleeper.sleeping.wait()
        stage.coordinator.abandon(Conflict("it is dead"))
    return stage, session.id


@pytest.mark.parametrize("source", ["gateway", "chat"])
async def test_a_turn_whose_worker_died_is_finished_and_its_reply_delivered(tmp_path: Path, source: str) -> None:
    steps = (Step(call=(Call("sleep"),)), Step(say="at last"))
    dead, session_id = await crashed(tmp_path, source, *steps)
    heir = await set_up(tmp_path, *steps, database=dead.database)
    channel = FakeChannel()
    async with opened(tmp_path, channel, *steps, stage=heir) as hall:
        await heir.janitor().sweep()
        replies = await hall.replies(1)

    assert replies == ["at last"]
    assert "tool_ended" in [KIND_OF[type(event)] for event in await heir.log(session_id)]


async def test_somebody_whose_turn_is_given_up_is_told(tmp_path: Path) -> None:
    steps = tuple(Step(call=(Call("sleep"),)) for _ in range(9))
    stage, session_id = await crashed(tmp_path, "gateway", *steps)
    deaths = 1
    while True:
        stage = await set_up(tmp_path, *steps, database=stage.database, who=gone())
        await stage.janitor().sweep()
        playing = asyncio.create_task(stage.engine.settled())
        sleeping = asyncio.create_task(stage.sleeper.sleeping.wait())
        await asyncio.wait({playing, sleeping}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        await stop(playing, sleeping)
        if (await stage.database.read(sessions.get, session_id)).summary.quarantined is not None:
            break
        stage.coordinator.abandon(Conflict("it is dead"))
        deaths += 1
    heir = await set_up(tmp_path, database=stage.database, model="echo")
    channel = FakeChannel()
    async with opened(tmp_path, channel, stage=heir) as hall:
        [told] = await hall.replies(1)

    assert deaths <= 5
    assert "could not be finished" in told
