"""Text that is shown once it is durable: in this process after its draft was saved, in another as it reads the draft."""

import asyncio
from contextlib import aclosing
from pathlib import Path

from holdfast.engine.streaming.bus import Bus, LiveText, StreamItem, TurnBroke
from holdfast.engine.streaming.watch import DraftReader
from holdfast.model.entry import Entry
from holdfast.model.errors import Unavailable
from holdfast.model.event import ModelSaid, TurnEnded
from holdfast.model.message import text_of
from holdfast.providers.scripted import ScriptStep
from holdfast.store.database import Transaction
from holdfast.store.repos import log
from holdfast.store.repos.log import ReplyDraft
from tests.engine.stage import Stage, set_up

SLOW = ScriptStep(say="one two three four five six", delay_seconds=0.12)


async def stored(stage: Stage, session_id: str) -> str:
    """The text of the reply that would survive a crash now."""

    def work(tx: Transaction) -> str:
        kept = log.get_draft(tx, session_id)
        said = [entry.event for entry in log.read(tx, session_id) if isinstance(entry.event, ModelSaid)]
        return text_of(said[-1].parts) if said else kept.body if kept else ""

    return await stage.database.read(work)


async def until_end(stage: Stage, session_id: str) -> list[StreamItem]:
    """Everything that a follower of durable text receives."""
    heard: list[StreamItem] = []
    shown = ""
    async with asyncio.timeout(30), aclosing(stage.engine.watch(session_id, stream="durable")) as news:
        async for item in news:
            heard.append(item)
            if isinstance(item, LiveText) and item.kind == "text":
                shown += item.text
                assert (await stored(stage, session_id)).startswith(shown), "nothing is sent that is not stored"
            if isinstance(item, Entry) and isinstance(item.event, TurnEnded):
                return heard
    raise AssertionError("the turn ends")


async def test_promise_2_durable_followers_get_text_only_when_it_would_survive_a_crash(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stage = await set_up(tmp_path, SLOW)
    stages.append(stage)
    session = await stage.session()
    listening = asyncio.ensure_future(until_end(stage, session.id))
    await asyncio.sleep(0)
    await stage.admit(session.id, "Count")

    heard = await listening

    pieces = [item.text for item in heard if isinstance(item, LiveText)]
    assert len(pieces) >= 2, "it arrives while the reply is streamed"
    assert SLOW.say.startswith("".join(pieces))
    [said] = [item.event for item in heard if isinstance(item, Entry) and isinstance(item.event, ModelSaid)]
    assert text_of(said.parts) == SLOW.say


async def test_another_worker_sees_the_text_as_its_drafts_grow(tmp_path: Path, stages: list[Stage]) -> None:
    one = await set_up(tmp_path, SLOW)
    other = await set_up(tmp_path, SLOW)
    stages += [one, other]
    session = await one.session()
    own = asyncio.ensure_future(until_end(one, session.id))
    watching = asyncio.ensure_future(until_end(other, session.id))
    await asyncio.sleep(0)
    await one.admit(session.id, "Count")

    heard = await watching
    await own

    pieces = [item.text for item in heard if isinstance(item, LiveText)]
    assert pieces
    assert SLOW.say.startswith("".join(pieces))


async def test_live_followers_get_text_as_it_is_streamed_and_each_part_once(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stage = await set_up(tmp_path, SLOW)
    stages.append(stage)
    session = await stage.session()

    assert await stage.live_text(session.id, "Count") == SLOW.say


def test_a_draft_is_streamed_in_parts_and_a_restart_is_reported() -> None:
    drafts = DraftReader()

    def news(body: str | None, turn: str = "t1") -> list[tuple[str, str]]:
        found = drafts.read_new(None if body is None else ReplyDraft(turn, body, 0))
        return [(live.kind, live.text) for live in found]

    assert news("Once") == [("text", "Once")]
    assert news("Once") == []
    assert news("Once upon") == [("text", " upon")]
    assert news("Twice") == [("restarted", "another attempt was made"), ("text", "Twice")]
    assert news(None) == []
    assert news("Twice") == [("text", "Twice")], "another reply may begin with the same text"
    assert news("Hello", "t2") == [("text", "Hello")]


def test_a_notice_in_a_draft_is_streamed_once_and_before_the_text_that_follows() -> None:
    drafts = DraftReader()

    def news(body: str, notice: str) -> list[tuple[str, str]]:
        return [(live.kind, live.text) for live in drafts.read_new(ReplyDraft("t1", body, 0, notice))]

    assert news("", "busy (2/5)") == [("retrying", "busy (2/5)")]
    assert news("", "busy (2/5)") == []
    assert news("Hello", "busy (3/5)") == [("retrying", "busy (3/5)"), ("text", "Hello")]
    drafts.note_entry(Entry(1, 0, ModelSaid(turn_id="t1", parts=(), model="m", finish="stop")))
    assert news("", "busy (3/5)") == [("retrying", "busy (3/5)")], "another reply may have the same notice"
    drafts.note(LiveText("t1", "retrying", "busy (4/5)"))
    assert news("", "busy (4/5)") == [], "it was received here"


def test_a_failure_is_published_too() -> None:
    bus = Bus()
    subscription = bus.subscribe("s", kept=True)
    failed = TurnBroke(Unavailable("the store is away"))

    bus.publish("s", LiveText("t", "text", "not safe yet"))
    bus.publish("s", failed)

    assert subscription.take() == failed
    assert bus.wants_durable("s")
    bus.unsubscribe("s", subscription)
    assert not bus.wants_durable("s")
