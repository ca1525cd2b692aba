"""Reading /proc of programs that change meanwhile."""

import os
import socket
import threading

import pytest

from holdfast.processes.procfs import ProcessStat, Sockets


@pytest.mark.slow
def test_a_program_that_opens_and_closes_files_all_the_time_is_still_seen_to_listen() -> None:
    enough = threading.Event()

    def be_busy() -> None:
        while not enough.is_set():
            for handle in [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]:
                os.close(handle)

    ours = ProcessStat(pid=os.getpid(), name="", parent=0, session=0, started="", cpu=0.0, is_zombie=False, marker=None)
    busy = threading.Thread(target=be_busy)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        busy.start()
        try:
            missed = sum(address not in Sockets().listening_addresses([ours]) for _ in range(200))
        finally:
            enough.set()
            busy.join()

    assert missed == 0
