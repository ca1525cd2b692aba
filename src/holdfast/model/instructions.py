"""The parts of the system text besides a client's own: the built-in text, project rules, skills, memory, environment.

Each part is recorded in the log when it is first used and when it changes. What the model is told is built from the
log alone, so a resumed session and a replay get the same bytes.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import get_args

import msgspec

from holdfast.model.event import InstructionPart, InstructionsLoaded, InstructionSource

PARTS: tuple[InstructionPart, ...] = get_args(InstructionPart)
"""In the order in which the model is shown them: what changes most often comes last."""
SKILL_TOOL = "skill"
"""The tool with which the model loads a listed skill."""
Recorded = Mapping[InstructionPart, InstructionsLoaded]


class LoadedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part as it is now."""

    part: InstructionPart
    text: str
    sources: tuple[InstructionSource, ...] = ()
    notices: tuple[str, ...] = ()


class InstructionsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The turn that is about to begin."""

    session_id: str
    turn_id: str
    recorded: Recorded
    """The newest recorded event of each part."""
    has_own_system: bool
    """Whether a client's system text replaces the built-in one."""
    epoch: int = 0
    memory_owner: str = ""
    """Whose remembered facts the turn may use; empty for nobody's."""
    summarized_upto: int = 0
    """The last event that a summary has replaced."""
    topic: str = ""
    """The first words of the session."""


LoadInstructions = Callable[[InstructionsRequest], Awaitable[list[InstructionsLoaded]]]
"""Returns the events of the parts that have changed, or are new. Never raises for a file that cannot be read."""


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def changed_parts(turn_id: str, recorded: Recorded, loaded: list[LoadedPart]) -> list[InstructionsLoaded]:
    """The events to commit before the turn: the parts whose text or sources differ from what is recorded."""
    events: list[InstructionsLoaded] = []
    for one in loaded:
        before = recorded.get(one.part)
        if before is None and not one.text and not one.notices:
            continue
        if before is not None and (before.text, before.sources) == (one.text, one.sources):
            continue
        events.append(
            InstructionsLoaded(
                turn_id=turn_id,
                part=one.part,
                text=one.text,
                sha256=hash_text(one.text),
                sources=one.sources,
                notices=one.notices,
            )
        )
    return events
