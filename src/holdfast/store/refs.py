"""Things found by the beginning of their id, for whoever would rather not type all of it."""

from typing import cast

from holdfast.model.errors import Ambiguous, NotFound
from holdfast.store.database import Transaction

BEHIND_ALL = "\U0010ffff"


def beginning_with(tx: Transaction, query: str, prefix: str) -> list[str]:
    """The first few ids that begin so; `query` names the table."""
    return [cast("str", row[0]) for row in tx.all(query, prefix=prefix, after=prefix + BEHIND_ALL)]


def only(ref: str, fitting: list[str], what: str) -> str:
    """The one id that fits. Raises Ambiguous with the candidates."""
    if len(fitting) > 1:
        raise Ambiguous(f"{ref!r} fits several {what}: {', '.join(fitting)}; give more of the id")
    return fitting[0]


def find(tx: Transaction, query: str, ref: str, *, kind: str, shortest: int, what: tuple[str, str]) -> str:
    """The id of what a reference means: an id, or the beginning of one, with or without the word its kind begins with.

    `what` is what such a thing is called, and several of them. Raises NotFound, or Ambiguous with the candidates.
    """
    prefix = ref if ref.startswith(kind) else kind + ref
    if len(prefix) - len(kind) < shortest or not prefix.isascii() or "\0" in prefix:
        raise NotFound(f"no {what[0]} has the id {ref!r} (the beginning of an id needs {shortest} characters)")
    fitting = beginning_with(tx, query, prefix)
    if not fitting:
        raise NotFound(f"no {what[0]} has the id {ref!r}, and no id begins with it")
    return only(ref, fitting, what[1])
