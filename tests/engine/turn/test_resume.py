"""Promise 5: a long session is resumed exactly, by another worker, and verified."""

from pathlib import Path

from holdfast.engine.admission.open_session import OpenRequest
from holdfast.model.event import UserSaid
from holdfast.model.message import Text, text_of
from holdfast.model.session import messages
from holdfast.providers.scripted import ScriptStep
from holdfast.store.repos import log
from tests.engine.stage import Stage, set_up

MANY = 10_000


async def test_promise_5_a_session_of_10_000_messages_is_resumed_exactly(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="Here.")))
    session = await stage.session(title="Long")
    for start in range(0, MANY, 500):
        words = [UserSaid(turn_id=f"turn-{n}", parts=(Text(f"message {n}"),)) for n in range(start, start + 500)]
        await stage.database.write(log.append_unheld, session.id, words, at=start + 1)
    stages.append(other := await set_up(tmp_path, ScriptStep(say="Here."), database=stage.database))

    found = (await other.engine.open(OpenRequest(ref="Long", source="api"))).session
    events = await other.play(found.id, "Are you all there?")
    after, entries = await other.engine.read(found.id)

    assert found.summary.message_count == MANY
    assert [text_of(message.parts) for message in messages(entries)[:MANY]] == [f"message {n}" for n in range(MANY)]
    assert len(other.requests[0].messages) == MANY + 1, "the model gets all of it"
    assert after.seq == found.seq + len(events), "nothing was overwritten"
