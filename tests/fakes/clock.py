"""A clock that only the test moves."""

from holdfast.model.times import SECOND


class FakeClock:
    def __init__(self, now: int = 1_800_000_000 * SECOND) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass."""
        self._now += int(seconds * SECOND)
        self._monotonic += seconds

    def set_by(self, seconds: float) -> None:
        """Set the wall clock; the monotonic time does not change."""
        self._now += int(seconds * SECOND)
