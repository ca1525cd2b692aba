"""Determines the state of a process from the files in its directory and the process table of the machine.

| found | means |
|---|---|
| any of its programs | running; if the shim is gone, a new one must read its output |
| none that can be inspected, but its pid is in use | perhaps running; left alone until `done` exists |
| none, and `done` | ended, with the code in `exit` |
| none, but the shim | ending: the shim has not written `done` yet |
| none, and no shim | ended; the exit code is known only if `exit` exists |
| no programs and no `started` file | never started, once `START_SECONDS` have passed |
| an earlier boot of this machine | ended with the boot |
"""

from pathlib import Path

import msgspec

from holdfast.model.process import Process, Sample, Track, advance, exit_words, is_here
from holdfast.model.process_identity import Identity
from holdfast.processes import procfs
from holdfast.processes.process_dir import ProcessDir, Program
from holdfast.processes.procfs import ProcessTable, Sockets

START_SECONDS = 30.0
"""How long a start may take. A worker killed between registering and starting a process never resumes the start."""
TAIL_LINES = 20
TAIL_CHARS = 2000


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """The result of inspecting a process once."""

    process: Process
    track: Track
    leader: Program | None = None
    shim_is_missing: bool = False
    ended: str | None = None
    """The reason, if it has ended."""
    exit_code: int | None = None
    tail: str = ""


def is_from_earlier_boot(process: Process, ours: Identity) -> bool:
    """Whether it was started before this machine was last booted."""
    return process.host == ours.host and process.boot.split(" ")[0] != ours.boot.split(" ")[0]


def inspect_process(
    process: Process, ours: Identity, table: ProcessTable, sockets: Sockets, *, at: int, mono: int
) -> Inspection | None:
    """Inspect a process. None if it cannot be inspected from here. A process that has not started in time is prevented from starting."""
    folder = ProcessDir(Path(process.folder))
    if is_from_earlier_boot(process, ours):
        return _ended(process, folder, "the machine was rebooted")
    if not is_here(process, ours):
        return None
    leader, shim = folder.leader, folder.shim
    members = table.members(process.id, leader, shim)
    if members:
        sample = Sample(
            at=at,
            mono=mono,
            cpu=round(sum(member.cpu for member in members), 2),
            output=folder.output_bytes(),
            output_age=round(folder.output_age(), 1),
            io=procfs.count_io_bytes(members),
            members=len(members),
            crowd=procfs.fingerprint(members),
            youngest=round(procfs.youngest_age(members), 1),
            listens=sockets.listening_addresses(members),
        )
        missing = not table.runs(shim) and not folder.has("eof")
        track = advance(process.track, sample)
        return Inspection(process=process, track=track, leader=leader, shim_is_missing=missing)
    if leader is not None and table.is_hidden(leader) and not folder.has("done"):
        sample = Sample(
            at=at, mono=mono, output=folder.output_bytes(), output_age=round(folder.output_age(), 1), hidden=True
        )
        return Inspection(process=process, track=advance(process.track, sample), leader=leader)
    is_starting = leader is None and mono - process.started_mono < START_SECONDS * 1e6
    if is_starting or (table.runs(shim) and not folder.has("done")):
        return Inspection(process=process, track=process.track, leader=leader)
    if leader is None and (started := folder.cancel_start()) is not None:
        return Inspection(process=process, track=process.track, leader=started)
    if folder.has("adopted"):
        return _ended(process, folder, "the worker that ran it was killed first")
    return _ended(process, folder, "its shim was killed" if leader else "it was never started")


def _ended(process: Process, folder: ProcessDir, fallback: str) -> Inspection:
    """The inspection of an ended process, with the exit code that the shim wrote, else with the fallback reason."""
    code = folder.exit_code
    reason = f"exit code not known: {fallback}" if code is None else exit_words(code)
    if process.stop_reason is not None:
        reason = f"{process.stop_reason} ({reason})"
    return Inspection(
        process=process,
        track=process.track,
        ended=reason,
        exit_code=code,
        tail=folder.last_lines(TAIL_LINES, TAIL_CHARS),
    )
