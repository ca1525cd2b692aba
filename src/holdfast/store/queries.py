"""Loads the named queries from the `.sql` files.

A query is written once, in the SQL that SQLite and PostgreSQL share. Where they differ, a file of the same name in
`sql/<dialect>/` overrides it, or adds queries that only that driver uses.
"""

import re
from functools import cache
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)\n", flags=re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*\n?")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


@cache
def load(dialect: str = "sqlite") -> dict[str, str]:
    """Every query of the dialect, by its name `file.query`."""
    folder = Path(__file__).with_name("sql")
    found = _read(folder)
    if (folder / dialect).is_dir():
        found |= _read(folder / dialect)
    return found


@cache
def for_psycopg() -> dict[str, str]:
    """Every query for PostgreSQL, with psycopg's parameter syntax."""
    return {name: as_psycopg(sql) for name, sql in load("postgres").items()}


def as_psycopg(sql: str) -> str:
    """Replace `:name` with `%(name)s` and remove comments, which may contain colons and percent signs."""
    return _PARAMETER.sub(r"%(\1)s", _COMMENT.sub("", sql).replace("%", "%%")).strip()


@cache
def numbered() -> dict[str, tuple[bytes, tuple[str, ...]]]:
    """Every query for PostgreSQL with numbered parameters, and the parameter names in that order."""
    return {name: as_numbered(sql) for name, sql in load("postgres").items()}


def as_numbered(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """Replace `:name` with `$1`, using one number per name."""
    bare = _COMMENT.sub("", sql).strip()
    names = tuple(dict.fromkeys(_PARAMETER.findall(bare)))
    return _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", bare).encode(), names


def _read(folder: Path) -> dict[str, str]:
    queries = {}
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            _, *parts = _NAME.split(file.read_text("utf-8"))
            repository = file.name.removesuffix(".sql")
            queries.update(
                {f"{repository}.{name}": sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}
            )
    return queries
