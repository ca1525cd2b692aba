"""What tells one running program from any other: pids come back, start times and boots do not."""

import msgspec


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    boot: str
    """The boot and the pid space within which the pid means this program."""
    pid: int
    process_started: str
