"""Throttles key guessing: after a number of wrong keys an address must wait, longer each time.

While an address waits, its keys are not checked: the response would reveal whether a guess was right. An address that
recently used the right key is exempt, so that one misconfigured client behind a proxy does not lock out the others.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

FREE_ATTEMPTS = 20
"""Wrong keys before an address must wait."""
MAX_WAIT_SECONDS = 300
RESET_SECONDS = 900
"""After this time without a wrong key the count of an address starts at zero."""
TRUSTED_SECONDS = 3600
"""For this long after a right key an address need not wait."""
MAX_ADDRESSES = 10_000
NETWORK_BITS = 64
"""IPv6 addresses are counted by /64 network, which usually belongs to one customer."""


class _Address:
    __slots__ = ("failures", "last", "open_at")

    def __init__(self) -> None:
        self.failures = 0
        self.last = 0.0
        self.open_at = 0.0


class KeyThrottle:
    """Counts wrong keys by address and evicts the least recently used addresses."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failed: OrderedDict[str, _Address] = OrderedDict()
        self._trusted: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failed)

    def wait(self, address: str) -> int:
        """Return the seconds the address must wait; 0 if none."""
        known = self._failed.get(_network(address))
        left = 0.0 if known is None else known.open_at - self._monotonic()
        return max(0, -int(-left // 1))

    def is_trusted(self, address: str) -> bool:
        until = self._trusted.get(_network(address))
        return until is not None and until > self._monotonic()

    def failed(self, address: str) -> None:
        """Record a wrong key."""
        now, network = self._monotonic(), _network(address)
        known = self._failed.pop(network, None)
        if known is None or now - known.last > RESET_SECONDS:
            known = _Address()
        known.failures, known.last = known.failures + 1, now
        if known.failures >= FREE_ATTEMPTS:
            known.open_at = now + min(2 ** (known.failures - FREE_ATTEMPTS), MAX_WAIT_SECONDS)
        _put(self._failed, network, known)

    def succeeded(self, address: str) -> None:
        """Record the right key."""
        network = _network(address)
        self._trusted.pop(network, None)
        _put(self._trusted, network, self._monotonic() + TRUSTED_SECONDS)


def _put(table: "OrderedDict[str, _Address] | OrderedDict[str, float]", key: str, value: object) -> None:
    table[key] = value  # type: ignore[assignment] # each table gets its own value type
    if len(table) > MAX_ADDRESSES:
        table.popitem(last=False)


@lru_cache(maxsize=256)
def _network(address: str) -> str:
    """Return what counts as one client: an IPv4 address, or an IPv6 network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, NETWORK_BITS), strict=False))
    return str(found if isinstance(found, ipaddress.IPv4Address) else found.ipv4_mapped)
