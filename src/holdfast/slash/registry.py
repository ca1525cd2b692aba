"""The table of slash commands, and `run`, which executes a typed line. Help and completion use the same table."""

import difflib
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import msgspec

from holdfast.instructions.skills import find_skills
from holdfast.model.errors import HoldfastError, Invalid
from holdfast.model.message import Text
from holdfast.model.text import truncate
from holdfast.slash import (
    agents,
    browse,
    cost,
    custom,
    goals,
    mcp_servers,
    memory,
    navigation,
    questions,
    queued,
    rewind,
    session_info,
    skills,
    turn_control,
)
from holdfast.slash.context import CommandContext

Handler = Callable[[CommandContext, str], Awaitable[None]]
TYPED = re.compile(r"/([A-Za-z?][\w-]*)(?:\s+(.*))?\s*", re.DOTALL)
"""A command: a slash and a word. A path has more slashes and is plain text."""
NEAREST = 3
NAME_COLUMN = 24
"""Columns for a command in the list; arguments that do not fit are left out."""
HELP_CHARS = 100
"""Characters of a description in the list: those of skills can be long."""
IGNORES_ARGUMENTS = ("stop",)
"""Commands that work whatever is typed after them."""


class SlashCommand(msgspec.Struct, frozen=True):
    """`usage` shows the arguments; `completes` names the kind of completion for them."""

    name: str
    handler: Handler
    help: str
    usage: str = ""
    aliases: tuple[str, ...] = ()
    completes: str = ""


async def _help(context: CommandContext, rest: str) -> None:
    """List the commands, or explain one."""
    own = {one.name: one for one in list_own(context.settings.home, context.workdir)}
    if not rest:
        listed: list[SlashCommand | OwnCommand] = [*COMMANDS, *own.values()]
        lines = [f"{_listed(one.name, one.usage):<{NAME_COLUMN}} {_short(one.help)}" for one in listed]
        context.show("\n".join([*lines, "", "/help COMMAND shows all arguments of a command."]))
        return
    name = rest.lstrip("/").lower()
    command = own[name] if name in own else find(name, own)
    aliases = command.aliases if isinstance(command, SlashCommand) else ()
    also = f" (also {', '.join('/' + alias for alias in aliases)})" if aliases else ""
    context.show(f"{f'/{command.name} {command.usage}'.strip()}{also}: {command.help}")


def _short(text: str) -> str:
    return text if text.startswith("!") else truncate(text, HELP_CHARS)


def _listed(name: str, usage: str) -> str:
    """The command as it stands in the list."""
    whole = f"/{name} {usage}".rstrip()
    return whole if len(whole) < NAME_COLUMN else f"/{name} …"


class OwnCommand(msgspec.Struct, frozen=True):
    """A command that the user, the directory or a skill adds."""

    name: str
    help: str
    usage: str = ""


def list_own(home: Path, workdir: Path) -> list[OwnCommand]:
    """The user's own commands and the skills, without those that another command hides. Blocks on the file system."""
    own = custom.load(home, workdir)
    found = [OwnCommand(name, command.help, command.usage) for name, command in own.items()]
    usable = (skill for skill in find_skills(workdir, home) if not skill.refused and skill.name not in own)
    found += [OwnCommand(skill.name, skill.description, "[TASK]") for skill in usable]
    return [command for command in found if command.name not in BY_NAME]


