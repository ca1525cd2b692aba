"""Reads the `state.db` of Hermes, in every version of its schema up to 22.

Columns that a version does not have are taken as empty, so that one reader serves all. Hermes compacts in two ways,
and both become one session here: by rotation it goes on in a new session whose parent ended by `compression`; in place
it archives the rows and writes the shortened context behind them. Either way the shortened context repeats messages:
the first ones, a summary, and the last ones. The repeated ones are recognised and not taken again.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from holdfast.interop.foreign import Fact, Foreign, Parent, instant, mapping, number, text, whole
from holdfast.interop.hermes_rows import Rows
from holdfast.model.errors import Unavailable, Unsupported
from holdfast.model.event import EndReason, Usage
from holdfast.store.foreign import Cell, ForeignFile

FORMAT = "hermes"
NEWEST = 22
TABLES = {"sessions", "messages"}
SLACK_MICROS = 1_000_000
"""A session that goes on after a compaction begins when the other ended; clocks are not that exact."""
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
"""Ours for theirs; any other is `user`, and theirs is kept as the detail."""
Row = Mapping[str, Cell]


class Chain(msgspec.Struct, frozen=True):
    """Sessions of Hermes that are one session, in the order they followed one another."""

    rows: list[Row]

    @property
    def id(self) -> str:
        return text(self.rows[0]["id"])

    @property
    def began_at(self) -> int:
        return instant(self.rows[0].get("started_at"))


def recognises(file: ForeignFile) -> bool:
    return {row["name"] for row in file.rows("hermes.tables")} >= TABLES


def sessions(path: Path) -> Iterator[Foreign]:
    """Every session, a chain of compactions being one. Raises Corrupt, Unavailable, and Unsupported for a newer version."""
    with closing(ForeignFile(path)) as file:
        _refuse_newer(file, path)
        rows = {text(row["id"]): _wanted(row) for row in file.rows("hermes.sessions") if row.get("id")}
        chains = _chains(rows)
        owner = {text(row["id"]): chain for chain in chains for row in chain.rows}
        for done, chain in enumerate(chains, 1):
            yield _foreign(path, chain, _parent(chain, rows, owner), done / len(chains))
        if file.has_changed():
            raise Unavailable(f"{path} was changed while it was read; import it again to have all of it")


def _refuse_newer(file: ForeignFile, path: Path) -> None:
    if "schema_version" in {row["name"] for row in file.rows("hermes.tables")}:
        version = next(file.rows("hermes.version"))["version"]
        if isinstance(version, int) and version > NEWEST:
            raise Unsupported(f"{path} has version {version} of Hermes' schema; this release reads up to {NEWEST}")


def _wanted(row: Row) -> Row:
    """Without what is large and not taken, such as the system prompt of each session."""
    return {name: value for name, value in row.items() if name in WANTED}


def _chains(rows: Mapping[str, Row]) -> list[Chain]:
    """All sessions, oldest first, those that were compacted away joined with the one that went on."""
    goes_on: dict[str, str] = {}
    for row in rows.values():
        parent = rows.get(text(row.get("parent_session_id")))
        if parent is not None and text(parent["id"]) not in goes_on and _continues(row, parent):
            goes_on[text(parent["id"])] = text(row["id"])
    later = set(goes_on.values())
    chains = []
    seen: set[str] = set()
    for start in [*(name for name in rows if name not in later), *rows]:  # the second time only for rings
        chain, name = [], start
        while name and name not in seen:
            seen.add(name)
            chain.append(rows[name])
            name = goes_on.get(name, "")
        if chain:
            chains.append(Chain(chain))
    return chains


def _continues(row: Row, parent: Row) -> bool:
    if parent.get("end_reason") != "compression" or _markers(row) or _is_side(row):
        return False
    ended_at = instant(parent.get("ended_at"))
    return not ended_at or instant(row.get("started_at")) >= ended_at - SLACK_MICROS


def _markers(row: Row) -> set[str]:
    """How Hermes says that a session with a parent is not its continuation."""
    try:
        config = mapping(json.loads(text(row.get("model_config")) or "{}"))
    except (ValueError, RecursionError):
        return set()
    return {name for name in ("_branched_from", "_delegate_from") if config.get(name)}


def _is_side(row: Row) -> bool:
    return row.get("source") in ("tool", "subagent") or "_delegate_from" in _markers(row)


def _parent(chain: Chain, rows: Mapping[str, Row], owner: Mapping[str, Chain]) -> Parent | None:
    name = text(chain.rows[0].get("parent_session_id"))
    if name not in rows or owner[name] is chain:
        return None
    return Parent(owner[name].id, owner[name].began_at, is_side=_is_side(chain.rows[0]))


def _foreign(path: Path, chain: Chain, parent: Parent | None, share: float) -> Foreign:
    last = chain.rows[-1]
    titles = [found for row in chain.rows if (found := text(row.get("title")))]
    return Foreign(
        format=FORMAT,
        origin=chain.id,
        others=tuple(text(row["id"]) for row in chain.rows[1:]),
        facts=lambda: _facts(path, chain),
        began_at=chain.began_at,
        title=titles[0] if titles else None,
        workdir=text(last.get("cwd")) or None,
        parent=parent,
        ended=_ended(last),
        usage=_usage(chain.rows),
        notes=("it was archived in Hermes",) if any(row.get("archived") for row in chain.rows) else (),
        share=share,
    )


def _facts(path: Path, chain: Chain) -> Iterator[Fact]:
    rows = Rows()
    with closing(ForeignFile(path)) as file:
        for row in chain.rows:
            rows.begin(text(row.get("model")))
            for message in file.rows("hermes.messages", session=row["id"]):
                yield from rows.take(message)
    yield from rows.end()


def _ended(row: Row) -> tuple[EndReason, str, int] | None:
    ended_at, reason = instant(row.get("ended_at")), text(row.get("end_reason"))
    return (REASONS.get(reason, "user"), reason, ended_at) if ended_at else None


def _usage(rows: list[Row]) -> Usage:
    def total(name: str) -> int:
        return sum(whole(row.get(name)) for row in rows)

    costs = [found for row in rows if (found := number(row.get("actual_cost_usd") or row.get("estimated_cost_usd")))]
    read, written = total("cache_read_tokens"), total("cache_write_tokens")
    return Usage(
        tokens_in=total("input_tokens") + read + written,
        tokens_out=total("output_tokens"),
        cache_read=read,
        cache_write=written,
        reasoning=total("reasoning_tokens"),
        cost=sum(costs) if costs else None,
    )
