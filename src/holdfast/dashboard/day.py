"""The last day of a store: what began and ended, kept and added to, for the time line and the charts."""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.model.entry import decode
from holdfast.model.errors import Corrupt
from holdfast.model.event import TurnEnded, Usage
from holdfast.model.times import DAY, MINUTE
from holdfast.store import board
from holdfast.store.board import Moment
from holdfast.store.database import Database

SPAN = DAY
BUCKET = 15 * MINUTE
STATES = {
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
"""What a session is doing after an event."""


class PlayedTurn(msgspec.Struct, frozen=True):
    session_id: str
    began_at: int
    ended_at: int
    outcome: str
    usage: Usage

    @property
    def seconds(self) -> float:
        return max(self.ended_at - self.began_at, 0) / 1e6


class Day:
    """Read once, and then only what is new."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._moments: list[Moment] = []
        self._position = 0
        self._names: dict[str, str] = {}
        self._lock = asyncio.Lock()

    async def moments(self, now: int) -> Sequence[Moment]:
        """What began and ended in the last day, in order."""
        async with self._lock:
            found, position = await self._database.read(board.moments, after=self._position, since=now - SPAN)
            kept = [one for one in self._moments if one.at >= now - SPAN] + [self._small(one) for one in found]
            self._moments, self._position = kept[-board.MOMENTS :], position
            self._names = {one.session_id: one.session_id for one in self._moments}
            return self._moments

    @property
    def is_cut(self) -> bool:
        """Whether more may have happened in the last day than the moments that are kept."""
        return len(self._moments) >= board.MOMENTS

    def _small(self, moment: Moment) -> Moment:
        """The same, with one text for each id."""
        known = self._names.setdefault(moment.session_id, moment.session_id)
        return msgspec.structs.replace(moment, session_id=known)


def turns(moments: Iterable[Moment]) -> list[PlayedTurn]:
    """Turns of which both ends are among the moments. Pure."""
    began: dict[str, int] = {}
    found: list[PlayedTurn] = []
    for one in moments:
        if one.kind == "turn_started":
            began[one.session_id] = one.at
        elif one.kind == "turn_ended" and one.session_id in began and one.body is not None:
            ended = _ended(one.body)
            if ended is not None:
                start = began.pop(one.session_id)
                found.append(PlayedTurn(one.session_id, start, one.at, ended.outcome, ended.usage))
    return found


def _ended(body: str) -> TurnEnded | None:
    """The end of a turn; a damaged one is for `holdfast sessions verify` to report, not for a chart."""
    try:
        event = decode("turn_ended", body)
    except Corrupt:
        return None
    return event if isinstance(event, TurnEnded) else None


class Charts(msgspec.Struct, frozen=True):
    """Columns for drawing: seconds since 1970, and what happened in each quarter of an hour."""

    at: list[int]
    turns: list[int]
    failed: list[int]
    tokens_in: list[int]
    tokens_out: list[int]
    median: list[float | None]
    slowest: list[float | None]


def charts(played: Iterable[PlayedTurn], now: int) -> Charts:
    """The last day in quarters of an hour. Pure."""
    count = SPAN // BUCKET
    first = now // BUCKET - count + 1
    buckets: list[list[PlayedTurn]] = [[] for _ in range(count)]
    for turn in played:
        place = turn.ended_at // BUCKET - first
        if 0 <= place < count:
            buckets[place].append(turn)
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
