"""/rewind: takes back the conversation, the files that tools changed, or both, after a preview."""

import shlex

import msgspec

from holdfast.engine.rewinds import RewindPlan, RewindResult
from holdfast.model.errors import Invalid
from holdfast.model.text import counted
from holdfast.slash.context import CommandChoice, CommandContext, acting_user, require_session
from holdfast.slash.format import parse_number
from holdfast.slash.rewind_points import list_points

WHAT = {
    "both": "both: take back the conversation and restore the files",
    "files": "files: restore the files only",
    "conversation": "conversation: take back the conversation only",
}


SHOWN_LINES = 100
"""Lines of a preview that are shown besides the list."""


class RewindArguments(msgspec.Struct, frozen=True):
    """The arguments of the command."""

    turns: int = 1
    message: int | None = None
    undo: bool = False
    what: str = ""
    force: tuple[str, ...] = ()


async def rewind(context: CommandContext, rest: str) -> None:
    """Ask for the message, show what would change, ask what to take back, and go back."""
    session_id, rewinds = require_session(context), context.engine.rewinds
    if not rest and context.has_list:
        point = await _choose_point(context, session_id)
        if point is None:
            context.show("Nothing was changed.")
            return
        rest = point
    given = parse_arguments(rest)
    if given.undo:
        plan = await rewinds.plan_undo(session_id, force=given.force)
    else:
        plan = await rewinds.plan(session_id, turns=given.turns, message=given.message, force=given.force)
    what = given.what or await _ask(context, plan, rewinds.preview(plan), undo=given.undo)
    if what is None:
        context.show("Nothing was changed.")
        return
    if what == "files":
        plan = msgspec.structs.replace(plan, conversation=None)
    elif what == "conversation":
        plan = msgspec.structs.replace(plan, steps=())
    result = await rewinds.apply(plan, by=acting_user(context))
    if plan.conversation is not None:
        context.take_back(plan.conversation.parts)
    context.show(describe_result(result))


async def _choose_point(context: CommandContext, session_id: str) -> str | None:
    """The message to go back before, as an argument of the command; empty for the only one."""
    await context.require_idle()
    services = context.engine.services
    points = await services.database.read(list_points, session_id, services.clock.now())
    if len(points) < 2:
        return ""

    async def describe(point: str) -> str:
        plan = await context.engine.rewinds.plan(session_id, message=parse_arguments(point).message)
        assert plan.conversation is not None, "conversations are part of the plan"
        taken = f"{counted(plan.conversation.messages, 'message')} would be taken back"
        return "\n".join(filter(None, [taken, context.engine.rewinds.preview(plan)]))

    return await context.choose("Go back to before which message?", points, describe)


async def _ask(context: CommandContext, plan: RewindPlan, preview: str, *, undo: bool) -> str | None:
    """What to take back; None for nothing."""
    context.show(_shorten(preview) or "No file was changed by tools since.")
    whole = list(WHAT) if plan.acting else ["conversation"]
    offered = ["files"] if undo else whole

    async def describe(what: str) -> str:
        taken = 0 if plan.conversation is None or what == "files" else plan.conversation.messages
        back = f"{counted(taken, 'message')} taken back; the log keeps them" if taken else ""
        return "\n".join(filter(None, [back, "" if what == "conversation" else preview]))

    return await context.choose("Go back?", [CommandChoice(word, WHAT[word]) for word in offered], describe)


def _shorten(preview: str) -> str:
    """The beginning of a long preview: a list shows all of it."""
    lines = preview.split("\n")
    more = [f"… {counted(len(lines) - SHOWN_LINES, 'more line')}"] if len(lines) > SHOWN_LINES + 1 else []
    return "\n".join([*lines[:SHOWN_LINES], *more] if more else lines)


def parse_arguments(rest: str) -> RewindArguments:
    """Parse the arguments. Raises Invalid."""
    try:
        words = shlex.split(rest)
    except ValueError as e:
        raise Invalid(f"{rest!r} cannot be read: {e}") from e
    given = RewindArguments()
    while words:
        word = words.pop(0)
        if word in WHAT:
            given = msgspec.structs.replace(given, what=word)
        elif word == "undo":
            given = msgspec.structs.replace(given, undo=True)
        elif word == "--force" and words:
            given = msgspec.structs.replace(given, force=(*given.force, words.pop(0)))
        elif word.startswith("@"):
            given = msgspec.structs.replace(given, message=parse_number(word[1:], "an event number", 1))
        else:
            given = msgspec.structs.replace(given, turns=parse_number(word, "a number of exchanges", 1))
    return given


def describe_result(result: RewindResult, undo: str = "/rewind undo") -> str:
    """What was done, in lines. `undo` is the command that undoes it."""
    plan = result.plan
    lines = []
    if plan.conversation is not None:
        lines.append(f"Took back {counted(plan.conversation.messages, 'message')}; the log keeps them.")
    done = [step for step in plan.acting if step.path not in result.failed]
    lines += [f"{'Removed' if step.action == 'remove' else 'Restored'} {step.path}" for step in done]
    lines += [f"! {reason}" for reason in result.failed.values()]
    lines += [
        f"! {step.path} was not restored: {step.reason}" for step in plan.steps if step.action in ("conflict", "skip")
    ]
    if done:
        lines.append(f"Undo the change of the files with: {undo}")
    return "\n".join(lines) or "There was nothing to restore."
