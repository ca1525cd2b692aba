"""Ids that sort by time and are safe in URLs, file names and shells.

An id is a prefix for its type, nine characters of time (45 bits of milliseconds) and
eleven random characters (55 bits), in Crockford's base 32, which avoids letters that look like digits.
"""

import hashlib
import secrets
from collections.abc import Callable

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
SESSION = "hf-"
TURN = "turn-"
WORKER = "worker-"
PROCESS = "proc-"
CHANCE_BITS = 55
SHORTEST_PREFIX = 6
_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
_SHIFTS = range(90, -1, -10)


def _letters(value: int) -> str:
    """The lowest 100 bits as 20 letters."""
    return "".join([_PAIRS[value >> shift & 1023] for shift in _SHIFTS])


class Ids:
    """Makes ids. They increase strictly, even within one millisecond and after the clock was set back."""

    def __init__(self, now: Callable[[], int], chance: Callable[[int], int] = secrets.randbits) -> None:
        self._now = now
        self._chance = chance
        self._last = 0

    def make(self, prefix: str) -> str:
        fresh = (self._now() // 1000) << CHANCE_BITS | self._chance(CHANCE_BITS)
        self._last = fresh if fresh > self._last else self._last + 1
        return prefix + _letters(self._last)


def derive(prefix: str, at: int, name: str) -> str:
    """The id of an object that has a name elsewhere: a function of the instant and the name."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    chance = int.from_bytes(digest[:8], "big") >> 64 - CHANCE_BITS
    return prefix + _letters((max(at, 0) // 1000) << CHANCE_BITS | chance)


def looks_like_session(ref: str) -> bool:
    """Whether the text has the form of a session id."""
    rest = ref.removeprefix(SESSION)
    return rest != ref and len(rest) == 20 and all(letter in ALPHABET for letter in rest)
