"""Events of the last day that start or end something, cached for the timeline and the charts."""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.model.entry import decode
from holdfast.model.errors import Corrupt
from holdfast.model.event import TurnEnded, Usage
from holdfast.model.times import DAY, MINUTE
from holdfast.model.turn import FORKED
from holdfast.store.database import Database
from holdfast.store.repos import dashboard_queries
from holdfast.store.repos.dashboard_queries import TimelineEvent

TIMELINE_SPAN = DAY
BUCKET = 15 * MINUTE
STATE_AFTER = {
    "session_opened": "waiting",
    "turn_started": "thinking",
    "model_said": "thinking",
    "tool_started": "tool",
    "tool_ended": "thinking",
    "turn_ended": "waiting",
    "approval_asked": "asking",
    "approval_answered": "thinking",
    "ended": "ended",
    "reopened": "waiting",
    "recovered": "thinking",
    "quarantined": "quarantined",
    "compacted": "thinking",
}
"""The state of a session after an event of each kind."""


class CompletedTurn(msgspec.Struct, frozen=True):
    session_id: str
    started_at: int
    ended_at: int
    outcome: str
    usage: Usage

    @property
    def seconds(self) -> float:
        return max(self.ended_at - self.started_at, 0) / 1e6


class DayTimeline:
    """Reads the last day once, and then only new events."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._events: list[TimelineEvent] = []
        self._position = 0
        self._ids: dict[str, str] = {}
        self._lock = asyncio.Lock()

    async def events(self, now: int) -> Sequence[TimelineEvent]:
        """The events of the last day, in order."""
        async with self._lock:
            found, position = await self._database.read(
                dashboard_queries.list_timeline_events, after=self._position, since=now - TIMELINE_SPAN
            )
            kept = [one for one in self._events if one.at >= now - TIMELINE_SPAN] + [
                self._intern_id(one) for one in found
            ]
            self._events, self._position = kept[-dashboard_queries.MAX_TIMELINE_EVENTS :], position
            self._ids = {one.session_id: one.session_id for one in self._events}
            return self._events

    @property
    def is_truncated(self) -> bool:
        """Whether the last day may have more events than are kept."""
        return len(self._events) >= dashboard_queries.MAX_TIMELINE_EVENTS

    def _intern_id(self, event: TimelineEvent) -> TimelineEvent:
        """The event with a shared string for its session id, which saves memory."""
        known = self._ids.setdefault(event.session_id, event.session_id)
        return msgspec.structs.replace(event, session_id=known)


def completed_turns(events: Iterable[TimelineEvent]) -> list[CompletedTurn]:
    """The turns whose start and end are among the events, except turns that a fork closed. Pure."""
    started: dict[str, int] = {}
    found: list[CompletedTurn] = []
    for one in events:
        if one.kind == "turn_started":
            started[one.session_id] = one.at
        elif one.kind == "turn_ended" and one.session_id in started and one.body is not None:
            ended = _decode_turn_end(one.body)
            if ended is not None:
                start = started.pop(one.session_id)
                if ended.code == FORKED:
                    continue
                found.append(CompletedTurn(one.session_id, start, one.at, ended.outcome, ended.usage))
    return found


def _decode_turn_end(body: str) -> TurnEnded | None:
    """Decode the end of a turn. Returns None if it is damaged, which `holdfast sessions verify` reports."""
    try:
        event = decode("turn_ended", body)
    except Corrupt:
        return None
    return event if isinstance(event, TurnEnded) else None


class Charts(msgspec.Struct, frozen=True):
    """Columns of the charts: seconds since 1970, and the figures of each quarter of an hour."""

    at: list[int]
    turns: list[int]
    failed: list[int]
    tokens_in: list[int]
    tokens_out: list[int]
    median: list[float | None]
    slowest: list[float | None]


def build_charts(turns: Iterable[CompletedTurn], now: int) -> Charts:
    """Summarize the last day in quarters of an hour. Pure."""
    count = TIMELINE_SPAN // BUCKET
    first = now // BUCKET - count + 1
    buckets: list[list[CompletedTurn]] = [[] for _ in range(count)]
    for turn in turns:
        index = turn.ended_at // BUCKET - first
        if 0 <= index < count:
            buckets[index].append(turn)
    times = [sorted(turn.seconds for turn in bucket) for bucket in buckets]
    return Charts(
        at=[(first + n) * BUCKET // 1_000_000 for n in range(count)],
        turns=[len(bucket) for bucket in buckets],
        failed=[sum(turn.outcome != "done" for turn in bucket) for bucket in buckets],
        tokens_in=[sum(turn.usage.tokens_in for turn in bucket) for bucket in buckets],
        tokens_out=[sum(turn.usage.tokens_out for turn in bucket) for bucket in buckets],
        median=[round(one[len(one) // 2], 3) if one else None for one in times],
        slowest=[round(one[-1], 3) if one else None for one in times],
    )
