"""The system clock, the time zone, and a clock that follows a jump of the wall clock only after it has proved stable.

A wall clock can be set wrong and back again within seconds: by a person, a time server or a virtual machine. The
time since boot cannot. So the watch compares both. While they advance together (within `TOLERANCE`), the wall
clock is trusted. After a jump, the trusted time continues as if there had been none. A wall clock that returns is
trusted at once, and one that keeps its new time for `SETTLE_SECONDS` is trusted from then on. The time since boot
includes the time in which a machine is suspended, so that resuming is not a jump.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.model.times import SECOND, Clock, moment

logger = logging.getLogger(__name__)
TOLERANCE = 60 * SECOND
"""A smaller step is an ordinary correction and takes effect at once. Schedules have minute resolution."""
SETTLE_SECONDS = 600.0
"""How long a clock must keep a new time before it is trusted; arbitrary, longer than most mistakes last."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TIME_NAMESPACE = Path("/proc/self/ns/time")
UPTIME = Path("/proc/uptime")
LOCAL = Path("/etc/localtime")


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()


class ClockBelief(msgspec.Struct, frozen=True):
    """The trusted offset of the wall clock: wall clock minus time since boot, in microseconds."""

    offset: int
    other: int | None = None
    """The offset after a jump that is not trusted yet."""
    other_since: float = 0.0
    """When it jumped, in seconds since boot."""


class ClockJump(msgspec.Struct, frozen=True):
    kind: Literal["jumped", "returned", "accepted"]
    seconds: float
    """The difference between the wall clock and the trusted time; negative if the wall clock is behind."""

    def __str__(self) -> str:
        by = f"{abs(self.seconds):,.0f} s {'ahead' if self.seconds > 0 else 'back'}"
        if self.kind == "jumped":
            return (
                f"the system clock jumped {by}. Times, schedules and expiry ignore the jump until the clock "
                f"has kept its new time for {SETTLE_SECONDS / 60:.0f} minutes"
            )
        if self.kind == "returned":
            return f"the system clock is right again; it had jumped {by}"
        return f"the system clock has kept its new time, {by}; it is trusted from now on"


def update_belief(belief: ClockBelief, wall: int, elapsed: float) -> tuple[ClockBelief, ClockJump | None]:
    """The new belief after reading both clocks, and the jump if there was one. Pure."""
    offset = wall - int(elapsed * SECOND)
    off = offset - belief.offset
    if abs(off) <= TOLERANCE:
        returned = None if belief.other is None else ClockJump("returned", (belief.other - belief.offset) / SECOND)
        return ClockBelief(offset), returned
    if belief.other is None or abs(offset - belief.other) > TOLERANCE:
        return ClockBelief(belief.offset, offset, elapsed), ClockJump("jumped", off / SECOND)
    if elapsed - belief.other_since >= SETTLE_SECONDS:
        return ClockBelief(offset), ClockJump("accepted", off / SECOND)
    return belief, None


class WallClockWatch:
    """Keeps the belief, counts jumps and logs each once. Thread-safe."""

    def __init__(self, belief: ClockBelief | None = None) -> None:
        self.belief = belief
        self.jumps = 0
        self.last: ClockJump | None = None
        self._lock = threading.Lock()

    def observe(self, wall: int, elapsed: float) -> int:
        """Compare both clocks; returns the trusted time."""
        with self._lock:
            if self.belief is None:
                self.belief = ClockBelief(wall - int(elapsed * SECOND))
            self.belief, jump = update_belief(self.belief, wall, elapsed)
            if jump is not None:
                self.jumps += jump.kind == "jumped"
                self.last = jump
                logger.warning("%s", jump)
            return self.belief.offset + int(elapsed * SECOND)

    @property
    def untrusted_seconds(self) -> float:
        """The difference between the wall clock and the trusted time; 0 if the wall clock is trusted."""
        belief = self.belief
        return 0.0 if belief is None or belief.other is None else (belief.other - belief.offset) / SECOND


class BootTime:
    """Seconds since boot, including time in which the machine was suspended.

    The kernel's count is read once, from /proc/uptime, which tools that fake the time of a process do not change.
    """

    def __init__(self) -> None:
        self._clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        now = time.clock_gettime(self._clock)
        self._difference = _read_uptime(now) - now

    def __call__(self) -> float:
        return time.clock_gettime(self._clock) + self._difference


def _read_uptime(default: float) -> float:
    try:
        return float(UPTIME.read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return default


def boot_id() -> str | None:
    """Identifies the boot within which processes can compare seconds since boot; None if unknown."""
    try:
        return f"{BOOT_ID.read_text('ascii').strip()} {TIME_NAMESPACE.readlink()}"
    except OSError:
        return None


class WatchedClock:
    """A clock that follows a jump only after it has proved stable."""

    def __init__(self, own: Clock, elapsed: Callable[[], float], belief: ClockBelief | None = None) -> None:
        self._own = own
        self._elapsed = elapsed
        self.watch = WallClockWatch(belief)

    def now(self) -> int:
        return self.watch.observe(self._own.now(), self._elapsed())

    def wall(self) -> int:
        """The wall-clock time, trusted or not."""
        return self._own.now()

    def monotonic(self) -> float:
        return self._own.monotonic()


def get_watch(clock: Clock) -> WallClockWatch | None:
    """The watch of a clock, if it has one."""
    return clock.watch if isinstance(clock, WatchedClock) else None


def both_times(clock: Clock) -> tuple[int, ...]:
    """The trusted time and, if different, the wall-clock time: a timestamp from another machine may match either."""
    return (clock.now(), clock.wall()) if isinstance(clock, WatchedClock) else (clock.now(),)


def load_zone(name: str, tz: str = "") -> tzinfo:
    """A time zone by name; `local` is the zone of the variable TZ if set, else the machine's."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if name != "local":
        return ZoneInfo(name)
    try:
        if tz:
            return ZoneInfo(tz.removeprefix(":"))
        with LOCAL.open("rb") as file:
            return ZoneInfo.from_file(file)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return datetime.now().astimezone().tzinfo or ZoneInfo("UTC")


def format_local_time(at: int) -> str:
    """A time in the machine's time zone, for display."""
    return f"{moment(at).astimezone():%Y-%m-%d %H:%M}"
