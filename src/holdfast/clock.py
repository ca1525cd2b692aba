"""The machine's clock and time zone, for everybody but the tests."""

import time
from datetime import datetime, tzinfo
from pathlib import Path

LOCAL = Path("/etc/localtime")


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()


def zone(name: str, tz: str = "") -> tzinfo:
    """The zone of a name; `local` is that of the variable TZ if it is given, else the machine's."""
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
