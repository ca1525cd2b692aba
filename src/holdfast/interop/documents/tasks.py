"""Background tasks of a worker."""

from typing import Self

import msgspec

from holdfast.interop.serialization import Document, format_time
from holdfast.supervisor import TaskStatus


class TaskItem(Document, frozen=True):
    """A background task of a worker. `state` is running, failing, down or ended."""

    name: str
    state: str
    cycle_at: str | None
    failures: int
    error: str
    error_at: str | None

    @classmethod
    def from_status(cls, status: TaskStatus) -> Self:
        times = {"cycle_at": format_time(status.cycle_at), "error_at": format_time(status.error_at)}
        return cls(**(msgspec.structs.asdict(status) | times))
