"""A temporary schema in a PostgreSQL database, for a test store."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast.store import queries
from holdfast.store.postgres.connection import check_server, connect, redact_url, translate

PREFIX = "holdfast_torture_"


@contextmanager
def temporary_schema(url: str) -> Iterator[str]:
    """The URL of a new, empty schema, which is dropped at the end with everything in it. Other schemas are not visible from it."""
    name = PREFIX + secrets.token_hex(6)
    _do(url, "temp_schema.create", name)
    try:
        yield url_with_schema(url, name)
    finally:
        _do(url, "temp_schema.drop", name)


def url_with_schema(url: str, name: str) -> str:
    """The URL with the schema as its search path."""
    place, _, query = url.partition("?")
    options = f"{conninfo_to_dict(url).get('options') or ''} -csearch_path={name}".strip()
    others = [one for one in query.split("&") if one and not one.startswith("options=")]
    return f"{place}?{'&'.join([*others, f'options={quote(options)}'])}"


def _do(url: str, query: str, name: str) -> None:
    """Run a query on a schema. `name` is safe to insert: a prefix and hexadecimal digits."""
    try:
        with connect(url) as link:
            check_server(link, redact_url(url))
            link.execute(queries.for_psycopg()[query].format(schema=name))
    except psycopg.Error as e:
        raise translate(e, redact_url(url)) from e
