"""Facts about the store as a whole."""

from typing import cast

from holdfast.store.database import Transaction


def get(tx: Transaction, key: str) -> str | None:
    row = tx.one("meta.get", key=key)
    return None if row is None else cast("str", row[0])


def put(tx: Transaction, key: str, value: str) -> None:
    tx.run("meta.put", key=key, value=value)


def get_store_id(tx: Transaction) -> str:
    """The unique id of this store; a restored copy gets a new one."""
    found = get(tx, "store_id")
    assert found is not None, "every store is given an id when it is made"
    return found
