"""`/ready` of a server whose PostgreSQL is down."""

from pathlib import Path

import pytest

from tests.crash.programs import wait_until
from tests.postgres.cluster import Cluster
from tests.postgres.test_dashboard import OnPostgres

pytestmark = pytest.mark.timeout(120)
AT_ONCE = 5.0
"""The time limit for a response in seconds. One second is promised; a loaded machine gets more."""


def test_a_server_whose_postgresql_is_down_says_so_at_once_and_is_ready_when_it_is_back(
    tmp_path: Path, durable: Cluster
) -> None:
    with OnPostgres(tmp_path / "home", durable.new_database()) as server, server.http() as http:
        ready = http.get("/ready")
        durable.kill()
        try:
            answers = [http.get("/ready", timeout=AT_ONCE) for _ in range(3)]
            metrics = http.get("/metrics", timeout=AT_ONCE)
        finally:
            durable.start()
        wait_until(lambda: http.get("/ready").status_code == 200, "the store to be back")

    assert ready.status_code == 200
    assert [answer.status_code for answer in answers] == [503, 503, 503]
    assert all(answer.json()["checks"]["store"] != "ok" for answer in answers)
    assert "holdfast_store_up 0" in metrics.text
