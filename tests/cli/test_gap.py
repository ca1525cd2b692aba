"""A session whose log has a gap is refused by name, and nothing is written to it."""

import subprocess

import apsw
import pytest

from tests.cli.conftest import Holdfast

pytestmark = pytest.mark.process


@pytest.mark.parametrize("command", [["run", "--session", "{}", "And?"], ["chat", "--resume", "{}"]])
def test_a_message_for_a_log_with_a_gap_is_refused_without_a_traceback(holdfast: Holdfast, command: list[str]) -> None:
    holdfast("run", "--model", "scripted:echo", "Hello")
    [session_id] = [one["id"] for one in holdfast("sessions", "list", "--json").json["sessions"]]
    connection = apsw.Connection(str(holdfast.home / "holdfast.db"))
    connection.execute("DELETE FROM event WHERE session_id = ? AND seq = 3", (session_id,))
    stored = connection.execute("SELECT seq FROM event WHERE session_id = ?", (session_id,)).fetchall()

    line = holdfast.command(*(word.format(session_id) for word in command))
    ran = subprocess.run(line, input="And?\n", capture_output=True, text=True, timeout=60, check=False)

    assert ran.returncode == 1
    assert ran.stderr == f"holdfast: session {session_id}: event 3 is missing; the next one stored is 4\n"
    assert connection.execute("SELECT seq FROM event WHERE session_id = ?", (session_id,)).fetchall() == stored
    connection.close()
