"""What a request costs inside the write transaction, counted: all sessions share one writer, so it must not grow with a history."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.engine.admission import history_match
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.model.client_transcript import TranscriptItem
from holdfast.providers.scripted import ScriptStep
from holdfast.store.sqlite.driver import open_sqlite
from tests.engine.admission.test_client_request import assistant, send, user
from tests.engine.stage import Stage, set_up
from tests.fakes.counting import Cost, CountingDatabase

SIZES = (10, 100)
"""Turns of the history."""
READING = ("log.list_range", "client_history.list_in_family", "client_history.find_families")


async def counted(folder: Path, stages: list[Stage], *steps: ScriptStep) -> tuple[Stage, CountingDatabase]:
    folder.mkdir()
    database = CountingDatabase(await open_sqlite(folder / "holdfast.db"))
    model = "play" if steps else "echo"
    stages.append(stage := await set_up(folder, *steps, model=model, database=database))  # type: ignore[arg-type]
    database.reset()
    return stage, database


def history(turns: int) -> list[ClientMessage]:
    return [one for n in range(turns) for one in (user(f"question {n}"), assistant(f"answer {n}"))]


async def at_each_size(work: Callable[[int], Awaitable[Cost]]) -> list[tuple[int, int]]:
    """How many statements ran in write transactions, and how many rows they read of logs and histories."""
    costs = [await work(size) for size in SIZES]
    return [(cost.statements.total(), sum(cost.rows[query] for query in READING)) for cost in costs]


async def test_a_history_that_is_new_costs_the_same_at_any_length(tmp_path: Path, stages: list[Stage]) -> None:
    async def work(turns: int) -> Cost:
        stage, database = await counted(tmp_path / str(turns), stages)
        await send(stage, *history(turns), user("new"), model="echo")
        return database.writes

    (small, _), (large, _) = await at_each_size(work)

    assert small == large, "the rows that are written are as many as the messages, the statements are not"


async def test_an_edited_history_costs_the_same_at_any_length(tmp_path: Path, stages: list[Stage]) -> None:
    async def work(turns: int) -> Cost:
        stage, database = await counted(tmp_path / str(turns), stages)
        first, _ = await send(stage, *history(turns), user("new"), model="echo", ref="mine", channel="mine")
        database.reset()
        second, _ = await send(stage, *history(turns), user("edited"), model="echo", ref="mine", channel="mine")
        assert second.forked_from == first.admission.session.id
        return database.writes

    small, large = await at_each_size(work)

    assert small == large


async def test_an_edited_history_without_a_name_costs_the_same_at_any_length(
    tmp_path: Path, stages: list[Stage]
) -> None:
    async def work(turns: int) -> Cost:
        stage, database = await counted(tmp_path / str(turns), stages)
        first, _ = await send(stage, *history(turns), user("new"), model="echo")
        database.reset()
        edited = [*history(turns - 2), user("edited"), assistant("another answer"), user("more")]
        second, _ = await send(stage, *edited, model="echo")
        assert second.forked_from == first.admission.session.id
        return database.writes

    small, large = await at_each_size(work)

    assert small == large


@pytest.mark.parametrize("name", [{}, {"ref": "mine", "channel": "mine"}])
async def test_a_history_is_located_with_as_many_queries_at_any_length(
    tmp_path: Path, stages: list[Stage], name: dict[str, str]
) -> None:
    async def work(turns: int) -> Cost:
        stage, database = await counted(tmp_path / str(turns), stages)
        first, _ = await send(stage, *history(turns), user("new"), model="echo", **name)
        database.reset()
        edited = [*history(turns - 2), user("edited"), assistant("another answer"), user("more")]
        second, _ = await send(stage, *edited, model="echo", **name)
        assert second.forked_from == first.admission.session.id
        third, _ = await send(
            stage, user("unknown"), assistant("yes"), *history(turns), user("x"), model="echo", **name
        )
        assert third.new
        return database.reads

    costs = [(await work(size)).statements for size in SIZES]
    small, large = ({name: count for name, count in cost.items() if "history" in name} for cost in costs)

    assert small == large, "no query per message"


async def test_a_repeated_request_costs_the_same_at_any_length(tmp_path: Path, stages: list[Stage]) -> None:
    async def work(turns: int) -> Cost:
        stage, database = await counted(
            tmp_path / str(turns), stages, ScriptStep(fail="unreachable"), ScriptStep(say="Yes.")
        )
        words = [*history(turns), user("are you there?")]
        first, _ = await send(stage, *words, model="play")
        database.reset()
        second, _ = await send(stage, *words, model="play")
        assert second.admission.session.id == first.admission.session.id
        assert [message.text for message in stage.requests[-1].messages][-2:] == [
            f"answer {turns - 1}",
            "are you there?",
        ]
        return database.writes

    small, large = await at_each_size(work)

    assert small == large


async def test_a_fork_costs_the_same_at_any_length(tmp_path: Path, stages: list[Stage]) -> None:
    async def work(turns: int) -> Cost:
        stage, database = await counted(tmp_path / str(turns), stages)
        first, _ = await send(stage, *history(turns), user("new"), model="echo")
        database.reset()
        forked = await stage.engine.actions.fork(first.admission.session.id)
        assert forked.summary.message_count == 2 * turns + 2
        return database.writes

    small, large = await at_each_size(work)

    assert small == large


async def test_messages_of_a_client_are_hashed_outside_the_transaction(
    tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, database = await counted(tmp_path / "store", stages)
    hashed_inside: list[TranscriptItem] = []
    grow = history_match.grow

    def watched(previous: str, item: TranscriptItem) -> str:
        if database.is_writing:
            hashed_inside.append(item)
        return grow(previous, item)

    monkeypatch.setattr(history_match, "grow", watched)
    await send(stage, *history(20), user("new"), model="echo")
    await send(stage, *history(20), user("edited"), model="echo")

    assert len(hashed_inside) <= 2, "no more than the messages since the last turn"
