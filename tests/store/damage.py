"""Changes the bytes of a closed store, like a bad disk or a manual edit."""

from contextlib import closing
from pathlib import Path

import apsw


def settle(path: Path) -> None:
    """Move everything from the WAL into the file."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # opens the WAL
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def overwrite(path: Path, old: bytes, new: bytes) -> None:
    """Replace some bytes by as many others, all of their occurrences."""
    assert len(old) == len(new)
    settle(path)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


def execute(path: Path, sql: str) -> None:
    """Run any statement, without our constraints."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(sql)
