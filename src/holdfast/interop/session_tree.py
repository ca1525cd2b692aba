"""Sessions with their child sessions, as trees. A log from elsewhere may claim any parent, so every session appears once."""

from collections.abc import Sequence

import msgspec

from holdfast.model.delegation import DelegationRecord
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import delegations, sessions


class TreeNode(msgspec.Struct, frozen=True):
    """A session in a tree. `record` is its task, for a child."""

    session: Session
    depth: int = 0
    record: DelegationRecord | None = None


def draw_branches(depths: Sequence[int]) -> list[str]:
    """The lines to draw before nodes of these depths, listed in the order of their trees."""
    drawn: list[str] = []
    continued: set[int] = set()
    """The depths at which a later node of the same parent follows."""
    for depth in reversed(depths):
        above = "".join("│ " if one in continued else "  " for one in range(1, depth))
        drawn.append(above + ("├ " if depth in continued else "└ ") if depth else "")
        continued = {one for one in continued if one < depth} | {depth}
    return drawn[::-1]


def list_descendants(tx: Transaction, roots: Sequence[Session]) -> list[TreeNode]:
    """The sessions, each followed by its descendants. Children that were deleted are left out."""
    nodes: list[TreeNode] = []
    seen: set[str] = set()

    def add(node: TreeNode) -> None:
        if node.session.id in seen:
            return
        seen.add(node.session.id)
        nodes.append(node)
        for record in delegations.list_children(tx, node.session.id):
            child = sessions.find(tx, record.child_id)
            if child is not None:
                add(TreeNode(child, node.depth + 1, record))

    for root in roots:
        add(TreeNode(root))
    return nodes
