"""Returns the space of pruned sessions to the file system, in small steps and without rewriting the file."""

from typing import cast

from holdfast.store.database import Database, Transaction


async def reclaim(database: Database) -> int:
    """Release unused pages, between other writes; returns the number of bytes."""
    pages, size = await database.read(_free)
    left = pages
    while left:
        await database.write(_reclaim)
        before, (left, _) = left, await database.read(_free)
        if left >= before:
            break
    return (pages - left) * size


def _free(tx: Transaction) -> tuple[int, int]:
    return cast("tuple[int, int]", tx.one("reclaim.get_free_pages"))


def _reclaim(tx: Transaction) -> None:
    tx.run("reclaim.release_pages")
