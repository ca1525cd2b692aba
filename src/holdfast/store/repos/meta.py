"""Facts about the store as a whole."""

from typing import cast

from holdfast.store.database import Transaction


def get(tx: Transaction, key: str) -> str | None:
    row = tx.one("meta.get", key=key)
    return None if row is None else cast("str", row[0])


def put(tx: Transaction, key: str, value: str) -> None:
    tx.run("meta.put", key=key, value=value)


def replace(tx: Transaction, key: str, expected: str | None, value: str) -> bool:
    """Store the fact unless another worker has changed it; None expects that there is none. Returns whether it was stored."""
    if expected is None:
        return tx.one("meta.add", key=key, value=value) is not None
    return tx.one("meta.replace", key=key, expected=expected, value=value) is not None


def get_store_id(tx: Transaction) -> str:
    """The unique id of this store; a restored copy gets a new one."""
    found = get(tx, "store_id")
    assert found is not None, "every store is given an id when it is made"
    return found
