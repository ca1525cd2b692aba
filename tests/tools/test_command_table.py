from pathlib import Path

import pytest

from holdfast.model.finding import summary
from holdfast.tools.command_guard.command_risk import find_risks
from tests.tools.command_table import ASKS, HARMLESS, REPORTED

HOME = Path("/data/hf")


@pytest.fixture
def workdir(tmp_path):
    """A directory with a few files that commands of the table name."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "present.txt").touch()
    (tmp_path / ".env").touch()
    keys = tmp_path / "elsewhere" / ".ssh"
    keys.mkdir(parents=True)
    (keys / "config").touch()
    (tmp_path / "link").symlink_to(keys / "config")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("command", "reason"), ASKS, ids=[command[:60] for command, _ in ASKS])
def test_a_command_that_is_risky_or_not_understood_needs_approval_for_the_right_reason(command, reason, workdir):
    assert reason in summary(find_risks(command, HOME, workdir))


@pytest.mark.parametrize("command", HARMLESS, ids=lambda text: text[:60])
def test_an_everyday_command_needs_no_approval(command, workdir):
    assert find_risks(command, HOME, workdir) == ()


def test_the_table_is_large_and_has_each_command_once():
    asking = [command for command, _ in ASKS]

    assert len(asking) + len(HARMLESS) - len(REPORTED) >= 200
    assert len(HARMLESS) >= 80
    assert len(set(asking + HARMLESS)) == len(asking) + len(HARMLESS)
