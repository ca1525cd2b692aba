"""The embedded model compacts its own session. Nothing here depends on which words it chooses."""

from pathlib import Path

import pytest

from holdfast.engine.compaction.compact import CompactionSettings
from holdfast.engine.compaction.summarize import SummaryAuthor
from holdfast.model.event import Compacted, Event, ModelSaid, UserSaid
from holdfast.model.message import Text
from holdfast.providers.local.provider import LocalProvider
from holdfast.store.repos import log
from tests.engine.stage import set_up

MODEL = "smollm2"
WINDOW = 1_024
CONVERSATION = (
    ("My name is Ada. I keep bees in Bremen, in three hives.", "Three hives in Bremen sound lovely, Ada."),
    ("Hive two lost its queen on Monday.", "Buy a mated queen, or let the bees raise one."),
    ("I ordered a queen from Lindner for 45 euros.", "Keep her cage closed for two days."),
    ("The count in hive one is 12 mites a day.", "That is high. Treat it this week."),
    ("I decided on oxalic acid in December.", "Oxalic acid in December, then."),
    ("My sister Clara takes over in August.", "I shall prepare a list for Clara."),
) * 2


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_promise_18_the_embedded_model_continues_through_its_own_small_window(tmp_path: Path) -> None:
    provider = LocalProvider(context=WINDOW)
    asked: list[str] = []

    async def ask(request):  # type: ignore[no-untyped-def]
        asked.append(request.system)
        async for item in provider.ask(request):
            yield item

    author = SummaryAuthor((MODEL,), ask, provider.window, 200, "digest")  # type: ignore[arg-type]
    stage = await set_up(
        tmp_path, ask=ask, model=MODEL, compacting=CompactionSettings(WINDOW, 0.75, 2, author), step_seconds=200
    )
    session = await stage.session()
    words: list[Event] = []
    for number, (said, answered) in enumerate(CONVERSATION):
        words.append(UserSaid(turn_id=f"turn-{number}", parts=(Text(said),)))
        words.append(ModelSaid(turn_id=f"turn-{number}", parts=(Text(answered),)))
    await stage.database.write(log.append_unheld, session.id, words, at=1)
    compacted = await stage.engine.compact(session.id)
    events = await stage.play(session.id, "Who is Clara? Answer in one short sentence.")
    await stage.engine.close()
    await stage.database.close()
    await provider.close()

    assert isinstance(compacted, Compacted)
    assert compacted.tokens_after < compacted.tokens_before
    assert compacted.usage.tokens_out > 0, "the model was called"
    assert (compacted.how == "summary") == (compacted.reason == ""), (
        "if its summary was unusable, the reason is recorded"
    )
    assert compacted.summary.strip()
    assert events[-1].outcome == "done"
    said = next(event for event in events if isinstance(event, ModelSaid))
    assert 0 < said.usage.tokens_in < WINDOW
