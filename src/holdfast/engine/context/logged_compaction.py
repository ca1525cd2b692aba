"""Compactions as the log has them."""

import msgspec

from holdfast.model.event import Compacted


class CompactionAttempt(msgspec.Struct, frozen=True):
    """The latest compaction attempt. Without a code it succeeded; `tokens` is the size after it."""

    turn_id: str
    tokens: int
    code: str = ""
    reason: str = ""
    refused_tokens: int = 0
    count: int = 1
    """The number of the attempt within its turn."""


class LoggedCompaction(msgspec.Struct, frozen=True):
    """A compaction with its position in the log."""

    seq: int
    at: int
    event: Compacted
