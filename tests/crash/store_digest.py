"""A digest of the whole content of a store: equal digests mean equal content."""

import hashlib
from pathlib import Path

from holdfast.store.sqlite import connection as sqlite_connection

TABLES = "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%' ORDER BY name"
RANDOM_VALUE = "store_id"
"""The one value that is random in every new store."""


def digest(path: Path) -> str:
    connection = sqlite_connection.connect(path)
    try:
        text = hashlib.sha256()
        for name, sql in connection.execute(TABLES).fetchall():
            text.update(repr((name, sql)).encode())
            if str(sql).startswith("CREATE TABLE"):
                rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
                text.update("\n".join(sorted(repr(row) for row in rows if row[0] != RANDOM_VALUE)).encode())
        return text.hexdigest()
    finally:
        connection.close()
