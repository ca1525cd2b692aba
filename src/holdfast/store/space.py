"""Gives the space of what was pruned back to the file system, a little at a time and without rewriting the file."""

from typing import cast

from holdfast.store.database import Database, Transaction


async def reclaim(database: Database) -> int:
    """Free what can be freed, between the writes of others; how many bytes."""
    pages, size = await database.read(_free)
    left = pages
    while left:
        await database.write(_reclaim)
        before, (left, _) = left, await database.read(_free)
        if left >= before:
            break
    return (pages - left) * size


def _free(tx: Transaction) -> tuple[int, int]:
    return cast("tuple[int, int]", tx.one("space.free"))


def _reclaim(tx: Transaction) -> None:
    tx.run("space.reclaim")
