"""/queue: list, edit, drop and send queued messages."""

from collections.abc import Awaitable, Callable, Sequence

from holdfast.model.errors import Invalid
from holdfast.model.message import Content, typed_text
from holdfast.model.sanitize import one_line
from holdfast.model.text import counted
from holdfast.slash.context import CommandContext, require_session
from holdfast.slash.format import parse_number
from holdfast.store.repos import input_queue
from holdfast.store.repos.input_queue import Input

SHOWN = 200
HINT = "/queue edit [NUMBER] edits a message, /queue drop [NUMBER] deletes one or all, /queue send sends all."


async def queue(context: CommandContext, rest: str) -> None:
    action, _, which = rest.partition(" ")
    if action and action not in ACTIONS:
        raise Invalid(
            f"unknown action {action!r}; use {', '.join(ACTIONS)}, or /queue alone to list the queued messages"
        )
    waiting = await context.engine.services.database.read(input_queue.list_waiting, require_session(context))
    if not waiting:
        context.show("No messages are queued.")
    elif action:
        await ACTIONS[action](context, waiting, which.strip())
    else:
        lines = [f"{number:>3}  {one_line(text(item))[:SHOWN]}" for number, item in enumerate(waiting, 1)]
        context.show("\n".join([*lines, HINT]))


def messages(waiting: Sequence[Input]) -> list[Input]:
    """What a person has written; not the results of sub-agents."""
    return [item for item in waiting if not item.completions]


def text(item: Input) -> str:
    """The text of a queued message; for the result of a sub-agent, whose it is."""
    for ended in item.completions:
        return f"(result of sub-agent {ended.child_id})"
    return typed_text(parts(item))


def parts(item: Input) -> tuple[Content, ...]:
    """The parts of a queued message."""
    return () if item.said is None else item.said.parts


async def _edit(context: CommandContext, waiting: Sequence[Input], which: str) -> None:
    """Take a message out of the queue for editing: the given one, or the latest."""
    [item] = _chosen(waiting, which) if which else messages(waiting)[-1:] or waiting[-1:]
    if item.completions:
        raise Invalid("the result of a sub-agent cannot be edited; /queue drop NUMBER keeps it for the next message")
    if not await context.engine.drop_queued(require_session(context), item.turn_id):
        context.show("That message was already sent.")
    elif not context.take_back(parts(item)):
        context.show(f"Removed from the queue:\n{text(item)}")


async def _drop(context: CommandContext, waiting: Sequence[Input], which: str) -> None:
    """Remove messages from the queue: the given one, or all but results of sub-agents. The log keeps them."""
    chosen = _chosen(waiting, which) if which else messages(waiting)
    dropped = [await context.engine.drop_queued(require_session(context), item.turn_id) for item in chosen]
    context.show(f"Dropped {counted(sum(dropped), 'queued message')}.")


async def _send(context: CommandContext, waiting: Sequence[Input], which: str) -> None:
    """Send the queued messages, oldest first."""
    if which:
        raise Invalid("/queue send takes no number and sends all queued messages; drop the others first")
    context.engine.take_up(require_session(context))
    context.show(f"Sending {counted(len(waiting), 'queued message')}.")


def _chosen(waiting: Sequence[Input], which: str) -> list[Input]:
    position = parse_number(which, "the number of a queued message", 0)
    if not 1 <= position <= len(waiting):
        raise Invalid(f"no queued message {position}; /queue lists them")
    return [waiting[position - 1]]


ACTIONS: dict[str, Callable[[CommandContext, Sequence[Input], str], Awaitable[None]]] = {
    "edit": _edit,
    "drop": _drop,
    "send": _send,
}
