"""The last line of the screen: what the session is and what it has used."""

from holdfast.cli.chat.cells import fit, fit_end
from holdfast.interop.visible import one_line
from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, ModelSaid
from holdfast.model.session import Session

TITLE_SHOWN = 32
MODEL_SHOWN = 30
MENTIONED = 0.005
"""The share of the context from which on it is worth a word."""


class Spent:
    """What the session has used, as far as its models have counted."""

    def __init__(self) -> None:
        self.context = 0
        """Tokens of the newest request and its reply: what the next one begins with."""
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
    """Model, title, epoch, share of the context, cost, processes: what there is of it, as much as fits."""
    summary = None if session is None else session.summary
    title = one_line(summary.title or "") if summary is not None else "new session"
    facts = [
        fit_end(one_line(summary.model if summary is not None and summary.model else model), MODEL_SHOWN),
        fit(title, TITLE_SHOWN),
        f"epoch {summary.epoch}" if summary is not None and summary.epoch else "",
        f"context {share:.0%}" if share >= MENTIONED else "",
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
