"""Creates the child session of a tool call, in the transaction that records it in the parent's log."""

from collections.abc import Sequence

import msgspec

from holdfast.model.delegation import DelegationRequest
from holdfast.model.errors import Invalid
from holdfast.model.event import Delegation, SessionOpened, UserSaid
from holdfast.model.ids import SESSION, TURN, derive
from holdfast.model.message import Text
from holdfast.model.session import CHILD, preview
from holdfast.model.text import counted
from holdfast.model.times import SECOND
from holdfast.store.database import Transaction
from holdfast.store.repos import delegations, input_queue, sessions
from holdfast.store.repos.input_queue import Input

TITLE_LENGTH = 80
ENDING = ("run", "cron", "batch", CHILD)
"""Sources whose sessions end with their turn, unless they work towards a goal."""
BRIEF = (
    "[You are a sub-agent: another agent delegated this task to you and gets your last message as the result. It cannot "
    "answer questions. Complete the task, then reply with the complete result.]"
)


class DelegationLimits(msgspec.Struct, frozen=True):
    """The limits of the settings."""

    max_depth: int
    max_children: int
    """How many children of one session may run at the same time."""
    seconds: int
    """The time limit of a child without one of its own."""


class PlannedChild(msgspec.Struct, frozen=True, kw_only=True):
    """A child session, ready to be created."""

    id: str
    task_turn: str
    title: str
    opened: SessionOpened
    said: UserSaid
    """The task, in the name of whoever requested the parent's turn."""
    delivery: str
    at: int

    @property
    def link(self) -> Delegation:
        return self.opened.delegation


def check_depth(parent: Delegation, limits: DelegationLimits) -> None:
    """Raise Invalid if a session at this depth may not delegate."""
    if parent.depth >= limits.max_depth:
        reached = (
            f"sub-agents may be nested {limits.max_depth} deep" if limits.max_depth else "delegation is turned off"
        )
        raise Invalid(f"{reached} ([agent] max_depth). Do the task yourself.")


def check_background(source: str, *, has_goal: bool) -> None:
    """Raise Invalid if the session ends with its turn, which would stop a child in the background."""
    if source in ENDING and not has_goal:
        raise Invalid(
            "this session ends with this turn, which would stop a sub-agent in the background. Leave out `background`: "
            "several calls in one reply run in parallel."
        )


def check_tools(wanted: Sequence[str] | None, known: Sequence[str]) -> None:
    """Raise Invalid with the known tools unless the parent has all of the wanted ones."""
    unknown = [name for name in wanted or () if name not in known]
    if unknown:
        raise Invalid(f"unknown tools: {', '.join(unknown)}. A sub-agent can use: {', '.join(known)}.")


def plan_child(
    request: DelegationRequest, opened: SessionOpened, link: Delegation, *, delivery: str, sender: str, at: int
) -> PlannedChild:
    """The child of a call. `opened` has the model and the places of the child. Its ids are derived from the call."""
    name = f"{link.parent_id} {link.turn_id} {link.call_id}"
    child_id, task_turn = derive(SESSION, at, name), derive(TURN, at, name)
    title = preview(request.task)[:TITLE_LENGTH].strip() or "(no title)"
    opened = msgspec.structs.replace(opened, source=CHILD, title=title, delegation=link)
    said = UserSaid(turn_id=task_turn, parts=(Text(f"{request.task.strip()}\n\n{BRIEF}"),), sender=sender)
    return PlannedChild(
        id=child_id,
        task_turn=task_turn,
        title=title,
        opened=opened,
        said=said,
        delivery=delivery,
        at=at,
    )


def create_child(tx: Transaction, child: PlannedChild, limits: DelegationLimits) -> None:
    """Create the child with its task in its queue. Raises Invalid if too many children of the parent are running."""
    link, at = child.link, child.at
    if delegations.count_running(tx, link.parent_id) >= limits.max_children:
        running = counted(limits.max_children, "sub-agent")
        raise Invalid(
            f"{running} of this session are running, which is the limit ([agent] max_children). Wait for one to end."
        )
    # The parent's mode of this moment: it may have become less permissive since the call started.
    mode = sessions.get(tx, link.parent_id).summary.mode
    sessions.create(tx, child.id, msgspec.structs.replace(child.opened, mode=mode), at=at)
    input_queue.put(tx, child.id, Input(child.task_turn, "queue", child.said), at=at)
    delegations.add(
        tx,
        child.id,
        link,
        task_turn=child.task_turn,
        title=child.title,
        delivery=child.delivery,
        at=at,
        deadline=at + link.seconds * SECOND,
    )
