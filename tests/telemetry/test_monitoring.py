"""The Grafana dashboard and the alert rules use metrics that a server has."""

import json
import re
from pathlib import Path

import pytest

from tests.api.serving import Server

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
METRIC = re.compile(r"\b(?:holdfast|process)_[a-z_]+\b")


@pytest.mark.process
@pytest.mark.timeout(120)
def test_every_metric_of_the_dashboard_and_the_alerts_exists(tmp_path: Path) -> None:
    with Server(tmp_path / "home") as server, server.http() as http:
        offered = set(re.findall(r"^# TYPE (\S+)", http.get("/metrics").text, re.M))
    dashboard = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = re.findall(r"expr: (?:>-\n)?((?:.*\n)(?:\s+/.*\n)?)", (FOLDER / "alerts.yml").read_text())

    used = set(METRIC.findall(" ".join([*queries, *rules])))
    assert len(used) > 10
    assert used <= offered


def test_every_alert_is_documented() -> None:
    page = (FOLDER.parent / "telemetry.md").read_text()
    alerts = re.findall(r"alert: (\w+)", (FOLDER / "alerts.yml").read_text())

    assert alerts
    assert [alert for alert in alerts if f"`{alert}`" not in page] == []
