"""A clock that stands still until a test moves it."""

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
        """Time goes by."""
        self._now += int(seconds * SECOND)
        self._monotonic += seconds

    def set_by(self, seconds: float) -> None:
        """Somebody sets the wall clock; real time does not move."""
        self._now += int(seconds * SECOND)
