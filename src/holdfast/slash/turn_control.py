"""Slash commands that rewind, stop and compact. Each is an event; the log keeps everything."""

from holdfast.model.event import CompactionFailed
from holdfast.model.message import Text, typed_text
from holdfast.model.sanitize import one_line
from holdfast.model.text import counted, truncate
from holdfast.slash.context import CommandContext, require_session
from holdfast.slash.format import parse_number

SHOWN = 60


async def undo(context: CommandContext, rest: str) -> None:
    """Undo the latest exchanges."""
    rewound = await context.engine.rewinds.undo_turns(
        require_session(context), count=parse_number(rest, "a number of exchanges", 1)
    )
    text = typed_text(rewound.parts)
    short = truncate(one_line(text), SHOWN)
    again = " Your message is back in the input line." if context.take_back(rewound.parts) else ""
    context.show(f"Undid {counted(rewound.messages, 'message')}, starting with “{short}”.{again}")


async def retry(context: CommandContext, rest: str) -> None:
    """Discard the last reply and send the message again, with the added text."""
    back = await context.engine.rewinds.plan_turns(require_session(context), why="retry")
    more = (Text(f"\n\n{rest}"),) if rest else ()
    await context.say((*back.parts, *more), instead=back)


async def stop(context: CommandContext, rest: str) -> None:
    """Stop the running turn. Its messages are kept."""
    stopped = await context.engine.interrupt(require_session(context))
    context.show("Stopping the turn." if stopped else "No turn is running.")


async def compact(context: CommandContext, rest: str) -> None:
    """Compact the context now, with an optional focus; `undo` reverts the last compaction."""
    session_id = require_session(context)
    if rest == "undo":
        undone = await context.engine.undo_compaction(session_id)
        context.confirm(f"Undid the compaction (epoch {undone.epoch}).")
        return
    context.show("Compacting …")
    event = await context.engine.compact(session_id, rest)
    if isinstance(event, CompactionFailed):
        context.confirm(f"! compaction failed: {event.reason}")
        return
    before, after = f"{event.tokens_before:,}", f"{event.tokens_after:,}"
    context.confirm(f"Compacted: about {before} → {after} tokens. The log is unchanged. /compact undo reverts it.")
