"""The current plan of a session."""

from typing import cast

from holdfast.model.entry import decode
from holdfast.model.event import PlanChanged, Rewound
from holdfast.model.plan import PlanItem
from holdfast.store.database import Transaction
from holdfast.store.repos.log import TO_THE_END

PAGE = 20


def current(tx: Transaction, session_id: str) -> tuple[PlanItem, ...]:
    """The newest plan that no rewind took back; empty if there is none."""
    before, upto = TO_THE_END, TO_THE_END
    while rows := tx.all("plans.list_versions", session=session_id, before=before, limit=PAGE):
        for seq, kind, body in cast("list[tuple[int, str, str]]", rows):
            event = decode(kind, body)
            if isinstance(event, Rewound):
                upto = min(upto, event.to_seq)
            elif isinstance(event, PlanChanged) and seq <= upto:
                return event.items
            before = seq
    return ()
