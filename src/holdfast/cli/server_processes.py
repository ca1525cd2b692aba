"""Runs the server in several processes: a supervising process forks them, replaces those that end, and ends with them.

They share one listening socket and one store, and work as the workers of a fleet do. The supervising process opens neither
the store nor an event loop and starts no thread, so that a fork copies nothing that is in use.
"""

import ctypes
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from holdfast.cli.errors import DONE, FAILED, INTERRUPTED
from holdfast.cli.signals import DRAIN_SIGNAL, SIGNALS, is_not_ignored
from holdfast.process_slots import ProcessSlot, ProcessSlots
from holdfast.supervisor import Pauses

logger = logging.getLogger(__name__)
STEADY_SECONDS = 60.0
"""A process that has run for so long is replaced without delay when it ends."""
PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class ServerProcess:
    """One of the processes, and its replacements."""

    number: int
    pid: int | None = None
    due_at: float | None = None
    """When it is started; None if it runs, or is not to be started."""
    started_at: float = 0.0
    is_ready: bool = False
    replaced: int = 0
    pauses: Pauses = field(default_factory=Pauses)


class ServerProcesses:
    """Supervises the processes until a signal arrives. `on_ready` is called once, when all of them accept connections."""

    def __init__(self, count: int, on_ready: Callable[[], object]) -> None:
        self._slots = ProcessSlots(count)
        self._processes = [ServerProcess(number) for number in range(1, count + 1)]
        self._on_ready = on_ready
        self._were_ready = False
        self._signals: list[int] = []
        self._stopping = False
        self._status = DONE
        self._ready_pipe = os.pipe()
        self._wake_pipe = os.pipe()
        for descriptor in (*self._ready_pipe, *self._wake_pipe):
            os.set_blocking(descriptor, False)

    def run(self) -> ProcessSlot | int:
        """Return in each forked process with its slot, and in the supervising one with the exit status when all have ended.

        The first process starts before the others: it creates or migrates the store, or fails for all.
        """
        supervisor = os.getpid()
        self._processes[0].due_at = time.monotonic()
        with self._catching_signals() as restore:
            try:
                while not self._is_over():
                    for process in self._list_due():
                        if self._fork(process) == 0:
                            restore()
                            return self._enter_child(process, supervisor)
                    self._wait()
                    self._react_to_signals()
                    self._note_ready()
                    self._reap()
                return self._status
            finally:
                if os.getpid() == supervisor:
                    self._kill_all()

    def report_ready(self, slot: ProcessSlot) -> None:
        """Report that this process accepts connections. Called in a forked process."""
        os.write(self._ready_pipe[1], bytes([slot.number]))

    def _is_over(self) -> bool:
        if len(self._signals) > 1:
            self._status = INTERRUPTED
            return True
        return self._stopping and all(process.pid is None for process in self._processes)

    def _list_due(self) -> list[ServerProcess]:
        now = time.monotonic()
        return [one for one in self._processes if one.due_at is not None and one.due_at <= now and not self._stopping]

    def _fork(self, process: ServerProcess) -> int | None:
        """Start a process; None if the system has no room for one, and it is tried again later.

        No signal is handled by a copy of this process before `_enter_child`.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (*SIGNALS, signal.SIGCHLD, DRAIN_SIGNAL))
        pid = None
        try:
            pid = os.fork()
        except OSError as e:
            pause = process.pauses.next()
            process.due_at = time.monotonic() + pause
            logger.warning("cannot start server process %d: %s; trying again in %.1f s", process.number, e, pause)
        else:
            process.pid, process.due_at, process.started_at, process.is_ready = pid, None, time.monotonic(), False
        finally:
            if pid != 0:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid

    def _enter_child(self, process: ServerProcess, supervisor: int) -> ProcessSlot:
        """Become a server process: the kernel ends it with the supervising one."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*SIGNALS, signal.SIGCHLD, DRAIN_SIGNAL))
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:  # it died before
            os._exit(FAILED)
        for descriptor in (self._ready_pipe[0], *self._wake_pipe):
            os.close(descriptor)
        return ProcessSlot(self._slots, process.number)

    def _wait(self) -> None:
        """Wait for a signal, the end of a process, a process that is ready, or the time to start one."""
        due = [one.due_at for one in self._processes if one.due_at is not None and not self._stopping]
        seconds = max(0.0, min(due) - time.monotonic()) if due else None
        found, _, _ = select.select([self._wake_pipe[0], self._ready_pipe[0]], [], [], seconds)
        if self._wake_pipe[0] in found:
            os.read(self._wake_pipe[0], 4096)

    def _react_to_signals(self) -> None:
        if self._signals and not self._stopping:
            self._stop()

    def _stop(self) -> None:
        """Let all processes drain and end."""
        self._stopping = True
        for process in self._processes:
            if process.pid is not None:
                os.kill(process.pid, DRAIN_SIGNAL)

    def _note_ready(self) -> None:
        try:
            numbers = os.read(self._ready_pipe[0], 4096)
        except BlockingIOError:
            return
        for number in numbers:
            self._processes[number - 1].is_ready = True
        if self._were_ready:
            return
        now = time.monotonic()
        for process in self._processes:
            if process.pid is None and process.due_at is None:
                process.due_at = now
        if all(process.is_ready for process in self._processes):
            self._were_ready = True
            self._on_ready()

    def _reap(self) -> None:
        for process in self._processes:
            if process.pid is not None:
                ended, status = os.waitpid(process.pid, os.WNOHANG)
                if ended:
                    self._note_end(process, os.waitstatus_to_exitcode(status))

    def _note_end(self, process: ServerProcess, code: int) -> None:
        """Schedule a replacement. Before all have started once, a process that ends stops the others instead."""
        pid, process.pid = process.pid, None
        reason = f"signal {-code}" if code < 0 else f"exit status {code}"
        if self._stopping or not self._were_ready:
            self._slots.clear(process.number, replaced=process.replaced)
            if code not in (DONE, -DRAIN_SIGNAL):
                logger.error("server process %d (pid %d) ended with %s", process.number, pid, reason)
                self._status = self._status or (code if code > 0 else FAILED)
            if not self._stopping:
                self._stop()
            return
        if time.monotonic() - process.started_at >= STEADY_SECONDS:
            process.pauses = Pauses()
        pause = process.pauses.next()
        process.due_at, process.replaced = time.monotonic() + pause, process.replaced + 1
        self._slots.clear(process.number, replaced=process.replaced)
        message = "server process %d (pid %d) ended with %s; another one starts in %.1f s"
        logger.warning(message, process.number, pid, reason, pause)

    def _kill_all(self) -> None:
        for process in self._processes:
            if process.pid is not None:
                os.kill(process.pid, signal.SIGKILL)
                os.waitpid(process.pid, 0)

    @contextmanager
    def _catching_signals(self) -> Iterator[Callable[[], None]]:
        """Within the block, a signal is noted and ends `_wait`; yields what restores the handlers."""
        handled = [number for number in SIGNALS if is_not_ignored(number)]
        before = {number: signal.getsignal(number) for number in (*handled, signal.SIGCHLD)}
        wake_before = signal.set_wakeup_fd(self._wake_pipe[1], warn_on_full_buffer=False)

        def restore() -> None:
            signal.set_wakeup_fd(wake_before)
            for number, handler in before.items():
                signal.signal(number, handler)

        for number in handled:
            signal.signal(number, lambda number, frame: self._signals.append(number))
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        try:
            yield restore
        finally:
            restore()
