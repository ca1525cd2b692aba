"""/agents: the sub-agents of this session, and how to stop one."""

from holdfast.interop import session_tree
from holdfast.interop.session_tree import TreeNode
from holdfast.model.delegation import state_line
from holdfast.model.errors import Invalid
from holdfast.model.sanitize import one_line
from holdfast.slash.context import CommandContext, require_session
from holdfast.slash.format import require_match
from holdfast.store.database import Transaction
from holdfast.store.repos import delegations, sessions

BY_PERSON = "a person stopped it"


async def agents(context: CommandContext, rest: str) -> None:
    """List the sub-agents as a tree, or stop one that runs, given by its id or a unique prefix."""
    session_id = require_session(context)
    action, _, ref = rest.partition(" ")
    if action not in ("", "stop") or (action == "stop") != bool(ref.strip()):
        raise Invalid("use /agents or /agents stop ID")
    nodes = await context.engine.services.database.read(_list, session_id)
    if action == "stop":
        await _stop(context, nodes, ref.strip())
        return
    branches = session_tree.draw_branches([node.depth - 1 for node in nodes])
    lines = [branch + _line(node) for branch, node in zip(branches, nodes, strict=True)]
    context.show("\n".join(lines) or "No sub-agents.")


def _list(tx: Transaction, session_id: str) -> list[TreeNode]:
    return session_tree.list_descendants(tx, [sessions.get(tx, session_id)])[1:]


def _line(node: TreeNode) -> str:
    assert node.record is not None, "every child has a task"
    asking = ", waits for an answer" if node.session.state == "asking" else ""
    return f"{node.session.id}  {state_line(node.record)}{asking}: {one_line(node.record.title)}"


async def _stop(context: CommandContext, nodes: list[TreeNode], ref: str) -> None:
    running = [node.session.id for node in nodes if node.record is not None and node.record.ended_at is None]
    child_id = require_match(ref, running, f"no sub-agent {ref!r} is running; /agents lists them")
    await context.engine.services.database.write(delegations.request_stop, child_id, BY_PERSON)
    context.show(f"Stopping {child_id}.")
