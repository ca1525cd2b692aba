"""Ids that sort by time and are safe in URLs, file names and shells.

An id is a prefix that says what it names, nine characters of time (45 bits of milliseconds) and
eleven of chance (55 bits), in Crockford's alphabet: no letter is mistaken for a digit.
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


def _letters(value: int, count: int) -> str:
    return "".join(ALPHABET[value >> 5 * place & 31] for place in reversed(range(count)))


class Ids:
    """Makes ids. Those of one maker grow strictly, also within a millisecond and when the clock is set back."""

    def __init__(self, now: Callable[[], int], chance: Callable[[int], int] = secrets.randbits) -> None:
        self._now = now
        self._chance = chance
        self._last = 0

    def make(self, prefix: str) -> str:
        fresh = (self._now() // 1000) << CHANCE_BITS | self._chance(CHANCE_BITS)
        self._last = fresh if fresh > self._last else self._last + 1
        return prefix + _letters(self._last, 20)


def derive(prefix: str, at: int, name: str) -> str:
    """The id of something that has a name elsewhere: the same for the same instant and name, wherever it is made."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    chance = int.from_bytes(digest[:8], "big") >> 64 - CHANCE_BITS
    return prefix + _letters((max(at, 0) // 1000) << CHANCE_BITS | chance, 20)


def looks_like_session(ref: str) -> bool:
    """Whether this could only be meant as one of our session ids."""
    rest = ref.removeprefix(SESSION)
    return rest != ref and len(rest) == 20 and all(letter in ALPHABET for letter in rest)
