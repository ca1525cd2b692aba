import signal
import subprocess

import pytest

from holdfast.process_lookup import get_start_time
from holdfast.processes.process_dir import Program, send_signal, send_signal_by_pid

pytestmark = pytest.mark.process


@pytest.mark.parametrize("send", [send_signal, send_signal_by_pid])
def test_a_signal_reaches_only_the_program_that_was_meant(send):
    child = subprocess.Popen(["sleep", "1000"])
    started = get_start_time(child.pid)
    assert started is not None
    try:
        assert not send(Program(child.pid, started + "1"), signal.SIGKILL), "another program had this pid before"
        assert child.poll() is None
        assert send(Program(child.pid, started), signal.SIGTERM)
        assert child.wait() == -signal.SIGTERM
        assert not send(Program(child.pid, started), signal.SIGTERM)
    finally:
        child.kill()
        child.wait()
