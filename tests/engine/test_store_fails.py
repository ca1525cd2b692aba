"""Promise 4: a store that cannot save stops the turn, says so, and the next turn works."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import DiskFull
from holdfast.model.event import ToolStarted, UserSaid
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed


class FullAt:
    """Passes everything through except the nth write, which fails with a full disk."""

    def __init__(self, inner: Any, nth: int) -> None:
        self._inner = inner
        self._left = nth
        self.failed = False

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            self.failed = True
            raise DiskFull("the disk is full")
        return await self._inner.write(work, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


STEPS = (
    ScriptStep(call=(ScriptedCall(name="mail", arguments={"to": "bo"}),)),
    ScriptStep(say="Sent."),
    ScriptStep(say="Here."),
    ScriptStep(say="Here."),
)


@pytest.mark.parametrize("nth", range(1, 6))
async def test_promise_4_a_write_that_fails_during_a_turn_is_reported_and_the_next_turn_works(
    tmp_path: Path, stages: list[Stage], nth: int
) -> None:
    stages.append(stage := await set_up(tmp_path, *STEPS))
    session = await stage.session()
    failing = FullAt(stage.database, nth)
    object.__setattr__(stage.engine.services, "database", failing)

    with pytest.raises(DiskFull):
        await stage.play(session.id, "Mail Bo")
        assert not failing.failed, "the caller got no error"
        raise DiskFull("the turn has fewer writes")
    after = await stage.play(session.id, "Are you there?")

    events = await stage.log(session.id)
    assert_well_formed(events)
    assert after[-1].outcome == "done"
    sent = stage.mailer.outbox.read_text().count("bo") if stage.mailer.outbox.exists() else 0
    assert sent <= 1
    if sent:
        assert any(isinstance(event, ToolStarted) for event in events), "it acted only after the start was recorded"
    if nth == 1:
        assert sum(isinstance(event, UserSaid) for event in events) == 1, "what was not saved is not there"
