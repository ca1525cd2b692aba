"""A future whose task runs as soon as the result is set."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from holdfast.tasks import PromptFuture

CALLER: ContextVar[str] = ContextVar("CALLER")


class Scene:
    """A task that waits for an answer, and what it saw."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.answer: PromptFuture[int] = PromptFuture(self.loop)
        self.seen: list[str] = []

    async def wait(self) -> int:
        CALLER.set("the waiting task")
        number = await self.answer
        self.seen.append(CALLER.get())
        return number

    async def call(self, act: Callable[[], object]) -> None:
        """Run it in a callback of the event loop, as the driver does."""
        done = self.loop.create_future()
        self.loop.call_soon(lambda: done.set_result(act()))
        await done


@pytest.fixture
async def scene() -> Scene:
    return Scene()


@pytest.fixture
async def task(scene: Scene) -> "asyncio.Task[int]":
    task = asyncio.create_task(scene.wait())
    await scene.call(lambda: None)
    return task


async def test_the_task_runs_before_the_callback_returns_and_in_its_own_context(
    scene: Scene, task: "asyncio.Task[int]"
) -> None:
    def settle() -> None:
        scene.answer.set_result(7)
        assert scene.seen == ["the waiting task"]

    await scene.call(settle)

    assert await task == 7


async def test_an_error_is_raised_in_the_task(scene: Scene, task: "asyncio.Task[int]") -> None:
    await scene.call(lambda: scene.answer.set_exception(ValueError("no")))

    with pytest.raises(ValueError, match="no"):
        await task


async def test_an_answer_that_was_there_before_is_returned_at_once(scene: Scene) -> None:
    scene.answer.set_result(3)

    assert await scene.wait() == 3


async def test_a_cancelled_task_does_not_run_inside_the_one_that_cancels_it(
    scene: Scene, task: "asyncio.Task[int]"
) -> None:
    assert task.cancel("enough")
    assert scene.answer.done()
    assert not task.done()

    with pytest.raises(asyncio.CancelledError, match="enough"):
        await task
    assert not scene.answer.cancel()


async def test_a_timeout_ends_the_wait(scene: Scene) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(scene.wait(), 0)
