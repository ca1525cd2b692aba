"""The power fails while a process writes; the disk comes back with what had reached it and nothing else."""

from pathlib import Path

import pytest

from holdfast.model.errors import Corrupt
from tests.crash import disk, effort
from tests.crash.check import verify
from tests.crash.disk import Disk
from tests.crash.programs import program
from tests.crash.say import Place, places
from tests.crash.stream import SESSIONS
from tests.crash.writer import DATABASE

pytestmark = [pytest.mark.crash, pytest.mark.timeout(effort.limit(5))]

MEGABYTES = 48
OFTEN = 40
"""Pages between checkpoints, so that the power often fails in the middle of one."""
SELDOM = 100_000


def cut_power_after(disk: Disk, lines: int, *options: object) -> tuple[list[Place], int]:
    """Let a process write until it has said so many lines, and switch off.

    What it had acknowledged by then, and how many acknowledgements it gave in all. Those it gave while the
    power went do not count: an fsync that is under way at that moment may return, but no machine that has
    lost its power could have told anybody.
    """
    with program("stream", disk.home, *options) as writer:
        writer.wait_for_words("\n", times=lines)
        acknowledged = places(writer.lines())
        disk.cut_power()
        writer.wait_for_words('"failed"')  # unless the loss of its files has killed it
        writer.kill()
        said = len(places(writer.lines()))
    disk.unmount()
    disk.mount()
    return acknowledged, said


@pytest.mark.parametrize(("lines", "pages"), [(1, SELDOM), (7, SELDOM), (400, SELDOM), (300, OFTEN), (700, OFTEN)])
def test_a_power_cut_loses_nothing_that_was_acknowledged(lines: int, pages: int, tmp_path: Path) -> None:
    for round_ in range(effort.CUTS):
        folder = tmp_path / f"{round_}"
        folder.mkdir()
        with disk.mounted(folder, MEGABYTES) as drive:
            acknowledged, said = cut_power_after(drive, lines, "--checkpoint-pages", pages)
            logs, _ = verify(drive.home / DATABASE, acknowledged)

        assert len(acknowledged) >= lines
        assert sum(map(len, logs.values())) <= said + SESSIONS, "more than was said and under way"


def test_the_power_cut_is_real_since_a_laxer_store_loses_what_it_acknowledged(tmp_path: Path) -> None:
    """The control: were nothing ever lost here, the test above would prove nothing."""
    for attempt in range(5):
        folder = tmp_path / f"{attempt}"
        folder.mkdir()
        with disk.mounted(folder, MEGABYTES) as drive:
            options = ("--synchronous", "NORMAL", "--checkpoint-pages", SELDOM)
            acknowledged, _ = cut_power_after(drive, 2000, *options)
            if loses(drive.home / DATABASE, acknowledged):
                return
    pytest.fail("a store that does not wait for the disk lost nothing: the power cut does not cut")


def loses(path: Path, acknowledged: list[Place]) -> bool:
    try:
        verify(path, acknowledged)
    except (AssertionError, Corrupt) as e:
        return "was acknowledged and is gone" in str(e)
    return False
