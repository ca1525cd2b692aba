"""A place of its own in somebody's PostgreSQL database, for a store that is only tried out."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast.store import queries
from holdfast.store.postgres_connection import connect, refuse_unfit, shown, translate

PREFIX = "holdfast_torture_"


@contextmanager
def schema(url: str) -> Iterator[str]:
    """The address of an empty schema in the database, which is dropped with all that is in it. No other is seen from there."""
    name = PREFIX + secrets.token_hex(6)
    _do(url, "scratch.create", name)
    try:
        yield within(url, name)
    finally:
        _do(url, "scratch.drop", name)


def within(url: str, name: str) -> str:
    """The address with a schema in it."""
    place, _, query = url.partition("?")
    options = f"{conninfo_to_dict(url).get('options') or ''} -csearch_path={name}".strip()
    others = [one for one in query.split("&") if one and not one.startswith("options=")]
    return f"{place}?{'&'.join([*others, f'options={quote(options)}'])}"


def _do(url: str, query: str, name: str) -> None:
    """`name` is one of ours: a prefix and some digits."""
    try:
        with connect(url) as link:
            refuse_unfit(link, shown(url))
            link.execute(queries.for_psycopg()[query].format(schema=name))
    except psycopg.Error as e:
        raise translate(e, shown(url)) from e
