"""How many bytes a message takes in PostgreSQL, and what takes them."""

from pathlib import Path

from bench import stores, texts
from bench.figures import Figure, Goal
from holdfast.model.event import SessionOpened
from holdfast.store.database import Transaction
from holdfast.store.postgres.driver import open_postgres
from holdfast.store.postgres.search import open_table
from holdfast.store.repos import log, sessions
from tests.postgres.cluster import Cluster, name_of

SESSIONS = 200
EACH = 30
PARTS = {
    "rows of the log": "SELECT pg_table_size('event')",
    "indexes of the log": "SELECT pg_indexes_size('event')",
    "words of the search": "SELECT pg_table_size('words')",
    "trigrams": "SELECT pg_relation_size('words_trigrams')",
    "other indexes of the search": "SELECT pg_indexes_size('words') - pg_relation_size('words_trigrams')",
}
SESSION = "SELECT pg_total_relation_size('session')"


async def measure(cluster: Cluster, folder: Path) -> list[Figure]:
    """Sessions of messages of 1 KB, as they are said and indexed, and after the server has tidied up."""
    url = cluster.new_database()
    db = await open_postgres(url)
    for number in range(SESSIONS):
        await db.write(_add, number)
    index = await open_table(db)
    await index.catch_up()
    await index.close()
    await db.close()
    name = name_of(url)
    cluster.execute("VACUUM", name)
    as_written = _sizes(cluster, name)
    cluster.execute("VACUUM FULL", name)
    tidied = _sizes(cluster, name)
    row = cluster.execute(SESSION, name)[0][0]
    return [
        Figure(
            what="bytes per message, search included",
            value=f"{sum(tidied.values()):,.0f}; as written {sum(as_written.values()):,.0f}",
            judged=sum(tidied.values()),
            goal=Goal("≤", 3_000, " B"),
            kind="disk",
        ),
        *(Figure(what=f"  {part}", value=f"{size:,.0f}; {as_written[part]:,.0f}") for part, size in tidied.items()),
        Figure(what="bytes per session beside its messages", value=f"{int(str(row)) / SESSIONS:,.0f}"),
    ]


def _add(tx: Transaction, number: int) -> None:
    session_id = stores.session_id(number)
    sessions.create(tx, session_id, SessionOpened(source="chat", model="scripted:bench"), at=stores.now())
    first = number * EACH
    log.append_unheld(tx, session_id, [texts.said(n) for n in range(first, first + EACH)], at=stores.now())


def _sizes(cluster: Cluster, name: str) -> dict[str, float]:
    """Bytes for each message."""
    return {part: int(str(cluster.execute(sql, name)[0][0])) / (SESSIONS * EACH) for part, sql in PARTS.items()}
