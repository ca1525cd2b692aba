"""Named queries from the `.sql` files beside this module: all the machinery there is."""

import re
from functools import cache
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)\n", flags=re.MULTILINE)


@cache
def load() -> dict[str, str]:
    """Every query, as `file.name`."""
    queries = {}
    for file in Path(__file__).with_name("sql").iterdir():
        if file.name.endswith(".sql"):
            _, *parts = _NAME.split(file.read_text("utf-8"))
            repository = file.name.removesuffix(".sql")
            queries.update(
                {f"{repository}.{name}": sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}
            )
    return queries
