"""The status line: model, permission mode, directory, git branch, context use, tokens and cost."""

from pathlib import Path

import msgspec
from prompt_toolkit.utils import get_cwidth

from holdfast.cli.chat.output.text_fit import fit, fit_end
from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, ModelSaid
from holdfast.model.price import format_money
from holdfast.model.sanitize import one_line
from holdfast.store.spending.sums import usage_of

TITLE_SHOWN = 32
MODEL_SHOWN = 30
DIRECTORY_SHOWN = 20
BRANCH_SHOWN = 24
MIN_SHARE = 0.005
"""Smaller shares of the context are not shown."""
PRIORITY = (
    "model",
    "mode",
    "goal",
    "keys",
    "processes",
    "context",
    "cost",
    "tokens",
    "busy",
    "directory",
    "branch",
    "title",
    "epoch",
)
"""What is shown first if the line is too short for everything."""
SEPARATOR = " · "


class TokenUsage:
    """Token use and cost of the session: of its conversation, summaries, goal checks and other calls of models."""

    def __init__(self) -> None:
        self.context = 0
        """Tokens of the latest request and its reply, with which the next one starts."""
        self.tokens = 0
        """All tokens of the session, sent and received."""
        self.cost: int | None = None
        """In nano-dollars, without calls of unknown cost."""

    def take(self, entry: Entry) -> None:
        found = usage_of(entry.event)
        self.tokens += found.tokens_in + found.tokens_out
        if found.calls > found.unpriced:
            self.cost = (self.cost or 0) + found.cost
        if isinstance(entry.event, ModelSaid):
            self.context = found.tokens_in + found.tokens_out or self.context
        elif isinstance(entry.event, Compacted) and entry.event.tokens_after:
            self.context = entry.event.tokens_after


class StatusFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the line shows. Unknown and usual values are empty."""

    model: str
    mode: str = ""
    """The permission mode of the session."""
    goal: str = ""
    """The state of the session's goal, if it has not ended."""
    directory: str = ""
    branch: str = ""
    share: float = 0.0
    """The used share of the context window."""
    tokens: int = 0
    cost: int | None = None
    """In nano-dollars."""
    title: str = ""
    epoch: int = 0
    processes: int = 0
    """Background processes that run."""
    busy: str = "queue"
    keys: str = ""
    """The state of vim keys."""


def status_line(facts: StatusFacts, width: int) -> str:
    """The facts in one line, as far as they fit."""
    pieces = _pieces(facts)
    kept = {"model"}
    for name in PRIORITY:
        if pieces[name] and get_cwidth(_line(pieces, {*kept, name})) <= width:
            kept.add(name)
    return fit(_line(pieces, kept), width)


def _line(pieces: dict[str, str], kept: set[str]) -> str:
    return SEPARATOR.join(text for name, text in pieces.items() if name in kept)


def _pieces(facts: StatusFacts) -> dict[str, str]:
    """The text for each fact, in the order of the line."""
    return {
        "keys": facts.keys,
        "model": fit_end(one_line(facts.model), MODEL_SHOWN),
        "mode": facts.mode,
        "goal": f"goal {facts.goal}" if facts.goal else "",
        "directory": fit_end(one_line(facts.directory), DIRECTORY_SHOWN),
        "branch": fit(one_line(facts.branch), BRANCH_SHOWN),
        "context": f"context {facts.share:.0%}" if facts.share >= MIN_SHARE else "",
        "tokens": f"{short_number(facts.tokens)} tokens" if facts.tokens else "",
        "cost": format_money(facts.cost) if facts.cost else "",
        "title": fit(one_line(facts.title), TITLE_SHOWN),
        "epoch": f"epoch {facts.epoch}" if facts.epoch else "",
        "processes": f"{facts.processes} running" if facts.processes else "",
        "busy": facts.busy if facts.busy != "queue" else "",
    }


def short_number(number: int) -> str:
    """`950`, `12.3k`, `4.5M`."""
    if number < 1_000:
        return str(number)
    return f"{number / 1_000:.1f}k" if number < 999_950 else f"{number / 1_000_000:.1f}M"


def abbreviate(path: Path) -> str:
    """The path with `~` for the user's home directory."""
    home = Path.home()
    return str(path) if not path.is_relative_to(home) else str("~" / path.relative_to(home)).removesuffix("/.")