COMMANDS = (
    SlashCommand(
        "new", navigation.new, "end this session; your next message starts a new one", "[stop|keep|move] [TITLE]"
    ),
    SlashCommand("undo-reset", navigation.undo_reset, "return to the session before the last reset (within a day)"),
    SlashCommand(
        "resume", navigation.resume, "resume another session, or choose one from a list", "[REF]", completes="session"
    ),
    SlashCommand("sessions", browse.sessions, "list recent sessions", "[NUMBER]"),
    SlashCommand(
        "fork", navigation.fork, "continue in a copy of this session, up to event SEQ or the end", "[SEQ]", ("branch",)
    ),
    SlashCommand("title", session_info.title, "show or set the title", "[TITLE]"),
    SlashCommand(
        "undo", turn_control.undo, "undo the last exchange, or the last NUMBER; the log keeps them", "[NUMBER]"
    ),
    SlashCommand(
        "rewind",
        rewind.rewind,
        "go back to before a message and restore the files changed since; previews first",
        "[NUMBER|@SEQ|undo] [both|files|conversation] [--force PATH]",
    ),
    SlashCommand("retry", turn_control.retry, "discard the last reply and ask again, adding TEXT", "[TEXT]"),
    SlashCommand("stop", turn_control.stop, "stop the running turn; its messages are kept"),
    SlashCommand(
        "queue",
        queued.queue,
        "list, edit, drop or send queued messages",
        "[edit|drop|send] [NUMBER]",
        completes="queue",
    ),
    SlashCommand(
        "compact",
        turn_control.compact,
        "compact the context, with an optional focus; the log is unchanged",
        "[FOCUS | undo]",
    ),
    SlashCommand("recall", browse.recall, "show events of this session, or search it", "FROM[-TO] | WORDS"),
    SlashCommand("history", browse.history, "show the last 50 messages of this session, or NUMBER", "[NUMBER]"),
    SlashCommand("show", browse.show, "show a message or tool output in full", "SEQ"),
    SlashCommand("ps", session_info.ps, "list background processes of this session, or show the output of one", "[ID]"),
    SlashCommand(
        "goal",
        goals.goal,
        "set a goal: the session works by itself until it is reached; or show, pause, resume, clear it",
        "[TEXT | pause | resume | clear]",
        completes="goal",
    ),
    SlashCommand("agents", agents.agents, "list the sub-agents of this session, or stop one", "[stop ID]"),
    SlashCommand("kill", session_info.kill, "stop a background process", "ID"),
    SlashCommand(
        "questions",
        questions.questions,
        "list, show or answer open questions of all sessions",
        "[show ID | answer ID ANSWER]",
    ),
    SlashCommand("approvals", questions.rules, "list approval rules, or revoke one", "[revoke ID]"),
    SlashCommand("why", session_info.why, "explain the state of this session"),
    SlashCommand("status", session_info.status, "show the state and figures of this session"),
    SlashCommand("model", session_info.model, "show or change the model", "[PROVIDER:NAME]"),
    SlashCommand("cost", cost.cost, "show what this session has cost, or raise its budget", "[raise AMOUNT]"),
    SlashCommand(
        "mode",
        session_info.mode,
        "show or change the permission mode",
        "[ask|edits|plan|trusted]",
        completes="mode",
    ),
    SlashCommand(
        "busy",
        session_info.busy,
        "show or set what happens to a message sent during a turn",
        "[queue|steer|interrupt]",
        completes="busy",
    ),
    SlashCommand("skills", skills.skills, "list the skills, or use one; /NAME does the same", "[NAME [TASK]]"),
    SlashCommand(
        "memory",
        memory.memory,
        "list, search or change what is remembered for later sessions",
        "[WORDS | show ID | add TEXT | correct ID TEXT | forget ID | export]",
    ),
    SlashCommand("mcp", mcp_servers.mcp, "list the MCP servers and their tools"),
    SlashCommand("search", browse.search, "search all sessions", "[--role ROLE] [--tool NAME] WORDS"),
    SlashCommand(
        "export", browse.export, "export this session to a file", "[md|html|jsonl] [FILE] [--force]", completes="export"
    ),
    SlashCommand("takeover", navigation.takeover, "take over this session from another terminal"),
    SlashCommand("help", _help, "list the commands, or explain one", "[COMMAND]", ("?",), completes="command"),
    SlashCommand("quit", navigation.quit_, "quit; everything is saved", "", ("exit",)),
)
BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


def parse(line: str) -> tuple[str, str] | None:
    """The name and arguments of a command; None if the line is not a command."""
    found = TYPED.fullmatch(line.strip())
    return None if found is None else (found[1].lower(), (found[2] or "").strip())


def find(name: str, own: Iterable[str] = ()) -> SlashCommand:
    """Find a command by name. Raises Invalid with the nearest names, the user's own commands included."""
    command = BY_NAME.get(name)
    if command is not None:
        return command
    known = [*BY_NAME, *own]
    similar = difflib.get_close_matches(name, known, NEAREST, 0.5)
    similar += [one for one in known if one.startswith(name) and one not in similar]
    hint = (
        f"did you mean {' or '.join('/' + one for one in similar[:NEAREST])}?"
        if similar
        else "/help lists all commands"
    )
    raise Invalid(f"unknown command /{name}; {hint}")


async def run(context: CommandContext, line: str) -> bool:
    """Run the command in a line; False if it is not a command. A known failure is shown to the user, not raised."""
    typed = parse(line)
    if typed is None:
        return False
    try:
        own = custom.load(context.settings.home, context.workdir) if typed[0] not in BY_NAME else {}
        if typed[0] in own:
            await context.say((Text(own[typed[0]].expand(typed[1])),))
            return True
        found = await skills.usable(context) if typed[0] not in BY_NAME else {}
        if typed[0] in found:
            await skills.use(context, found, *typed)
            return True
        command = find(typed[0], [*own, *found])
        if typed[1] and not command.usage and command.name not in IGNORES_ARGUMENTS:
            raise Invalid(f"/{command.name} takes no arguments; got {typed[1]!r}")
        await command.handler(context, typed[1])
    except HoldfastError as e:
        context.show(f"! {e}")
    return True
