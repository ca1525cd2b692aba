"""Every slash command there is, and the one way to run what was typed. Help and completion are read off this table."""

import difflib
import re
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.model.errors import HoldfastError, Invalid
from holdfast.slash import about, going, looking, taking
from holdfast.slash.seat import Seat

Handler = Callable[[Seat, str], Awaitable[None]]
TYPED = re.compile(r"/([A-Za-z?][\w-]*)(?:\s+(.*))?\s*", re.DOTALL)
"""A command: a slash and a word. A path has more slashes, and is words like any other."""
NEAREST = 3


class Command(msgspec.Struct, frozen=True):
    """`usage` is what follows the name; `completes` says what kind of thing that is."""

    name: str
    handler: Handler
    help: str
    usage: str = ""
    aliases: tuple[str, ...] = ()
    completes: str = ""


COMMANDS = (
    Command("new", going.new, "end this session and begin another with your next words", "[stop|keep|move] [TITLE]"),
    Command("undo-reset", going.undo_reset, "go back to the session that a reset put aside, within a day"),
    Command("resume", going.resume, "take up another session; without a REF, choose one", "[REF]", completes="session"),
    Command("sessions", looking.sessions, "list the sessions used last", "[NUMBER]"),
    Command("fork", going.fork, "go on in a copy of this session, from event SEQ or from here", "[SEQ]", ("branch",)),
    Command("title", about.title, "show or change the title", "[TITLE]"),
    Command("undo", taking.undo, "take back the last exchange, or the last NUMBER; the log keeps it", "[NUMBER]"),
    Command("retry", taking.retry, "take back the last reply and ask again"),
    Command("stop", taking.stop, "end the turn that runs; what was said stays"),
    Command(
        "compact",
        taking.compact,
        "shorten what the model is shown, minding what you name; the log stays whole",
        "[WHAT MATTERS | undo]",
    ),
    Command("recall", looking.recall, "read events of this session, or find words in it", "FROM[-TO] | WORDS"),
    Command("show", looking.show, "show a message in full, a tool's output too", "SEQ"),
    Command("ps", about.ps, "background processes of this session"),
    Command("kill", about.kill, "end a background process", "ID"),
    Command("why", about.why, "why this session is as it is, and what comes next"),
    Command("status", about.status, "this session in figures"),
    Command("model", about.model, "show or change the model", "[PROVIDER:NAME]"),
    Command(
        "busy", about.busy, "what becomes of words typed during a turn", "[queue|steer|interrupt]", completes="busy"
    ),
    Command("search", looking.search, "find words in everything that was ever said", "WORDS"),
    Command("export", looking.export, "write this session to a file", "[md|html|jsonl] [FILE]", completes="export"),
    Command("takeover", going.takeover, "make this terminal the one that has the session open"),
    Command("help", about.help_, "list the commands, or explain one", "[COMMAND]", ("?",), completes="command"),
    Command("quit", going.quit_, "leave; everything is kept", "", ("exit",)),
)
BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


def parse(line: str) -> tuple[str, str] | None:
    """The command's name and what follows it; None if the line is not a command but words."""
    found = TYPED.fullmatch(line.strip())
    return None if found is None else (found[1].lower(), (found[2] or "").strip())


def find(name: str) -> Command:
    """The command of that name. Raises Invalid with the nearest names."""
    command = BY_NAME.get(name)
    if command is not None:
        return command
    near = difflib.get_close_matches(name, BY_NAME, NEAREST, 0.5)
    near += [one for one in BY_NAME if one.startswith(name) and one not in near]
    said = f"did you mean {' or '.join('/' + one for one in near[:NEAREST])}?" if near else "/help lists them all."
    raise Invalid(f"there is no command /{name}; {said}")


async def run(seat: Seat, line: str) -> bool:
    """Do what the line asks for; False if it is no command. A failure we can name is told to the person, not raised."""
    typed = parse(line)
    if typed is None:
        return False
    try:
        await find(typed[0]).handler(seat, typed[1])
    except HoldfastError as e:
        seat.tell(f"! {e}")
    return True
