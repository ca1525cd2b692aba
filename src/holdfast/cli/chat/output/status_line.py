"""The status line: model, title, context use and cost."""

from holdfast.cli.chat.output.text_fit import fit, fit_end
from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, ModelSaid
from holdfast.model.sanitize import one_line
from holdfast.model.session import Session

TITLE_SHOWN = 32
MODEL_SHOWN = 30
MIN_SHARE = 0.005
"""Smaller shares of the context are not shown."""


class TokenUsage:
    """Token use and cost of the session, as reported by the models."""

    def __init__(self) -> None:
        self.context = 0
        """Tokens of the latest request and its reply, with which the next one starts."""
        self.cost: float | None = None

    def take(self, entry: Entry) -> None:
        if isinstance(entry.event, ModelSaid):
            usage = entry.event.usage
            if usage.tokens_in or usage.tokens_out:
                self.context = usage.tokens_in + usage.tokens_out
            if usage.cost is not None:
                self.cost = (self.cost or 0.0) + usage.cost
        elif isinstance(entry.event, Compacted) and entry.event.tokens_after:
            self.context = entry.event.tokens_after


def status_line(
    session: Session | None, model: str, *, share: float, cost: float | None, busy: str, processes: int, width: int
) -> str:
    """Model, title, epoch, context use, cost and processes, as far as they fit."""
    summary = None if session is None else session.summary
    title = one_line(summary.title or "") if summary is not None else "new session"
    facts = [
        fit_end(one_line(summary.model if summary is not None and summary.model else model), MODEL_SHOWN),
        fit(title, TITLE_SHOWN),
        f"epoch {summary.epoch}" if summary is not None and summary.epoch else "",
        f"context {share:.0%}" if share >= MIN_SHARE else "",
        f"${cost:.4f}" if cost is not None else "",
        f"{processes} running" if processes else "",
        busy if busy != "queue" else "",
    ]
    line = ""
    for fact in filter(None, facts):
        longer = f"{line} · {fact}" if line else fact
        if len(longer) <= width:
            line = longer
    return line or fit(facts[0], width)
