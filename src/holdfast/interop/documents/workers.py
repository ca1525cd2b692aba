"""Workers, their background tasks, and janitor sweeps."""

from typing import Self

import msgspec

from holdfast.engine.liveness.janitor import SweepReport, WorkerVerdict
from holdfast.interop.documents.tasks import TaskItem
from holdfast.interop.serialization import Document, format_time
from holdfast.store.repos.workers import Worker
from holdfast.supervisor import decode_statuses

TIMES = ("started_at", "beat_at", "stalled_since", "ended_at", "cleared_at", "leaving_at")


class WorkerItem(Document, frozen=True):
    id: str
    kind: str
    host: str
    boot: str
    pid: int
    process_started: str
    version: str
    started_at: str
    beat: int
    beat_at: str
    stalled_since: str | None
    ended_at: str | None
    end_reason: str | None
    cleared_at: str | None
    leaving_at: str | None
    tasks: list[TaskItem]
    state: str
    evidence: str

    @classmethod
    def from_worker(cls, worker: Worker, verdict: WorkerVerdict) -> Self:
        fields = msgspec.structs.asdict(worker) | {name: format_time(getattr(worker, name)) for name in TIMES}
        fields["tasks"] = [TaskItem.from_status(task) for task in decode_statuses(worker.tasks)]
        return cls(**fields, state=verdict.state, evidence=verdict.evidence)


class WorkerListResponse(Document, frozen=True):
    workers: list[WorkerItem]


class SweepActionItem(Document, frozen=True):
    what: str
    worker_id: str
    session_id: str
    evidence: str


class SweepResponse(Document, frozen=True):
    workers: list[WorkerItem]
    done: list[SweepActionItem]

    @classmethod
    def from_report(cls, report: SweepReport) -> Self:
        return cls(
            [WorkerItem.from_worker(worker, verdict) for worker, verdict in report.workers],
            [SweepActionItem(**msgspec.structs.asdict(action)) for action in report.actions],
        )
