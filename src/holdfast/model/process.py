"""A stored background process, its signs of activity, and its classification. Pure: `processes.inspect` takes the samples.

Ages and pauses use the machine's monotonic clock, which all programs of one boot share: setting the wall clock
makes no process old, and time during which the machine is suspended does not count.
"""

from typing import Literal

import msgspec

from holdfast.model.process_identity import Identity

MARKER = "HOLDFAST_PROCESS"
"""The environment variable that marks every descendant of a process."""

WORK_SECONDS = 300.0
"""How long activity counts: longer than the pauses of a build, much shorter than any time to live."""
BASE_SECONDS = 60.0
"""The maximum age of the sample that a new one is compared with, so that frequent sampling detects slow work."""
CPU_SHARE = 0.02
"""Share of one core. A server that polls twice a second uses one percent of this."""
CPU_SECONDS = 0.1
"""The minimum, because the kernel counts in ticks."""
GAP_SECONDS = 2 * BASE_SECONDS
"""After a longer gap between samples, a change may be old: only evidence with a time of its own counts."""
IO_BYTES = 16_384
"""Bytes read and written between two samples: arbitrary, far more than an idle event loop transfers."""

Kind = Literal["working", "serving", "idle", "gone"]


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One measurement of all programs of a process."""

    at: int
    mono: int
    """Microseconds on the monotonic clock."""
    cpu: float = 0.0
    output: int = 0
    """Total bytes of output."""
    output_age: float = 0.0
    """Seconds since the last output."""
    io: int = 0
    members: int = 0
    crowd: str = ""
    """A fingerprint that changes whenever one of its programs starts or ends."""
    youngest: float = 0.0
    """Seconds since the newest of its programs started."""
    listens: tuple[str, ...] = ()
    hidden: bool = False
    """Its programs could not be inspected: only its output and the shim's files give evidence."""


class Track(msgspec.Struct, frozen=True):
    """The newest sample, the one it is compared with, and the last sign of activity."""

    base: Sample
    newest: Sample
    worked_at: int
    worked_mono: int
    work: str
    """The last sign of activity, in words."""


class Process(msgspec.Struct, frozen=True):
    """A row of the process table, in the order of its columns."""

    id: str
    session_id: str
    command: str
    workdir: str
    folder: str
    host: str
    boot: str
    pid: int | None
    """None until its shim reports that it runs."""
    process_started: str | None
    started_at: int
    started_mono: int
    ttl_seconds: int
    track: Track
    stop_reason: str | None
    """Why it was asked to end, if it was."""
    expired_at: int | None
    ended_at: int | None
    exit_code: int | None
    end_reason: str | None


class ProcessVerdict(msgspec.Struct, frozen=True):
    """What a process is doing, the evidence, and whether it blocks a reset."""

    kind: Kind
    evidence: str
    expired: bool
    blocks: bool


def begun(sample: Sample) -> Track:
    """The track of a process that starts now: starting counts as activity."""
    return Track(sample, sample, sample.at, sample.mono, "it was started")


def advance(track: Track, sample: Sample) -> Track:
    """The track after one more sample."""
    sign = sign_of_work(track.base, sample)
    if sign is not None:
        work, age = sign
        return Track(sample, sample, sample.at - int(age * 1e6), sample.mono - int(age * 1e6), work)
    is_old = sample.mono - track.base.mono >= BASE_SECONDS * 1e6
    return Track(sample if is_old else track.base, sample, track.worked_at, track.worked_mono, track.work)


def sign_of_work(before: Sample, now: Sample) -> tuple[str, float] | None:
    """The activity between two samples, in words, and how many seconds ago; None if there was none."""
    seconds = (now.mono - before.mono) / 1e6
    if seconds < 0:
        return None
    is_recent = seconds <= GAP_SECONDS
    if now.output > before.output and now.output_age <= WORK_SECONDS:
        return f"{now.output - before.output:,} bytes of output", min(max(now.output_age, 0.0), seconds)
    cpu = now.cpu - before.cpu
    if cpu >= max(CPU_SECONDS, CPU_SHARE * seconds):
        return f"{cpu:.1f} s of CPU time", 0.0
    if before.crowd and now.crowd != before.crowd and (is_recent or now.youngest <= WORK_SECONDS):
        return "programs of it started or ended", 0.0
    if is_recent and now.io - before.io >= IO_BYTES:
        return f"{now.io - before.io:,} bytes read or written", 0.0
    return None


def classify(process: Process, ours: Identity, mono: int) -> ProcessVerdict:
    """Classify the process by its samples. A process of another machine is classified as it was last seen there."""
    if process.ended_at is not None:
        return ProcessVerdict("gone", process.end_reason or "", expired=False, blocks=False)
    if not is_here(process, ours):
        seen = _classify(process, process.track.newest.mono)
        return msgspec.structs.replace(seen, evidence=f"{seen.evidence}, as it was last seen on {process.host}")
    return _classify(process, mono)


def is_here(process: Process, ours: Identity) -> bool:
    """Whether its pids are valid on this machine and boot."""
    return (process.host, process.boot) == (ours.host, ours.boot)


def _classify(process: Process, mono: int) -> ProcessVerdict:
    track = process.track
    age, quiet = (mono - process.started_mono) / 1e6, (mono - track.worked_mono) / 1e6
    expired = process.expired_at is not None or age > process.ttl_seconds
    hidden = "; its programs cannot be inspected" if track.newest.hidden else ""
    late = f"; past its time to live of {duration(process.ttl_seconds)}" if expired else ""
    late = hidden + late
    if quiet <= WORK_SECONDS:
        return ProcessVerdict("working", f"{track.work} {_ago(quiet)}{late}", expired, blocks=not expired)
    silence = f"no sign of work for {duration(quiet)}"
    if track.newest.listens:
        return ProcessVerdict(
            "serving", f"listens on {', '.join(track.newest.listens)}; {silence}{late}", expired, False
        )
    return ProcessVerdict("idle", f"{silence}{late}", expired, blocks=False)


def exit_words(code: int | None) -> str:
    """Describe an exit code."""
    if code is None:
        return "exit code not known"
    return f"exit code {code}" if code >= 0 else f"ended by signal {-code}"


def duration(seconds: float) -> str:
    """Format a duration: `45 s`, `3 min`, `36 h`, `12 d`."""
    for unit, size in (("d", 172_800), ("h", 7_200), ("min", 120)):
        if seconds >= size:
            return f"{seconds / {'d': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _ago(seconds: float) -> str:
    return "just now" if seconds < 1 else f"{duration(seconds)} ago"
