"""When a session is due for a reset. Pure: from what was last said and the time to a rule that applies, or none.

*Idle*: nothing was said for the idle limit. *Daily*: the hour of the day has come since something was last said, and
nothing was said for an hour, so that nobody who is in the middle of something at that hour is cut off. A
session in which people spoke on past the hour is not due before the next day.

What was last said is the newest time that the session knows, which never runs backwards. So a clock that is
set back makes nothing due a second time; one that is set ahead makes due what would be due then. A machine that
slept over the hour finds it passed when it wakes, once. An hour that daylight saving skips comes at the moment of
the change; one that it repeats comes the first time.
"""

from collections.abc import Mapping
from datetime import date, datetime, timedelta, tzinfo
from typing import Literal

import msgspec

from holdfast.model.process import duration
from holdfast.model.times import MINUTE, SECOND, micros, moment

QUIET = 60 * MINUTE
"""No hour of the day ends a session in which something was said more recently."""

Rule = Literal["idle", "daily"]


class Policy(msgspec.Struct, frozen=True):
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


class Due(msgspec.Struct, frozen=True):
    """A reset that should take place: by which rule, since when, and why in words."""

    rule: Rule
    since: int
    reason: str


class Policies(msgspec.Struct, frozen=True):
    """The policy of each channel: that of the longest beginning of its name that has one, else the default."""

    default: Policy
    channels: Mapping[str, Policy] = {}

    def of(self, channel: str) -> Policy:
        fitting = [name for name in self.channels if channel == name or channel.startswith(f"{name}:")]
        return self.channels[max(fitting, key=len)] if fitting else self.default

    def horizon(self, now: int) -> int | None:
        """No session in which something was said since then is due; None if none can be."""
        return max(
            (
                limit
                for policy in (self.default, *self.channels.values())
                if (limit := horizon(policy, now)) is not None
            ),
            default=None,
        )


def due(policy: Policy, active_at: int, now: int) -> Due | None:
    """The reset that is due, if one is; of two the one that was due first."""
    found = [
        (since, rule)
        for since, rule in ((_idle(policy, active_at), "idle"), (_daily(policy, active_at, now), "daily"))
        if since is not None and since <= now
    ]
    if not found:
        return None
    since, rule = min(found)
    if rule == "idle":
        return Due("idle", since, f"nothing was said for {duration((now - active_at) / SECOND)}")
    return Due("daily", since, f"the daily reset of {policy.at_hour:02}:00 ({_zone_name(policy.zone, since)})")


def horizon(policy: Policy, now: int) -> int | None:
    """The newest activity that a due session can have had; None if the policy makes none due."""
    limits = []
    if policy.by_idleness:
        limits.append(now - policy.idle_minutes * MINUTE)
    if policy.by_day:
        limits.append(min(last_hour(policy, now) - 1, now - QUIET))
    return max(limits, default=None)


def coming(policy: Policy, active_at: int) -> int | None:
    """When a reset is or was due if nothing more is said; None if never."""
    since = [_idle(policy, active_at)]
    if policy.by_day:
        since.append(max(_next_hour(policy, active_at), active_at + QUIET))
    return min((at for at in since if at is not None), default=None)


def _idle(policy: Policy, active_at: int) -> int | None:
    return active_at + policy.idle_minutes * MINUTE if policy.by_idleness else None


def _daily(policy: Policy, active_at: int, now: int) -> int | None:
    if not policy.by_day:
        return None
    hour = last_hour(policy, now)
    return max(hour, active_at + QUIET) if active_at < hour else None


def last_hour(policy: Policy, now: int) -> int:
    """The newest instant, up to now, at which it was the hour of the day."""
    today = moment(now).astimezone(policy.zone).date()
    return max(at for at in _hours(policy, today) if at <= now)


def _next_hour(policy: Policy, after: int) -> int:
    today = moment(after).astimezone(policy.zone).date()
    return min(at for at in _hours(policy, today) if at > after)


def _hours(policy: Policy, today: date) -> list[int]:
    """The hour of each day around one. Three days either way, because there are zones that have skipped a day."""
    return [_hour(policy, today + timedelta(days=days)) for days in range(-3, 4)]


def _hour(policy: Policy, day: date) -> int:
    # fold=0 takes a repeated hour the first time, and a skipped one at the moment of the change.
    return micros(datetime(day.year, day.month, day.day, policy.at_hour, tzinfo=policy.zone, fold=0))


def _zone_name(zone: tzinfo, at: int) -> str:
    return getattr(zone, "key", None) or moment(at).astimezone(zone).tzname() or "local time"
