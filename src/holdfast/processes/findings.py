"""What became of a process: from the files of its folder and one look at the machine to what should be written down.

| found | means |
|---|---|
| any program of it | it lives; without a keeper somebody must go on reading its output |
| none, and `done` | it has ended, as `exit` says |
| none, a keeper | it is ending: the keeper has not written it down yet |
| none, no keeper | it has ended; how, only `exit` could tell, and where there is none nobody knows |
| nothing at all, not even who it was | it was never started, once enough time has passed for that |
| an earlier boot of this machine | it is gone, with everything that ran then |
"""

from pathlib import Path

import msgspec

from holdfast.model.identity import Identity
from holdfast.model.process import Process, Sample, Track, advance, exit_words, is_here
from holdfast.processes import scan
from holdfast.processes.folder import Folder, Program
from holdfast.processes.scan import Machine, Sockets

START_SECONDS = 30.0
"""How long a start may take. Whoever wrote it down and was killed before acting never comes back to it."""
TAIL_LINES = 20
TAIL_CHARS = 2000


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at a process found."""

    process: Process
    track: Track
    leader: Program | None = None
    keeper_is_missing: bool = False
    ended: str | None = None
    """How it ended, if it has."""
    exit_code: int | None = None
    tail: str = ""


def is_of_an_earlier_boot(process: Process, ours: Identity) -> bool:
    return process.host == ours.host and process.boot.split(" ")[0] != ours.boot.split(" ")[0]


def find(process: Process, ours: Identity, machine: Machine, sockets: Sockets, *, at: int, mono: int) -> Found | None:
    """What became of the process; None if that cannot be seen from here. One that never began is kept from beginning."""
    folder = Folder(Path(process.folder))
    if is_of_an_earlier_boot(process, ours):
        return _ended(process, folder, "the machine was started anew")
    if not is_here(process, ours):
        return None
    leader, keeper = folder.leader, folder.keeper
    members = machine.members(process.id, leader, keeper)
    if members:
        sample = Sample(
            at=at,
            mono=mono,
            cpu=round(sum(one.cpu for one in members), 2),
            output=folder.output_bytes(),
            output_age=round(folder.output_age(), 1),
            io=scan.moved_bytes(members),
            members=len(members),
            crowd=scan.crowd(members),
            youngest=round(scan.youngest(members), 1),
            listens=sockets.of(members),
        )
        missing = not machine.runs(keeper) and not folder.has("eof")
        track = advance(process.track, sample)
        return Found(process=process, track=track, leader=leader, keeper_is_missing=missing)
    is_starting = leader is None and mono - process.started_mono < START_SECONDS * 1e6
    if is_starting or (machine.runs(keeper) and not folder.has("done")):
        return Found(process=process, track=process.track, leader=leader)
    if leader is None and (begun := folder.call_off()) is not None:
        return Found(process=process, track=process.track, leader=begun)
    return _ended(process, folder, "its keeper was killed" if leader else "it was never started")


def _ended(process: Process, folder: Folder, otherwise: str) -> Found:
    """How it ended: as its keeper wrote down, or for the other reason."""
    code = folder.exit_code
    reason = f"not known: {otherwise}" if code is None else exit_words(code)
    if process.stop_reason is not None:
        reason = f"{process.stop_reason} ({reason})"
    return Found(
        process=process,
        track=process.track,
        ended=reason,
        exit_code=code,
        tail=folder.last_lines(TAIL_LINES, TAIL_CHARS),
    )
