"""The identity of a running process. The kernel reuses pids, so it includes the boot and the start time."""

import msgspec


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    boot: str
    """The boot and the pid namespace in which the pid is valid."""
    pid: int
    process_started: str
