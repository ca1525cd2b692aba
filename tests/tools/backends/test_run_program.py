"""Programs on this machine by which file tools reach a sandbox, a container or another machine."""

import asyncio

import pytest
import uvloop

from holdfast.tools.backends.port import Completed, run_program

pytestmark = pytest.mark.process


@pytest.mark.parametrize("size", [0, 200_000])
def test_a_program_may_end_before_its_input_is_written_also_in_the_event_loop_of_the_server(size: int) -> None:
    async def run_many() -> list[Completed]:
        runs = [run_program(["true"], b"x" * size, environment={"PATH": "/usr/bin:/bin"}) for _ in range(20)]
        return await asyncio.gather(*runs)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert {done.code for done in runner.run(run_many())} == {0}
