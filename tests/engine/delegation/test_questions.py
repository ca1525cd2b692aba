"""A child asks where the user of its parent is."""

import asyncio
import json
from pathlib import Path

import pytest

from holdfast.model.answer import Answer
from holdfast.model.event import ToolEnded, TurnEnded, TurnStarted
from holdfast.model.message import text_of
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, outbox
from holdfast.store.repos.approvals import Approval
from holdfast.store.repos.outbox import Address
from tests.engine.delegation.family import Family, family
from tests.fakes.migrated import open_migrated

MAIL = {"task": 'use mail {"to": "all"}'}


async def asked(one: Family, parent: str) -> Approval:
    """The first question in the tree of a session; whoever watches that session is notified of it."""
    async for _ in one.stage.database.listen(parent):
        found = await one.stage.database.read(approvals.list_unanswered_in_tree, parent)
        if found:
            return found[0]
    raise AssertionError("the store was closed")


async def test_a_question_of_a_grandchild_is_asked_in_the_session_at_the_top(tmp_path: Path) -> None:
    async with family(tmp_path, approval_seconds=None) as one:
        parent = await one.parent(source="gateway", channel="telegram:1")
        turn = asyncio.create_task(one.delegate(parent, {"task": json.dumps([MAIL])}))
        question = await asyncio.wait_for(asked(one, parent), 20)

        [child] = await one.children(parent)
        assert (question.proposal.root_id, question.proposal.parent_id) == (parent, child.child_id)
        assert question.proposal.requester == "telegram:1", "rules of another person do not apply"
        assert await one.stage.questions(parent) == []
        await one.stage.engine.answer(question.call_key, Answer(allowed=True), by="test")
        events = await turn
        assert one.stage.mailer.outbox.read_text() == "all\n"
        assert "sent to all" in next(text_of(e.parts) for e in events if isinstance(e, ToolEnded))


async def test_the_questions_and_results_of_a_child_go_to_the_chat_that_asked_for_it(tmp_path: Path) -> None:
    address = Address("telegram", "1")
    async with family(tmp_path, approval_seconds=None) as one:
        parent = await one.parent(source="gateway", channel="telegram:1")
        admission = await one.stage.admit(parent, json.dumps([MAIL | {"background": True}]))

        def add_address(tx: Transaction) -> None:
            outbox.add_reply_address(tx, parent, admission.turn_id, address, at=1)

        await one.stage.database.write(add_address)
        question = await asyncio.wait_for(asked(one, parent), 20)
        await one.stage.engine.answer(question.call_key, Answer(allowed=False, reason="too many"), by="test")
        [child] = await one.children(parent)
        await asyncio.wait_for(one.until_ended(child.child_id), 20)
        await one.quiet()

        woken = [event.turn_id for event in await one.stage.log(parent) if isinstance(event, TurnStarted)][-1]
        [sent] = await one.stage.database.read(outbox.list_by_turn, *question.call_key[:2])
        [reply] = await one.stage.database.read(outbox.list_by_turn, parent, woken)
        assert (sent.kind, sent.chat, reply.kind, reply.chat) == ("question", "1", "reply", "1")
        assert "too many" in reply.message.text, "the woken turn answers the chat"


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_answer_to_a_question_that_a_dead_worker_left_continues_the_parents_of_the_child_too(
    tmp_path: Path, *, allowed: bool
) -> None:
    """In a chat nothing else would: its turns are not resumed by a sweep."""
    async with family(tmp_path, approval_seconds=None) as dead:
        parent = await dead.parent(source="chat")
        turn = asyncio.create_task(dead.delegate(parent, {"task": json.dumps([MAIL])}))
        question = await asyncio.wait_for(asked(dead, parent), 20)
        turn.cancel()
        await asyncio.wait({turn})

    database = await open_migrated(tmp_path / "holdfast.db")
    async with family(tmp_path, database=database, approval_seconds=None) as one:
        await one.stage.engine.answer(question.call_key, Answer(allowed=allowed), by="test")
        async with asyncio.timeout(30):
            await one.quiet()

        log = await one.stage.log(parent)
        assert [event.outcome for event in log if isinstance(event, TurnEnded)] == ["done"]
        assert len(await one.completions(parent)) == 1
        assert one.stage.mailer.outbox.exists() == allowed
    await database.close()
