"""The slash command `/goal`: set, show, pause, resume or clear the goal of this session."""

import re

from holdfast.clock import format_local_time
from holdfast.engine.goals.actions import GoalChanges, GoalLimits, first_message
from holdfast.model.errors import Invalid
from holdfast.model.goal import OPEN, Goal, describe_goal
from holdfast.model.price import format_money
from holdfast.model.sanitize import visible
from holdfast.model.text import counted
from holdfast.slash.context import CommandContext, acting_user, require_session

CLEAR = ("clear", "stop", "off", "cancel", "reset", "none")
SHOW = ("", "status", "show")
OPTION = re.compile(r"--(turns|hours|cost)(?:=|\s+)(\S+)\s*")
USAGE = "[--turns N] [--hours N] [--cost USD] TEXT | pause | resume | clear"


async def goal(context: CommandContext, rest: str) -> None:
    """Set the goal that the session works towards by itself; without TEXT, show it."""
    word = rest.lower()
    if word in SHOW:
        await _show(context)
    elif word == "pause":
        await context.engine.goals.pause(require_session(context), by=acting_user(context))
        context.confirm("The goal is paused; the running turn continues. /goal resume resumes the goal.")
    elif word == "resume":
        await context.engine.goals.resume(require_session(context), by=acting_user(context))
        context.confirm("The goal is active again.")
    elif word in CLEAR:
        await context.engine.goals.clear(require_session(context), by=acting_user(context))
        context.confirm("The goal is cleared; the running turn continues. /stop stops it.")
    else:
        await _set(context, rest)


async def _show(context: CommandContext) -> None:
    found = None if context.session_id is None else await context.engine.goals.get(context.session_id)
    if found is None:
        context.show("No goal. Set one with /goal TEXT: the session then works by itself until it is reached.")
        return
    context.show("\n".join([*goal_lines(found), *_next_steps(found)]))


def goal_lines(found: Goal) -> list[str]:
    """The goal for people: its text, its state and its limits."""
    cost = "" if found.max_cost is None else f", {format_money(found.max_cost)}"
    return [
        f"Goal: {visible(found.text)}",
        f"State: {describe_goal(found)}",
        f"Limits: {counted(found.max_turns, 'turn')}, until {format_local_time(found.deadline_at)}{cost}",
    ]


def _next_steps(found: Goal) -> list[str]:
    if found.state not in OPEN:
        return ["Set a new one with /goal TEXT."]
    other = "/goal resume resumes it" if found.state == "paused" else "/goal pause pauses it"
    return [f"{other}, /goal clear ends it."]


async def _set(context: CommandContext, rest: str) -> None:
    text, changes = _parse(rest)
    if context.user:
        _require_within(changes, context.engine.goals.limits)
    planned = await context.engine.goals.plan(context.session_id, text, by=acting_user(context), changes=changes)
    context.confirm(f"Goal set, with up to {planned.max_turns} turns. /goal shows it, /goal pause pauses it.")
    await context.say(first_message(planned), goal=planned)


def _parse(rest: str) -> tuple[str, GoalChanges]:
    """The text of the goal, and the options before it. Raises Invalid."""
    given: dict[str, float] = {}
    while (found := OPTION.match(rest)) is not None:
        name, value = found.groups()
        try:
            given[name] = int(value) if name == "turns" else float(value.removeprefix("$"))
        except ValueError as e:
            raise Invalid(f"{value!r} is not a number; use /goal {USAGE}") from e
        rest = rest[found.end() :]
    if rest.startswith("--"):
        raise Invalid(f"unknown option {rest.split()[0]}; use /goal {USAGE}")
    if not rest.strip():
        raise Invalid(f"the goal is missing; use /goal {USAGE}")
    turns = given.get("turns")
    return rest, GoalChanges(
        max_turns=None if turns is None else int(turns), max_hours=given.get("hours"), max_cost=given.get("cost")
    )


def _require_within(changes: GoalChanges, limits: GoalLimits) -> None:
    """Raise Invalid if a user of a platform asks for more than the settings allow."""
    for name in GoalChanges.__struct_fields__:
        wanted, most = getattr(changes, name), getattr(limits, name)
        if wanted is not None and most is not None and wanted > most:
            raise Invalid(f"this agent allows goals of at most {most:g} {name.removeprefix('max_')}; got {wanted:g}")
