"""Background processes."""

from typing import Any, Self

from holdfast.interop.serialization import Document, format_time
from holdfast.model.process import Process, ProcessVerdict
from holdfast.model.times import iso


class ProcessItem(Document, frozen=True):
    id: str
    session_id: str
    command: str
    workdir: str
    host: str
    pid: int | None
    state: str
    evidence: str
    blocks_reset: bool
    expired: bool
    started_at: str
    last_work_at: str
    last_work: str
    ttl_seconds: int
    members: int
    listens: list[Any]
    cpu_seconds: float
    output_bytes: int
    ended_at: str | None
    exit_code: int | None
    end_reason: str | None

    @classmethod
    def from_process(cls, process: Process, seen: ProcessVerdict) -> Self:
        newest, is_running = process.track.newest, process.ended_at is None
        return cls(
            id=process.id,
            session_id=process.session_id,
            command=process.command,
            workdir=process.workdir,
            host=process.host,
            pid=process.pid,
            state=seen.kind,
            evidence=seen.evidence,
            blocks_reset=seen.blocks,
            expired=seen.expired,
            started_at=iso(process.started_at),
            last_work_at=iso(process.track.worked_at),
            last_work=process.track.work,
            ttl_seconds=process.ttl_seconds,
            members=newest.members if is_running else 0,
            listens=list(newest.listens) if is_running else [],
            cpu_seconds=newest.cpu,
            output_bytes=newest.output,
            ended_at=format_time(process.ended_at),
            exit_code=process.exit_code,
            end_reason=process.end_reason,
        )


class ProcessListResponse(Document, frozen=True):
    processes: list[ProcessItem]
