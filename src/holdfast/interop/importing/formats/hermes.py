"""Reads the `state.db` of Hermes, in every version of its schema up to 22.

Missing columns are read as empty, so that one reader supports all versions. Hermes compacts in two ways, and both
become one session here: by rotation it continues in a new session whose parent ended by `compression`; in place it
archives the rows and writes the compacted context after them. In both cases the compacted context repeats messages:
the first ones, a summary, and the last ones. Repeated messages are detected and not imported again.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from holdfast.interop.importing.facts import (
    Fact,
    ForeignSession,
    ParentSession,
    as_count,
    as_mapping,
    as_number,
    as_text,
    as_time,
)
from holdfast.interop.importing.formats.hermes_rows import HermesRows
from holdfast.model.errors import Unavailable, Unsupported
from holdfast.model.event import EndReason, Usage
from holdfast.store.sqlite.foreign_reader import Cell, ForeignFile

FORMAT = "hermes"
NEWEST = 22
TABLES = {"sessions", "messages"}
SLACK_MICROS = 1_000_000
"""A session that continues after a compaction starts when the other ended; this allows for inexact clocks."""
WANTED = {
    *(
        "id",
        "source",
        "model",
        "model_config",
        "parent_session_id",
        "started_at",
        "ended_at",
        "end_reason",
        "title",
        "cwd",
    ),
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
    *("actual_cost_usd", "estimated_cost_usd", "archived"),
}
REASONS: dict[str, EndReason] = {
    "cli_close": "cli_close",
    "tui_close": "cli_close",
    "new_session": "session_reset",
    "session_reset": "session_reset",
    "daily": "session_reset",
    "suspended": "session_reset",
    "idle": "idle",
    "idle_timeout": "idle",
    "cron_complete": "cron_complete",
    "compression": "compression",
    "recovered": "recovered",
}
"""Hermes' reasons and ours; any other becomes `user`, with Hermes' reason as the detail."""
Row = Mapping[str, Cell]


class HermesChain(msgspec.Struct, frozen=True):
    """Sessions of Hermes that are one session here, in order."""

    rows: list[Row]

    @property
    def id(self) -> str:
        return as_text(self.rows[0]["id"])

    @property
    def began_at(self) -> int:
        return as_time(self.rows[0].get("started_at"))


def recognises(file: ForeignFile) -> bool:
    return {row["name"] for row in file.rows("hermes.list_tables")} >= TABLES


def read_sessions(path: Path) -> Iterator[ForeignSession]:
    """Every session; a chain of compactions is one. Raises Corrupt, Unavailable, and Unsupported for a newer version."""
    with closing(ForeignFile(path)) as file:
        _refuse_newer(file, path)
        rows = {as_text(row["id"]): _wanted(row) for row in file.rows("hermes.list_sessions") if row.get("id")}
        chains = _chains(rows)
        owner = {as_text(row["id"]): chain for chain in chains for row in chain.rows}
        for done, chain in enumerate(chains, 1):
            yield _foreign(path, chain, _parent(chain, rows, owner), done / len(chains))
        if file.has_changed():
            raise Unavailable(f"{path} changed during the import; import it again to get everything")


def _refuse_newer(file: ForeignFile, path: Path) -> None:
    if "schema_version" in {row["name"] for row in file.rows("hermes.list_tables")}:
        version = next(file.rows("hermes.get_version"))["version"]
        if isinstance(version, int) and version > NEWEST:
            raise Unsupported(f"{path} has version {version} of Hermes' schema; this release reads up to {NEWEST}")


def _wanted(row: Row) -> Row:
    """The row without large columns that are not imported, such as the system prompt."""
    return {name: value for name, value in row.items() if name in WANTED}


def _chains(rows: Mapping[str, Row]) -> list[HermesChain]:
    """All sessions, oldest first; a compacted session is joined with its continuation."""
    continued_by: dict[str, str] = {}
    for row in rows.values():
        parent = rows.get(as_text(row.get("parent_session_id")))
        if parent is not None and as_text(parent["id"]) not in continued_by and _continues(row, parent):
            continued_by[as_text(parent["id"])] = as_text(row["id"])
    later = set(continued_by.values())
    chains = []
    seen: set[str] = set()
    for start in [*(name for name in rows if name not in later), *rows]:  # the second pass is for cycles
        chain, name = [], start
        while name and name not in seen:
            seen.add(name)
            chain.append(rows[name])
            name = continued_by.get(name, "")
        if chain:
            chains.append(HermesChain(chain))
    return chains


def _continues(row: Row, parent: Row) -> bool:
    if parent.get("end_reason") != "compression" or _markers(row) or _is_side(row):
        return False
    ended_at = as_time(parent.get("ended_at"))
    return not ended_at or as_time(row.get("started_at")) >= ended_at - SLACK_MICROS


def _markers(row: Row) -> set[str]:
    """The markers of a session that has a parent but is not its continuation."""
    try:
        config = as_mapping(json.loads(as_text(row.get("model_config")) or "{}"))
    except (ValueError, RecursionError):
        return set()
    return {name for name in ("_branched_from", "_delegate_from") if config.get(name)}


def _is_side(row: Row) -> bool:
    return row.get("source") in ("tool", "subagent") or "_delegate_from" in _markers(row)


def _parent(chain: HermesChain, rows: Mapping[str, Row], owner: Mapping[str, HermesChain]) -> ParentSession | None:
    name = as_text(chain.rows[0].get("parent_session_id"))
    if name not in rows or owner[name] is chain:
        return None
    return ParentSession(owner[name].id, owner[name].began_at, is_side=_is_side(chain.rows[0]))


def _foreign(path: Path, chain: HermesChain, parent: ParentSession | None, share: float) -> ForeignSession:
    last = chain.rows[-1]
    titles = [found for row in chain.rows if (found := as_text(row.get("title")))]
    return ForeignSession(
        format=FORMAT,
        origin=chain.id,
        others=tuple(as_text(row["id"]) for row in chain.rows[1:]),
        facts=lambda: _facts(path, chain),
        began_at=chain.began_at,
        title=titles[0] if titles else None,
        workdir=as_text(last.get("cwd")) or None,
        parent=parent,
        ended=_ended(last),
        usage=_usage(chain.rows),
        notes=("it was archived in Hermes",) if any(row.get("archived") for row in chain.rows) else (),
        share=share,
    )


def _facts(path: Path, chain: HermesChain) -> Iterator[Fact]:
    rows = HermesRows()
    with closing(ForeignFile(path)) as file:
        for row in chain.rows:
            rows.begin(as_text(row.get("model")))
            for message in file.rows("hermes.list_messages", session=row["id"]):
                yield from rows.take(message)
    yield from rows.end()


def _ended(row: Row) -> tuple[EndReason, str, int] | None:
    ended_at, reason = as_time(row.get("ended_at")), as_text(row.get("end_reason"))
    return (REASONS.get(reason, "user"), reason, ended_at) if ended_at else None


def _usage(rows: list[Row]) -> Usage:
    def total(name: str) -> int:
        return sum(as_count(row.get(name)) for row in rows)

    costs = [found for row in rows if (found := as_number(row.get("actual_cost_usd") or row.get("estimated_cost_usd")))]
    read, written = total("cache_read_tokens"), total("cache_write_tokens")
    return Usage(
        tokens_in=total("input_tokens") + read + written,
        tokens_out=total("output_tokens"),
        cache_read=read,
        cache_write=written,
        reasoning=total("reasoning_tokens"),
        cost=sum(costs) if costs else None,
    )
