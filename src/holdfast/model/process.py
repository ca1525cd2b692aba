"""A background process as the store keeps it, its signs of work, and what they add up to. Pure: looking is done elsewhere.

Ages and pauses are measured on the machine's own monotonic clock, which every program of one boot shares: no
wall clock that is set makes a process old, and a machine that sleeps ages nobody.
"""

from typing import Literal

import msgspec

from holdfast.model.identity import Identity

MARKER = "HOLDFAST_PROCESS"
"""The variable by which everything that a process starts is known to belong to it."""

WORK_SECONDS = 300.0
"""How long a sign of work counts: long enough for the pauses within a build, short beside any TTL."""
BASE_SECONDS = 60.0
"""How far apart two looks are compared at the most, so that slow work is seen by those who look often."""
CPU_SHARE = 0.02
"""Of one core. A server that polls twice a second uses a hundredth of it."""
CPU_SECONDS = 0.1
"""At the least, because the kernel counts in ticks."""
GAP_SECONDS = 2 * BASE_SECONDS
"""If nobody has looked for longer, what has changed may have changed long ago: then only its own time tells."""
IO_BYTES = 16_384
"""Read and written between two looks: arbitrary, well over what an idle event loop moves."""

Kind = Literal["working", "serving", "idle", "gone"]


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one look at all the programs of a process saw."""

    at: int
    mono: int
    """Microseconds on the monotonic clock."""
    cpu: float = 0.0
    output: int = 0
    """Bytes it has ever put out."""
    output_age: float = 0.0
    """Seconds since it last put something out."""
    io: int = 0
    members: int = 0
    crowd: str = ""
    """Changes with any program that starts or ends in it."""
    youngest: float = 0.0
    """Seconds since the newest of its programs started."""
    listens: tuple[str, ...] = ()


class Track(msgspec.Struct, frozen=True):
    """The looks that count: the newest, the one it is compared with, and the last sign of work."""

    base: Sample
    newest: Sample
    worked_at: int
    worked_mono: int
    work: str
    """What the last sign of work was."""


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
    """None until its keeper has said that it runs."""
    process_started: str | None
    started_at: int
    started_mono: int
    ttl_seconds: int
    track: Track
    stop_reason: str | None
    """Why somebody asked it to end, if somebody did."""
    expired_at: int | None
    ended_at: int | None
    exit_code: int | None
    end_reason: str | None


class Verdict(msgspec.Struct, frozen=True):
    """What a process is doing, how that is known, and whether it holds back a reset."""

    kind: Kind
    evidence: str
    expired: bool
    blocks: bool


def begun(sample: Sample) -> Track:
    """The track of a process that starts now: starting is a sign of work."""
    return Track(sample, sample, sample.at, sample.mono, "it was started")


def advance(track: Track, sample: Sample) -> Track:
    """The track after one more look."""
    sign = sign_of_work(track.base, sample)
    if sign is not None:
        work, age = sign
        return Track(sample, sample, sample.at - int(age * 1e6), sample.mono - int(age * 1e6), work)
    is_old = sample.mono - track.base.mono >= BASE_SECONDS * 1e6
    return Track(sample if is_old else track.base, sample, track.worked_at, track.worked_mono, track.work)


def sign_of_work(before: Sample, now: Sample) -> tuple[str, float] | None:
    """What was done between two looks, in words, and how many seconds ago; None if nothing that counts."""
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


def classify(process: Process, ours: Identity, mono: int) -> Verdict:
    """What the process is doing, from all that was seen of it. One of another machine is as it was last seen there."""
    if process.ended_at is not None:
        return Verdict("gone", process.end_reason or "", expired=False, blocks=False)
    if not is_here(process, ours):
        seen = _classify(process, process.track.newest.mono)
        return msgspec.structs.replace(seen, evidence=f"{seen.evidence}, as it was last seen on {process.host}")
    return _classify(process, mono)


def is_here(process: Process, ours: Identity) -> bool:
    """Whether its pids mean something to this program."""
    return (process.host, process.boot) == (ours.host, ours.boot)


def _classify(process: Process, mono: int) -> Verdict:
    track = process.track
    age, quiet = (mono - process.started_mono) / 1e6, (mono - track.worked_mono) / 1e6
    expired = process.expired_at is not None or age > process.ttl_seconds
    late = f"; past its time to live of {duration(process.ttl_seconds)}" if expired else ""
    if quiet <= WORK_SECONDS:
        return Verdict("working", f"{track.work} {_ago(quiet)}{late}", expired, blocks=not expired)
    silence = f"no sign of work for {duration(quiet)}"
    if track.newest.listens:
        return Verdict("serving", f"listens on {', '.join(track.newest.listens)}; {silence}{late}", expired, False)
    return Verdict("idle", f"{silence}{late}", expired, blocks=False)


def exit_words(code: int | None) -> str:
    """How a program ended, by its exit code."""
    if code is None:
        return "exit code not known"
    return f"exit code {code}" if code >= 0 else f"ended by signal {-code}"


def duration(seconds: float) -> str:
    """A time span as people say it: `45 s`, `3 min`, `36 h`, `12 d`."""
    for unit, size in (("d", 172_800), ("h", 7_200), ("min", 120)):
        if seconds >= size:
            return f"{seconds / {'d': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _ago(seconds: float) -> str:
    return "just now" if seconds < 1 else f"{duration(seconds)} ago"
