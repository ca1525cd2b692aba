"""All rows of a session can be on one machine: keys begin with the session's id, and writes name it."""

import re
from pathlib import Path

from holdfast.store import queries
from holdfast.store.postgres.driver import PostgresDatabase
from tests.postgres.cluster import cluster, name_of

PAGE = Path(__file__).parents[2] / "docs" / "postgres.md"
KEY = {"session": "id"}
"""What the session's id is called in a table, where it is not `session_id`."""
KEYS = """
SELECT t.relname, i.relname, array_to_string(array(
  SELECT a.attname FROM unnest(x.indkey) WITH ORDINALITY AS k (number, place)
  JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.number ORDER BY k.place), ',')
FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
WHERE x.indisunique AND t.relnamespace = 'public'::regnamespace
"""
FOREIGN = """
SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint
WHERE contype = 'f' AND connamespace = 'public'::regnamespace
"""
AT_ONCE = {"activity.delete_old", "leases.release_all", "search.delete_all", "usage.clear_sessions"}
"""Writes that are about a worker, or about everything, and go to every machine."""
_WRITES = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)")


def listed() -> dict[str, set[str]]:
    """The tables of each row of the page's table, by how they are distributed."""
    section = PAGE.read_text("utf-8").partition("## Tables and distribution")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`\w+`.*?) \| (.*?) \| (.*?) \|$", section, flags=re.MULTILINE)
    found = {distributed: set(re.findall(r"`(\w+)`", tables)) for tables, _, distributed in rows}
    return {how.split(";")[0]: tables for how, tables in found.items()}


def of_a_session() -> set[str]:
    return listed()["by the session's id"]


async def test_every_table_is_documented_and_nothing_else_is(database: PostgresDatabase, url: str) -> None:
    ours = {
        row[0] for row in cluster().execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", name_of(url))
    }

    assert set().union(*listed().values()) == ours
    assert sum(map(len, listed().values())) == len(ours)


async def test_every_unique_key_of_a_sessions_tables_begins_with_its_id(database: PostgresDatabase, url: str) -> None:
    """A distributed database keeps a key unique only if the distribution column is part of it."""
    found: dict[str, list[str]] = {}
    for table, _, columns in cluster().execute(KEYS, name_of(url)):
        found.setdefault(str(table), []).append(str(columns))

    for table in of_a_session():
        assert found[table], "a row can be named"
        for columns in found[table]:
            assert columns.split(",")[0] == KEY.get(table, "session_id"), f"{table}: {columns}"


async def test_tables_of_a_session_refer_only_to_the_session_or_to_global_tables(
    database: PostgresDatabase, url: str
) -> None:
    everywhere = listed()["on every machine"]

    for table, other in cluster().execute(FOREIGN, name_of(url)):
        if table in of_a_session():
            assert other == "session" or other in everywhere


def test_every_write_to_a_sessions_table_names_the_session() -> None:
    across = set()
    for name, sql in queries.load("postgres").items():
        text = re.sub(r"--[^\n]*", "", sql)
        for table in set(_WRITES.findall(text)) & of_a_session():
            key = KEY.get(table, "session_id")
            named = re.search(rf"\b{key} (?:= :|IN \()", text)
            inserted = re.search(rf"INSERT INTO {table} \(\s*{key},", text)
            if not (named or inserted) and not name.startswith(("copy_store.", "hermes.")):
                across.add(name)

    assert across == AT_ONCE
