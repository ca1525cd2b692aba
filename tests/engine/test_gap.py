"""A log with a gap is refused before anything is added to it."""

from pathlib import Path

import apsw
import pytest

from holdfast.engine.admission.client_request import ClientRequest, ContinueFrom
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.model.entry import Entry
from holdfast.model.errors import Corrupt
from holdfast.model.event import ModelSaid
from holdfast.model.message import Text, text_of
from holdfast.store.repos import input_queue, leases
from tests.engine.stage import Stage, gone, set_up


def lose(folder: Path, session_id: str, seq: int) -> None:
    """What a broken disk or a manual change does."""
    connection = apsw.Connection(str(folder / "holdfast.db"))
    connection.execute("DELETE FROM event WHERE session_id = ? AND seq = ?", (session_id, seq))
    connection.close()


def stored(folder: Path, session_id: str) -> list[int]:
    connection = apsw.Connection(str(folder / "holdfast.db"))
    found = connection.execute("SELECT seq FROM event WHERE session_id = ? ORDER BY seq", (session_id,)).fetchall()
    connection.close()
    return [int(seq) for (seq,) in found]


async def spoken(folder: Path, stages: list[Stage], **opening: object) -> tuple[Stage, str]:
    """A session with a few turns, on a worker that has not seen it yet."""
    stages.append(first := await set_up(folder, model="echo"))
    session = await first.session(**opening)
    for number in range(3):
        await first.play(session.id, f"Word {number}")
    stages.append(second := await set_up(folder, database=first.database, model="echo"))
    return second, session.id


async def assert_refused(stage: Stage, folder: Path, session_id: str, arrival: ClientRequest | None = None) -> None:
    before = stored(folder, session_id)
    # A log that lacks only its last event is refused by its count, any other by the event that is missing.
    with pytest.raises(Corrupt, match=f"{session_id}: (event|12 events are stored, but its row names event 13)"):
        if arrival is None:
            await stage.admit(session_id, "And?")
        else:
            await stage.engine.submit(arrival, stream="live")
    assert stored(folder, session_id) == before
    assert await stage.database.read(input_queue.list_waiting, session_id) == []


def asking(*texts: str, **more: object) -> ClientRequest:
    roles = ("user", "assistant")
    given = tuple(ClientMessage(role=roles[n % 2], parts=(Text(text),)) for n, text in enumerate(texts))  # type: ignore[arg-type]
    fields = {"turn_id": "turn-new", "new_id": "hf-new", "caller": "me", "default_model": "echo", **more}
    return ClientRequest(messages=given, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("seq", [2, 7])
async def test_a_message_for_a_log_with_a_gap_is_refused_and_nothing_is_written(
    tmp_path: Path, stages: list[Stage], seq: int
) -> None:
    stage, session_id = await spoken(tmp_path, stages)
    lose(tmp_path, session_id, seq)

    await assert_refused(stage, tmp_path, session_id)


@pytest.mark.parametrize("seq", range(1, 14))
async def test_a_request_that_names_a_session_with_a_gap_is_refused_and_nothing_is_written(
    tmp_path: Path, stages: list[Stage], seq: int
) -> None:
    stage, session_id = await spoken(tmp_path, stages, channel="api:me")
    assert seq in stored(tmp_path, session_id)
    lose(tmp_path, session_id, seq)

    await assert_refused(stage, tmp_path, session_id, asking("And?", ref=session_id))
    await assert_refused(stage, tmp_path, session_id, asking("And?", channel="api:me"))


async def test_a_request_for_a_session_with_a_gap_that_a_dead_worker_holds_is_refused_and_does_not_wait(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stage, session_id = await spoken(tmp_path, stages, channel="api:me")
    dead = await set_up(tmp_path, database=stage.database, who=gone())
    await stage.database.write(leases.take, session_id, dead.worker_id)
    lose(tmp_path, session_id, 3)

    await assert_refused(stage, tmp_path, session_id, asking("And?", ref=session_id))


async def test_a_request_that_continues_from_a_turn_behind_a_gap_is_refused(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stage, session_id = await spoken(tmp_path, stages)
    turn_id = [event for event in await stage.log(session_id) if hasattr(event, "turn_id")][-1].turn_id
    lose(tmp_path, session_id, 3)

    await assert_refused(stage, tmp_path, session_id, asking("And?", after=ContinueFrom(session_id, turn_id)))


async def test_a_request_that_is_matched_by_its_history_is_verified_as_well(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(first := await set_up(tmp_path, model="echo"))
    received = await first.engine.submit(asking("Hello"), stream="live")
    events = [item.event async for item in received.follow() if isinstance(item, Entry)]
    received.close()
    session_id = received.admission.session.id
    [reply] = [text_of(event.parts) for event in events if isinstance(event, ModelSaid)]
    stages.append(second := await set_up(tmp_path, database=first.database, model="echo"))
    lose(tmp_path, session_id, 2)

    await assert_refused(second, tmp_path, session_id, asking("Hello", reply, "And?", turn_id="turn-2", new_id="hf-2"))


async def test_a_log_whose_end_is_gone_is_refused_though_the_session_is_cached(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stage, session_id = await spoken(tmp_path, stages)
    await stage.play(session_id, "I know this session now.")
    lose(tmp_path, session_id, stored(tmp_path, session_id)[-1])

    await assert_refused(stage, tmp_path, session_id)


async def test_a_cached_session_is_not_verified_again(tmp_path: Path, stages: list[Stage]) -> None:
    stage, session_id = await spoken(tmp_path, stages)
    await stage.play(session_id, "I know this session now.")
    lose(tmp_path, session_id, 3)

    events = await stage.play(session_id, "And?")

    assert events[-1].outcome == "done", "what was lost since is found when the session is loaded the next time"  # type: ignore[union-attr]
