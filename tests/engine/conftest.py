from collections.abc import AsyncIterator

import pytest

from tests.engine.stage import Stage


@pytest.fixture
async def stages() -> AsyncIterator[list[Stage]]:
    """Workers that a test creates; they are closed when it ends."""
    made: list[Stage] = []
    yield made
    for stage in made:
        await stage.engine.close()
    for database in {stage.database for stage in made}:
        await database.close()
