"""The price table: the shipped list, `prices.toml` in the home directory, and `[prices]` in the settings; the last one wins."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid
from holdfast.model.price import Price

SHIPPED = Path(__file__).with_name("prices.toml")
HOME_FILE = "prices.toml"
UNLISTED = "scripted:"
"""Models for tests, which the shipped list does not have."""
DATED = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")
"""A version of a model: `gpt-4.1-2025-04-14`."""


class PriceTable:
    """Prices by model, written as `provider:name`. A name that ends with `*` is a prefix; the longest one wins."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        self._exact = {name: price for name, price in prices.items() if not name.endswith("*")}
        prefixes = [(name[:-1], price) for name, price in prices.items() if name.endswith("*")]
        self._prefixes = sorted(prefixes, key=lambda item: -len(item[0]))

    def find(self, model: str) -> Price | None:
        """The price of the model; of a dated version, that of the model without the date. None if it is unknown."""
        price = self._exact.get(model) or self._exact.get(DATED.sub("", model))
        if price is not None:
            return price
        return next((price for prefix, price in self._prefixes if model.startswith(prefix)), None)


class InstalledPrices:
    """The prices of this installation. The shipped list is read when it is first needed."""

    def __init__(self, own: Mapping[str, Price]) -> None:
        self._own = PriceTable(own)

    def find(self, model: str) -> Price | None:
        return self._own.find(model) or shipped_price(model)


def load_prices(home: Path, overrides: Mapping[str, Price]) -> InstalledPrices:
    """The price table of this installation. Raises Invalid if the file in the home directory is not a price table."""
    file = home / HOME_FILE
    return InstalledPrices({**(_read(file) if file.exists() else {}), **overrides})


@cache
def shipped_prices() -> PriceTable:
    """The list that comes with this release."""
    return PriceTable(_read(SHIPPED))


def shipped_price(model: str) -> Price | None:
    """The price of the list that comes with this release."""
    return None if model.startswith(UNLISTED) else shipped_prices().find(model)


def _read(file: Path) -> dict[str, Price]:
    import tomllib  # it loads slowly, and few commands need a price

    try:
        return msgspec.convert(tomllib.loads(file.read_text("utf-8")), dict[str, Price])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as e:
        raise Invalid(f"{file} is not a price table: {e}") from e
