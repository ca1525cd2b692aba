"""What calls cost: by the provider's word, else by the price table, else nobody knows."""

from pathlib import Path

import pytest

from holdfast.model.errors import Invalid
from holdfast.model.event import Usage
from holdfast.model.price import Price, call_cost, format_money, to_nano
from holdfast.model.provider import ModelReply
from holdfast.providers.prices import HOME_FILE, load_prices, shipped_price
from holdfast.providers.retry import priced
from holdfast.settings import DEFAULT_MODELS, EMBEDDED_MODEL

PRICE = Price(input=1, output=10, cache_read=0.1, cache_write=2)


def cost_of(usage: Usage, price: Price | None = PRICE) -> tuple[float | None, str]:
    reply = priced("openai:m", price, ModelReply(parts=(), model="m-2026", finish="stop", usage=usage))
    return reply.usage.cost, reply.called


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(tokens_in=1_000_000, tokens_out=100_000), 2.0),
        (Usage(tokens_in=1_000_000, cache_read=500_000), 0.55),
        (Usage(tokens_in=1_000_000, cache_write=500_000), 1.5),
        (Usage(tokens_in=10, cache_read=50), 0.000005),
        (Usage(), None),
    ],
)
def test_promise_31_the_price_table_gives_the_cost(usage: Usage, cost: float | None) -> None:
    found = call_cost(PRICE, usage)

    assert found == (None if cost is None else pytest.approx(cost))


def test_promise_31_a_price_in_the_reply_wins() -> None:
    assert cost_of(Usage(tokens_in=1_000_000, cost=0.125)) == (0.125, "openai:m")
    assert cost_of(Usage(tokens_in=5, cost=0.0)) == (0.0, "openai:m")


@pytest.mark.parametrize("claimed", [float("nan"), float("inf"), -1.0, 1e9])
def test_a_cost_that_is_not_one_is_not_believed(claimed: float) -> None:
    assert cost_of(Usage(tokens_in=1_000_000, cost=claimed)) == (1.0, "openai:m")
    assert cost_of(Usage(tokens_in=1_000_000, cost=claimed), None) == (None, "openai:m")


def test_promise_31_a_missing_price_is_unknown_and_not_zero() -> None:
    assert (cost_of(Usage(tokens_in=5), None))[0] is None
    assert (cost_of(Usage()))[0] is None


def test_the_settings_win_over_the_file_in_the_home_and_that_over_the_shipped_list(tmp_path: Path) -> None:
    (tmp_path / HOME_FILE).write_text(
        '["openai:gpt-5.4"]\ninput = 7\noutput = 7\n["openai:mine"]\ninput = 7\noutput = 7\n["openai:x-*"]\ninput = 1\noutput = 1\n'
    )
    prices = load_prices(tmp_path, {"openai:mine": PRICE})

    assert prices.find("openai:mine") == PRICE
    assert prices.find("openai:gpt-5.4") == Price(input=7, output=7)
    assert prices.find("openai:x-large") == Price(input=1, output=1)
    assert prices.find("openai:gpt-5.4-mini") == shipped_price("openai:gpt-5.4-mini") is not None
    assert prices.find("openai:gpt-5.4-mini-2026-03-17") == shipped_price("openai:gpt-5.4-mini")
    assert prices.find("openai:nobody-knows") is None


@pytest.mark.parametrize("text", ["nonsense", '["openai:x"]\ninput = -1\noutput = 1\n', '["openai:x"]\ninput = 1\n'])
def test_a_file_that_is_no_price_table_stops_the_start(tmp_path: Path, text: str) -> None:
    (tmp_path / HOME_FILE).write_text(text)

    with pytest.raises(Invalid, match=r"prices.toml is not a price table"):
        load_prices(tmp_path, {})


def test_embedded_models_are_free_and_the_default_of_openai_has_a_price() -> None:
    embedded = shipped_price(EMBEDDED_MODEL)
    assert embedded is not None
    assert embedded.is_free
    assert shipped_price(DEFAULT_MODELS["openai"]) is not None


def test_amounts_are_exact_and_readable() -> None:
    assert to_nano(0.1) + to_nano(0.2) == to_nano(0.3)
    assert [format_money(to_nano(one)) for one in (0, 0.00012, 0.5, 12.345)] == [
        "$0.00",
        "$0.0001",
        "$0.5000",
        "$12.35",
    ]
