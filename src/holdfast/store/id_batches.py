"""Runs a query for many ids, some at a time: its cost depends on their number only, not on what lies between them."""

from collections.abc import Iterator, Sequence
from string import ascii_lowercase

from holdfast.store.database import Row, Transaction

PARAMETERS = tuple(f"id_{letter}" for letter in ascii_lowercase[:20])
"""The parameters of such a query."""


def all_by_ids(tx: Transaction, query: str, ids: Sequence[str]) -> Iterator[Row]:
    """The rows of all ids."""
    size = len(PARAMETERS)
    for start in range(0, len(ids), size):
        some = dict(zip(PARAMETERS, ids[start : start + size], strict=False))
        yield from tx.all(query, **{name: some.get(name, "") for name in PARAMETERS})
