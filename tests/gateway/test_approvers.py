"""Who may answer a question about a risky call in a chat: the requester and approvers."""

from pathlib import Path

import pytest

from holdfast.gateway.approvers import Approvers
from holdfast.gateway.port import Incoming
from holdfast.model.event import ApprovalAnswered, ModeChanged
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import aliases, approvals, log
from tests.engine.stage import set_up
from tests.fakes.channel import FakeChannel
from tests.gateway.gateway_fixture import run_gateway

MAIL = (ScriptStep(call=(ScriptedCall("mail", {"to": "all"}),)), ScriptStep(say="sent"))
GROUP = {"private": False, "addressed": True, "name": "Bob"}


@pytest.mark.parametrize("word", ["yes", "ok", "press"])
async def test_promise_28_in_a_group_only_the_requester_may_answer_and_others_are_told_so(
    tmp_path: Path, word: str
) -> None:
    channel = FakeChannel(text=4000)
    stage = await set_up(tmp_path, *MAIL, approval_seconds=None)
    async with run_gateway(tmp_path, channel, *MAIL, stage=stage, allow=["alice", "bob"]) as fixture:
        await channel.say("mail all", **{**GROUP, "name": "Alice"})
        await fixture.replies(1)
        asked = channel.arrived[0]
        pressed = {"pressed": asked.choices[0].value, "about": asked.about} if word == "press" else {}
        await channel.say(word, person="bob", message="from bob", **GROUP, **pressed)
        refused = (await fixture.replies(2))[1]
        assert not (tmp_path / "outbox").exists(), "Bob's answer had no effect"
        await channel.say("yes", message="from alice", **{**GROUP, "name": "Alice"})
        replies = await fixture.replies(4)
        [session_id] = [await fixture.database.read(aliases.get_channel_session, "fake:c1")]
        events = [entry.event for entry in await fixture.database.read(log.read, session_id)]

    assert refused == "! Only the person who asked for this, or an approver of this chat, may answer."
    assert replies[2:] == ["Allowed.", "sent"]
    [answer] = [event for event in events if isinstance(event, ApprovalAnswered)]
    assert answer.by == "Alice (alice) on fake"


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        ({"approvers": ["bob"]}, True),
        ({"chat_approvers": {"c1": ["bob"]}}, True),
        ({"chat_approvers": {"c2": ["bob"]}}, False),
        ({"owners": ["bob"]}, False),
        ({"approvers": ["Bob"]}, False),
    ],
)
async def test_an_approver_of_the_platform_or_the_chat_may_answer_for_others(
    tmp_path: Path, setting: dict[str, object], allowed: bool
) -> None:
    channel = FakeChannel(text=4000)
    stage = await set_up(tmp_path, *MAIL, approval_seconds=None)
    async with run_gateway(tmp_path, channel, *MAIL, stage=stage, allow=["alice", "bob"], **setting) as fixture:
        await channel.say("mail all", **{**GROUP, "name": "Alice"})
        await fixture.replies(1)
        await channel.say("yes", person="bob", message="from bob", **GROUP)
        answered = (await fixture.replies(2))[1]

    assert (answered == "Allowed.") is allowed


@pytest.mark.parametrize(("setting", "allowed"), [({"approvers": ["bob"]}, True), ({"owners": ["bob"]}, False)])
async def test_in_a_group_only_an_approver_may_change_the_permission_mode(
    tmp_path: Path, setting: dict[str, object], allowed: bool
) -> None:
    channel = FakeChannel(text=4000)
    stage = await set_up(tmp_path, model="echo")
    async with run_gateway(tmp_path, channel, stage=stage, allow=["alice", "bob"], **setting) as fixture:
        await channel.say("hello", **{**GROUP, "name": "Alice"})
        await fixture.replies(1)
        await channel.say("/mode trusted", person="bob", message="from bob", **GROUP)
        answered = (await fixture.replies(2))[1]
        [session_id] = [await fixture.database.read(aliases.get_channel_session, "fake:c1")]
        events = [entry.event for entry in await fixture.database.read(log.read, session_id)]

    changes = [(event.mode, event.by) for event in events if isinstance(event, ModeChanged)]
    assert changes == ([("trusted", "Bob (bob) on fake")] if allowed else [])
    assert answered.startswith("Permission mode changed to trusted" if allowed else "! only an approver")


def test_without_a_requester_only_approvers_and_the_person_of_a_private_chat_may_answer() -> None:
    group = Incoming(chat="c", message="m", person="alice", private=False)
    private = Incoming(chat="c", message="m", person="alice")

    assert not Approvers().may_answer(group, "")
    assert Approvers().may_answer(private, "")
    assert Approvers(frozenset({"alice"})).may_answer(group, "")
    assert not Approvers().may_answer(private, "bob")
    assert not Approvers().may_answer(Incoming(chat="c", message="m", private=False), "")


async def test_an_owner_who_answers_by_a_command_is_named_in_the_log(tmp_path: Path) -> None:
    channel = FakeChannel(text=4000)
    stage = await set_up(tmp_path, *MAIL, approval_seconds=None)
    async with run_gateway(tmp_path, channel, *MAIL, stage=stage, allow=["alice"], owners=["bob"]) as fixture:
        await channel.say("mail all", **{**GROUP, "name": "Alice"})
        await fixture.replies(1)
        [question] = await fixture.database.read(approvals.list_all_unanswered, 10)
        await channel.say(f"/questions answer {question.id} yes", person="bob", message="from bob", **GROUP)
        await fixture.replies(3)
        events = [entry.event for entry in await fixture.database.read(log.read, question.session_id)]

    [answer] = [event for event in events if isinstance(event, ApprovalAnswered)]
    assert answer.by == "Bob (bob) on fake"
