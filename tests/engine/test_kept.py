"""Words that are shown once they are safe: in this process after their draft was written, in another as it reads the draft."""

import asyncio
from contextlib import aclosing
from pathlib import Path

from holdfast.engine.bus import Bus, Failed, Live, News
from holdfast.engine.drafts import Drafts
from holdfast.model.entry import Entry
from holdfast.model.errors import Unavailable
from holdfast.model.event import ModelSaid, TurnEnded
from holdfast.model.message import text_of
from holdfast.providers.scripted import Step
from holdfast.store import log
from holdfast.store.database import Transaction
from holdfast.store.log import Draft
from tests.engine.stage import Stage, set_up

SLOW = Step(say="one two three four five six", delay_seconds=0.12)


async def stored(stage: Stage, session_id: str) -> str:
    """What another process would find of the reply, were this one to die now."""

    def work(tx: Transaction) -> str:
        kept = log.draft(tx, session_id)
        said = [entry.event for entry in log.read(tx, session_id) if isinstance(entry.event, ModelSaid)]
        return text_of(said[-1].parts) if said else kept.body if kept else ""

    return await stage.database.read(work)


async def until_end(stage: Stage, session_id: str) -> list[News]:
    """Everything that a face hears which shows words once they are safe."""
    heard: list[News] = []
    shown = ""
    async with asyncio.timeout(30), aclosing(stage.engine.news(session_id)) as news:
        async for item in news:
            heard.append(item)
            if isinstance(item, Live) and item.kind == "text":
                shown += item.text
                assert (await stored(stage, session_id)).startswith(shown), "nothing is passed on that is not stored"
            if isinstance(item, Entry) and isinstance(item.event, TurnEnded):
                return heard
    raise AssertionError("the turn ends")


async def test_promise_2_words_are_passed_on_only_when_they_would_survive_a_crash(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stage = await set_up(tmp_path, SLOW)
    stages.append(stage)
    session = await stage.session()
    listening = asyncio.ensure_future(until_end(stage, session.id))
    await asyncio.sleep(0)
    await stage.engine.admit(session.id, "Count")

    heard = await listening

    pieces = [item.text for item in heard if isinstance(item, Live)]
    assert len(pieces) >= 2, "they come while the reply is streamed"
    assert SLOW.say.startswith("".join(pieces))
    [said] = [item.event for item in heard if isinstance(item, Entry) and isinstance(item.event, ModelSaid)]
    assert text_of(said.parts) == SLOW.say


async def test_another_worker_sees_the_words_as_its_drafts_grow(tmp_path: Path, stages: list[Stage]) -> None:
    one = await set_up(tmp_path, SLOW)
    other = await set_up(tmp_path, SLOW)
    stages += [one, other]
    session = await one.session()
    own = asyncio.ensure_future(until_end(one, session.id))
    watching = asyncio.ensure_future(until_end(other, session.id))
    await asyncio.sleep(0)
    await one.engine.admit(session.id, "Count")

    heard = await watching
    await own

    pieces = [item.text for item in heard if isinstance(item, Live)]
    assert pieces
    assert SLOW.say.startswith("".join(pieces))


async def test_those_who_do_not_ask_for_it_get_words_as_they_are_streamed_and_each_once(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stage = await set_up(tmp_path, SLOW)
    stages.append(stage)
    session = await stage.session()

    assert await stage.live_text(session.id, "Count") == SLOW.say


def test_a_draft_is_passed_on_word_by_word_and_one_that_begins_anew_says_so() -> None:
    drafts = Drafts()

    def news(body: str | None, turn: str = "t1") -> list[tuple[str, str]]:
        found = drafts.news(None if body is None else Draft(turn, body, 0))
        return [(live.kind, live.text) for live in found]

    assert news("Once") == [("text", "Once")]
    assert news("Once") == []
    assert news("Once upon") == [("text", " upon")]
    assert news("Twice") == [("restarted", "another attempt was made"), ("text", "Twice")]
    assert news(None) == []
    assert news("Twice") == [("text", "Twice")], "another reply may begin with the same words"
    assert news("Hello", "t2") == [("text", "Hello")]


def test_a_failure_is_news_too() -> None:
    bus = Bus()
    subscription = bus.subscribe("s", kept=True)
    failed = Failed(Unavailable("the store is away"))

    bus.publish("s", Live("t", "text", "not safe yet"))
    bus.publish("s", failed)

    assert subscription.take() == failed
    assert bus.wants_kept("s")
    bus.unsubscribe("s", subscription)
    assert not bus.wants_kept("s")
