"""The page of usage over a year of generated data: charts, ranges, measures and the download."""

import csv
import io
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from holdfast.store.database import Transaction
from holdfast.store.spending import usage
from holdfast.store.spending.sums import UsageKey, UsageSum
from tests.api.serving import KEY, Server
from tests.dashboard.conftest import log_in, serving
from tests.dashboard.store_writer import stock

DAYS = 365
MODELS = ("openai:gpt-5.4", "openai:gpt-5.4-mini", "local:smollm2", "<b>=cmd|' /C calc'!A0</b>")
SOURCES = ("chat", "api", "gateway", "cron")
USERS = ("", "telegram:42", "=1+1")
LAST = date(2026, 11, 18)
LINES_OF_LAST_WORD = """(one) => {
  const text = one.firstChild, range = document.createRange();
  range.setStart(text, text.data.lastIndexOf(" ") + 1);
  range.setEnd(text, text.length);
  return range.getClientRects().length;
}"""
YEAR = f"from={LAST - timedelta(days=DAYS - 1)}&to={LAST}"


def a_year(tx: Transaction) -> None:
    """Rows for every day, model, source and user."""
    for offset in range(DAYS):
        day = (LAST - timedelta(days=offset)).isoformat()
        sums = {
            UsageKey(day, model, source, user): UsageSum(
                1, 2, int(model == MODELS[3]), 100, 10, 0, 0, 0, 10**6 * (n + 1)
            )
            for n, model in enumerate(MODELS)
            for source in SOURCES
            for user in USERS
        }
        usage.add_to_days(tx, sums)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("usage") / "home") as running:
        stock(running.home, a_year)
        yield running


def test_a_year_is_shown_by_day_model_source_and_user(browser: Browser, server: Server) -> None:
    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        page = log_in(context, server)
        page.goto(f"{server.url}/ui/usage?{YEAR}")

        expect(page.locator(".usage-days rect")).to_have_count(DAYS)
        for chart, names in (("model", MODELS), ("source", SOURCES), ("user", ("local user", *USERS[1:]))):
            region = page.get_by_role("region", name=f"By {chart}")
            assert sorted(region.locator("tbody th").all_inner_texts()) == sorted(names)
        total = DAYS * len(SOURCES) * len(USERS) * sum(range(1, len(MODELS) + 1)) / 1000
        expect(page.locator(".tile").first).to_contain_text(f"${total:,.2f}")
        expect(page.locator(".tile.warn")).to_contain_text("4.38k")

        page.set_viewport_size({"width": 390, "height": 844})
        by_model = page.get_by_role("region", name="By model")
        assert by_model.locator(".figure", has_text="unknown").first.evaluate(LINES_OF_LAST_WORD) == 1
        page.locator("select[name=measure]").select_option("calls")
        page.locator("input[name=from]").fill("2026-11-12")
        page.get_by_role("button", name="Show", exact=True).click()
        expect(page.locator(".usage-days rect")).to_have_count(7)
        assert "measure=calls" in page.url
        with page.expect_download() as started:
            page.get_by_role("link", name="Download CSV").click()
        rows = list(csv.DictReader(io.StringIO(Path(started.value.path()).read_text("utf-8"))))
        assert len(rows) == 7 * len(MODELS) * len(SOURCES) * len(USERS)
        assert {row["user"] for row in rows} == {"", "telegram:42", "'=1+1"}, "no cell is a formula"


@pytest.mark.parametrize("query", ["from=never", "from=2026-02-01&to=2026-01-01", "measure=joy", "from=0001-01-01"])
def test_a_senseless_range_is_an_error_page(server: Server, query: str) -> None:
    with httpx.Client(base_url=server.url, verify=False) as http:
        page = http.get("/ui/login")
        token = page.text.partition('name="csrf" value="')[2].partition('"')[0]
        http.post("/ui/login", data={"key": KEY, "csrf": token}, headers={"sec-fetch-site": "same-origin"})
        assert http.get("/ui/usage").status_code == 200
        assert http.get(f"/ui/usage?{query}").status_code == 400
        assert http.get(f"/ui/usage.csv?{query.replace('measure=joy', 'from=x')}").status_code == 400
