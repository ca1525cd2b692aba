"""Finds rows by a prefix of their id."""

from typing import cast

from holdfast.model.errors import Ambiguous, NotFound
from holdfast.store.database import Transaction

LAST_CHARACTER = "\U0010ffff"
SHORTEST = 4
"""Shortest prefix of an id that is accepted."""


def list_by_prefix(tx: Transaction, query: str, prefix: str) -> list[str]:
    """The first few ids with this prefix; `query` selects the table."""
    return [cast("str", row[0]) for row in tx.all(query, prefix=prefix, after=prefix + LAST_CHARACTER)]


def require_one(ref: str, matching: list[str], what: str) -> str:
    """The only match. Raises Ambiguous with the candidates."""
    if len(matching) > 1:
        raise Ambiguous(f"{ref!r} matches several {what}: {', '.join(matching)}; give more of the id")
    return matching[0]


def resolve_prefix(
    tx: Transaction, query: str, ref: str, *, kind: str, what: tuple[str, str], shortest: int = SHORTEST
) -> str:
    """The full id of a reference: an id or a prefix of one, with or without the prefix of its kind.

    `what` is the noun for messages, singular and plural. Raises NotFound, or Ambiguous with the candidates.
    """
    prefix = ref if ref.startswith(kind) else kind + ref
    if len(prefix) - len(kind) < shortest or not prefix.isascii() or "\0" in prefix:
        raise NotFound(f"no {what[0]} has the id {ref!r} (an id prefix needs at least {shortest} characters)")
    matching = list_by_prefix(tx, query, prefix)
    if not matching:
        raise NotFound(f"no {what[0]} has the id {ref!r}, and no id begins with it")
    return require_one(ref, matching, what[1])
