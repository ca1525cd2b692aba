"""Tasks that cannot outlive their caller."""

import asyncio
import logging

import pytest

from holdfast.tasks import LateHelper, Tasks, run_all, running, wait_for_first


class Ended:
    """Work that runs until cancelled and records its end."""

    def __init__(self) -> None:
        self.is_over = False

    async def work(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.is_over = True


class TestRunning:
    async def test_work_has_ended_when_the_block_ends(self) -> None:
        first, second = Ended(), Ended()
        async with running(first.work(), second.work()) as tasks:
            await wait_for_first(*tasks, seconds=0)
        assert first.is_over
        assert second.is_over

    async def test_an_error_in_the_block_ends_the_work_too(self) -> None:
        work = Ended()
        with pytest.raises(OSError, match="no more files"):
            async with running(work.work()) as tasks:
                await wait_for_first(*tasks, seconds=0)
                raise OSError("no more files")
        assert work.is_over

    async def test_cancelling_the_caller_ends_the_work_before_it_propagates(self) -> None:
        work = Ended()
        began = asyncio.Event()

        async def caller() -> None:
            async with running(work.work()) as (task,):
                began.set()
                await task

        async with running(caller()) as (outer,):
            await began.wait()
            await asyncio.sleep(0)
        assert outer.cancelled()
        assert work.is_over


class TestRunAll:
    async def test_it_returns_the_results_in_order(self) -> None:
        async def work(number: int) -> int:
            await asyncio.sleep(0)
            return number

        assert await run_all(work(1), work(2)) == [1, 2]

    async def test_a_cancellation_propagates_only_after_the_slowest_has_ended(self) -> None:
        began, released, is_over = asyncio.Event(), asyncio.Event(), False
        quick = Ended()

        async def slow() -> None:
            nonlocal is_over
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                await released.wait()
                is_over = True

        async with running(run_all(quick.work(), slow())) as (outer,):
            await began.wait()
            outer.cancel()
            while not quick.is_over:
                await asyncio.sleep(0)
            for _ in range(10):
                await asyncio.sleep(0)
            assert not outer.done()
            released.set()
            await wait_for_first(outer)
        assert outer.cancelled()
        assert is_over


class TestTasksOfAnObject:
    async def test_closing_the_group_ends_all_tasks(self) -> None:
        tasks, work = Tasks(), Ended()
        tasks.start(work.work())
        await asyncio.sleep(0)
        assert len(tasks) == 1
        await tasks.close()
        assert work.is_over
        assert not tasks

    async def test_a_failure_that_is_not_awaited_is_logged_with_its_traceback(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def fail() -> None:
            raise OSError("no more files")

        tasks = Tasks()
        with caplog.at_level(logging.ERROR):
            await wait_for_first(tasks.start(fail(), name="reader"))
            await asyncio.sleep(0)
        assert "task reader failed" in caplog.text
        assert "OSError: no more files" in caplog.text

    async def test_an_owner_can_handle_failures_itself(self) -> None:
        async def fail() -> None:
            raise OSError("no more files")

        told: list[BaseException] = []
        tasks = Tasks(on_failure=lambda task, error: told.append(error))
        await wait_for_first(tasks.start(fail()))
        await asyncio.sleep(0)
        assert [str(error) for error in told] == ["no more files"]


class TestLateHelper:
    async def test_work_that_ends_first_starts_no_helper(self) -> None:
        started = []

        async def help_() -> None:
            started.append(True)

        async def work() -> str:
            await asyncio.sleep(0)
            return "done"

        assert await LateHelper(help_).run_beside(work(), after=60) == "done"
        assert started == []

    async def test_a_helper_that_was_started_ends_with_the_work(self) -> None:
        helping = Ended()
        helper = LateHelper(helping.work)

        async def work() -> None:
            helper.start()
            await asyncio.sleep(0)

        await helper.run_beside(work(), after=60)
        assert helping.is_over

    async def test_a_helper_starts_by_itself_after_its_time(self) -> None:
        started = asyncio.Event()

        async def help_() -> None:
            started.set()
            await asyncio.Event().wait()

        async def work() -> None:
            await started.wait()

        await LateHelper(help_).run_beside(work(), after=0)

    async def test_a_helper_that_ends_first_cancels_the_work(self) -> None:
        main = Ended()

        async def help_() -> None:
            await asyncio.sleep(0)

        assert await LateHelper(help_).run_beside(main.work(), after=0) is None
        assert main.is_over

    async def test_the_error_of_a_helper_is_raised(self) -> None:
        main = Ended()

        async def help_() -> None:
            raise OSError("no more files")

        with pytest.raises(OSError, match="no more files"):
            await LateHelper(help_).run_beside(main.work(), after=0)
        assert main.is_over

    async def test_a_helper_that_is_started_after_the_work_never_runs(self) -> None:
        started = []

        async def help_() -> None:
            started.append(True)

        helper = LateHelper(help_)
        await helper.run_beside(asyncio.sleep(0), after=60)
        helper.start()
        await asyncio.sleep(0)

        assert started == []

    async def test_a_timeout_of_the_work_itself_is_raised(self) -> None:
        async def work() -> None:
            raise TimeoutError("of the work")

        with pytest.raises(TimeoutError, match="of the work"):
            await LateHelper(Ended().work).run_beside(work(), after=60)

    async def test_a_cancellation_ends_work_and_helper(self) -> None:
        main, helping = Ended(), Ended()
        helper = LateHelper(helping.work)
        task = asyncio.create_task(helper.run_beside(main.work(), after=60))
        await asyncio.sleep(0)
        helper.start()
        await asyncio.sleep(0)

        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert main.is_over and helping.is_over
