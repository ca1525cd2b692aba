"""Decides when a session is due for a reset. Pure.

*Idle*: no message for the idle limit. *Daily*: the hour of the day has passed since the last message, and there was no
message for an hour, so that a conversation is not interrupted. A session that is in use past the hour is not due
before the next day.

The time of the last message never goes backwards. So a clock that is set back makes nothing due twice, and a clock that
is set ahead makes due what would be due then. A machine that was suspended over the hour resets once when it wakes. An
hour that daylight saving skips takes effect at the change; a repeated hour takes effect the first time.
"""

from collections.abc import Mapping
from datetime import date, datetime, timedelta, tzinfo
from typing import Literal

import msgspec

from holdfast.model.process import duration
from holdfast.model.times import MINUTE, SECOND, micros, moment

QUIET = 60 * MINUTE
"""A daily reset does not end a session with a more recent message."""

Rule = Literal["idle", "daily"]


class ResetPolicy(msgspec.Struct, frozen=True):
    mode: Literal["none", "idle", "daily", "both"]
    idle_minutes: int
    at_hour: int
    zone: tzinfo

    @property
    def by_idleness(self) -> bool:
        return self.mode in ("idle", "both")

    @property
    def by_day(self) -> bool:
        return self.mode in ("daily", "both")


class DueReset(msgspec.Struct, frozen=True):
    """A reset that is due: the rule, the time since it is due, and the reason in words."""

    rule: Rule
    since: int
    reason: str


class ResetPolicies(msgspec.Struct, frozen=True):
    """The policy of each channel: the one of the longest matching name prefix, else the default."""

    default: ResetPolicy
    channels: Mapping[str, ResetPolicy] = {}

    def of(self, channel: str) -> ResetPolicy:
        matching = [name for name in self.channels if channel == name or channel.startswith(f"{name}:")]
        return self.channels[max(matching, key=len)] if matching else self.default

    def horizon(self, now: int) -> int | None:
        """Sessions with a message after this time are not due; None if no session can be due."""
        return max(
            (
                limit
                for policy in (self.default, *self.channels.values())
                if (limit := horizon(policy, now)) is not None
            ),
            default=None,
        )


def due(policy: ResetPolicy, active_at: int, now: int) -> DueReset | None:
    """The reset that is due, if any; of two, the one that was due first."""
    found = [
        (since, rule)
        for since, rule in ((_idle(policy, active_at), "idle"), (_daily(policy, active_at, now), "daily"))
        if since is not None and since <= now
    ]
    if not found:
        return None
    since, rule = min(found)
    if rule == "idle":
        return DueReset("idle", since, f"no message for {duration((now - active_at) / SECOND)}")
    return DueReset("daily", since, f"the daily reset of {policy.at_hour:02}:00 ({_zone_name(policy.zone, since)})")


def horizon(policy: ResetPolicy, now: int) -> int | None:
    """The latest activity that a due session can have; None if the policy makes no session due."""
    limits = []
    if policy.by_idleness:
        limits.append(now - policy.idle_minutes * MINUTE)
    if policy.by_day:
        limits.append(min(last_hour(policy, now) - 1, now - QUIET))
    return max(limits, default=None)


def next_due(policy: ResetPolicy, active_at: int) -> int | None:
    """When a reset is or was due without further messages; None if never."""
    since = [_idle(policy, active_at)]
    if policy.by_day:
        since.append(max(_next_hour(policy, active_at), active_at + QUIET))
    return min((at for at in since if at is not None), default=None)


def _idle(policy: ResetPolicy, active_at: int) -> int | None:
    return active_at + policy.idle_minutes * MINUTE if policy.by_idleness else None


def _daily(policy: ResetPolicy, active_at: int, now: int) -> int | None:
    if not policy.by_day:
        return None
    hour = last_hour(policy, now)
    return max(hour, active_at + QUIET) if active_at < hour else None


def last_hour(policy: ResetPolicy, now: int) -> int:
    """The latest instant, up to now, at which the hour of the day was reached."""
    today = moment(now).astimezone(policy.zone).date()
    return max(at for at in _hours(policy, today) if at <= now)


def _next_hour(policy: ResetPolicy, after: int) -> int:
    today = moment(after).astimezone(policy.zone).date()
    return min(at for at in _hours(policy, today) if at > after)


def _hours(policy: ResetPolicy, today: date) -> list[int]:
    """The reset times around a day: three days either way, because some zones have skipped a day."""
    return [_hour(policy, today + timedelta(days=days)) for days in range(-3, 4)]


def _hour(policy: ResetPolicy, day: date) -> int:
    # fold=0 selects the first occurrence of a repeated hour, and the moment of the change for a skipped one.
    return micros(datetime(day.year, day.month, day.day, policy.at_hour, tzinfo=policy.zone, fold=0))


def _zone_name(zone: tzinfo, at: int) -> str:
    return getattr(zone, "key", None) or moment(at).astimezone(zone).tzname() or "local time"
