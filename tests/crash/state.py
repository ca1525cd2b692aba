"""All that a store holds, as one digest: two stores with the same digest hold the same."""

import hashlib
from pathlib import Path

from holdfast.store import sqlite_connection

TABLES = "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%' ORDER BY name"
CHANCE = "store_id"
"""The one value that every new store throws dice for."""


def digest(path: Path) -> str:
    connection = sqlite_connection.connect(path)
    try:
        text = hashlib.sha256()
        for name, sql in connection.execute(TABLES).fetchall():
            text.update(repr((name, sql)).encode())
            if str(sql).startswith("CREATE TABLE"):
                rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
                text.update("\n".join(sorted(repr(row) for row in rows if row[0] != CHANCE)).encode())
        return text.hexdigest()
    finally:
        connection.close()
