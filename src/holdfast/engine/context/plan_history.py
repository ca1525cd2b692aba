"""The plans that a session has had, each from an event on."""

from holdfast.model.plan import PlanItem


class PlanHistory:
    def __init__(self) -> None:
        self._versions: list[tuple[int, tuple[PlanItem, ...]]] = []

    def add(self, seq: int, items: tuple[PlanItem, ...]) -> None:
        self._versions.append((seq, items))

    def at(self, seq: int) -> tuple[PlanItem, ...]:
        """The plan after the event, which is not before the last one that was trimmed."""
        return next((items for since, items in reversed(self._versions) if since <= seq), ())

    def rewind(self, to_seq: int) -> None:
        """Drop the plans after the event."""
        self._versions = [version for version in self._versions if version[0] <= to_seq]

    def trim(self, upto: int) -> None:
        """Drop the plans before the one that was in use at the event."""
        older = [version for version in self._versions if version[0] <= upto]
        self._versions = [*older[-1:], *self._versions[len(older) :]]
