"""`holdfast stats`: what was used and what it cost."""

import csv
import io
from pathlib import Path

import pytest

from tests.cli.conftest import ENVIRONMENT, Holdfast

pytestmark = pytest.mark.process

PRICED = 'model = "scripted:echo"\n[prices."scripted:echo"]\ninput = 1000000\noutput = 0\n[budget]\nsession = 100000\n'


@pytest.fixture
def priced(holdfast: Holdfast, home: Path) -> Holdfast:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(PRICED)
    return holdfast


def test_promise_31_every_call_is_in_the_totals(priced: Holdfast) -> None:
    ran = [priced.process("run", f"Number {number}", "--json", env=ENVIRONMENT) for number in range(2)]
    assert [one.code for one in ran] == [0, 0], ran[0].err
    found = priced("stats", "--by", "day,model", "--json").json
    [group] = found["groups"]

    assert (group["day"], group["model"]) == (found["to"], "scripted:echo")
    assert (group["calls"], group["turns"], group["unpriced_calls"]) == (2, 2, 0)
    assert group["cost"] == sum(one.json["usage"]["tokens_in"] for one in ran)
    assert priced("stats", "--rebuild", "--by", "day,model", "--json").json == found
    [row] = csv.DictReader(io.StringIO(priced("stats", "--csv").out))
    assert float(row["cost"]) == group["cost"]
    assert priced("sessions", "verify").code == 0
    assert f"${group['cost']:,.2f}" in priced("stats").out


def test_silly_ranges_are_refused(priced: Holdfast) -> None:
    assert priced("stats", "--by", "colour").code == 2
    assert priced("stats", "--from", "tomorrow").code == 2
    assert priced("stats", "--from", "2026-02-01", "--to", "2026-01-01").code == 2
    assert priced("stats", "--json").json["groups"] == []
