"""Stores in a real PostgreSQL."""

from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast.store.postgres.driver import PostgresDatabase, open_postgres
from tests.cli.conftest import holdfast, home, seed  # noqa: F401 - the command line, for these tests too
from tests.postgres.cluster import Cluster, cluster


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database; of an empty store if the test also uses the fixture `database`."""
    return cluster().new_database(migrated="database" in request.fixturenames)


@pytest.fixture
async def database(url: str) -> AsyncIterator[PostgresDatabase]:
    opened = await open_postgres(url)
    yield opened
    await opened.close()


@pytest.fixture(scope="module")
def durable() -> Iterator[Cluster]:
    """A server that flushes, for tests that kill it."""
    made = Cluster(durable=True)
    made.start()
    yield made
    made.remove()
