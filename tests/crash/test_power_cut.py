"""The power fails while a process writes; the disk then has only the data that had reached it."""

from pathlib import Path

import pytest

from holdfast.model.errors import Corrupt
from tests import sampling
from tests.crash import disk
from tests.crash.disk import Disk
from tests.crash.output import Head, heads
from tests.crash.programs import program
from tests.crash.stream import SESSIONS
from tests.crash.verification import verify
from tests.crash.writer import DATABASE

pytestmark = [pytest.mark.crash, pytest.mark.timeout(sampling.limit(5))]

MEGABYTES = 48
OFTEN = 40
"""Pages between checkpoints, so that the power often fails in the middle of one."""
SELDOM = 100_000


def cut_power_after(disk: Disk, lines: int, *options: object) -> tuple[list[Head], int]:
    """Cut the power once a process has written that many lines.

    Return what it had acknowledged by then, and the number of all its acknowledgements. Those during the cut do not
    count: an fsync that is under way at that moment may return, but a machine without power cannot report it.
    """
    with program("stream", disk.home, *options) as writer:
        writer.wait_for_output("\n", times=lines)
        acknowledged = heads(writer.lines())
        disk.cut_power()
        writer.wait_for_output('"failed"')  # or it died when its files failed
        writer.kill()
        said = len(heads(writer.lines()))
    disk.unmount()
    disk.mount()
    return acknowledged, said


@pytest.mark.parametrize(("lines", "pages"), [(1, SELDOM), (7, SELDOM), (400, SELDOM), (300, OFTEN), (700, OFTEN)])
def test_a_power_cut_loses_nothing_that_was_acknowledged(lines: int, pages: int) -> None:
    for _ in range(sampling.CUTS):
        with disk.mounted(MEGABYTES) as drive:
            acknowledged, said = cut_power_after(drive, lines, "--checkpoint-pages", pages)
            logs, _ = verify(drive.home / DATABASE, acknowledged)

        assert len(acknowledged) >= lines
        assert sum(map(len, logs.values())) <= said + SESSIONS, "more than was acknowledged and under way"


def test_the_power_cut_is_real_because_a_store_with_weaker_settings_loses_data() -> None:
    """The control: if nothing were lost here, the test above would prove nothing."""
    for _ in range(5):
        with disk.mounted(MEGABYTES) as drive:
            options = ("--synchronous", "NORMAL", "--checkpoint-pages", SELDOM)
            acknowledged, _ = cut_power_after(drive, 2000, *options)
            if loses(drive.home / DATABASE, acknowledged):
                return
    pytest.fail("a store that does not wait for the disk lost nothing: the power cut has no effect")


def loses(path: Path, acknowledged: list[Head]) -> bool:
    try:
        verify(path, acknowledged)
    except (AssertionError, Corrupt) as e:
        return "was acknowledged and is missing" in str(e)
    return False
