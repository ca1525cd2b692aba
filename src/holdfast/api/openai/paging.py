"""Pages of items, as in the lists of OpenAI's APIs."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.api.errors import ApiError
from holdfast.model.text import parse_decimal

DEFAULT_LIMIT, MAX_LIMIT = 20, 100


class ItemPage(msgspec.Struct, frozen=True):
    limit: int = DEFAULT_LIMIT
    newest_first: bool = True
    after: str | None = None


def parse_page(asked: Mapping[str, str], also: Sequence[str] = ()) -> ItemPage:
    """Parse the query. Raises ApiError for an unknown or invalid parameter."""
    refuse_unknown(asked, ("limit", "order", "after", *also))
    if asked.get("order", "desc") not in ("asc", "desc"):
        raise ApiError(400, "invalid_value", "order must be asc or desc", "order")
    limit = parse_number(asked, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
    return ItemPage(limit, asked.get("order", "desc") == "desc", asked.get("after"))


def page_of(items: Sequence[Mapping[str, object]], page: ItemPage) -> dict[str, object]:
    """The page of these items, which are in their order, oldest first. Raises ApiError if `after` is none of them."""
    found = list(reversed(items)) if page.newest_first else list(items)
    if page.after is not None:
        index = next((n for n, item in enumerate(found) if item["id"] == page.after), None)
        if index is None:
            raise ApiError(400, "invalid_value", "after must be the id of an item of this list", "after")
        found = found[index + 1 :]
    shown = found[: page.limit]
    ends = {"first_id": shown[0]["id"] if shown else None, "last_id": shown[-1]["id"] if shown else None}
    return {"object": "list", "data": shown, **ends, "has_more": len(found) > page.limit}


def refuse_unknown(asked: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise ApiError for a parameter that is not known."""
    for name in asked:
        if name not in known:
            raise ApiError(400, "unsupported_parameter", f"parameter {name[:80]} is not supported", name[:80])


def parse_number(asked: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """Parse a number of the query. Raises ApiError if it is not in the range."""
    if name not in asked:
        return default
    number = parse_decimal(asked[name].lstrip("0") or asked[name][:1])
    if number is None or not least <= number <= most:
        raise ApiError(400, "invalid_value", f"{name} must be a number from {least} to {most}", name)
    return number
