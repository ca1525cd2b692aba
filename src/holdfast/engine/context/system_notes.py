"""Notes for the model that are not messages: the permission mode, how background processes ended, what still runs after a reset.

A note appears where its event is in the log, marked as coming from Holdfast; never between a call and its result, so it
waits until all results are there. It depends on the log alone, so its position never changes.
"""

from collections.abc import Iterator

from holdfast.model.delegation import describe_end
from holdfast.model.entry import Entry
from holdfast.model.event import (
    ChildEnded,
    Compacted,
    ContainerLost,
    ContainerRemoved,
    ContainerRestarted,
    Event,
    FilesRestored,
    Forked,
    GoalChecked,
    GoalEnded,
    GoalSet,
    ModeChanged,
    ModelSaid,
    ProcessEnded,
    ProcessesReceived,
    ProcessExpired,
    Renewed,
    Rewound,
    SessionOpened,
    ToolEnded,
)
from holdfast.model.message import Message, Text, ToolCall
from holdfast.model.mode import model_note
from holdfast.model.process import duration
from holdfast.model.sanitize import one_line

NOTE_PREFIX = "Note from the system, not from the user"
BY_THE_AGENT = "ended by the agent"
"""The prefix of the end reason if the model itself ended the process: no note is needed."""
NOTE_EVENTS = {
    *(ModelSaid, ToolEnded, Rewound, ProcessEnded, ProcessExpired, ProcessesReceived, Renewed),
    *(ContainerRestarted, ContainerLost, ContainerRemoved, ChildEnded),
    *(SessionOpened, Forked, Compacted, ModeChanged, FilesRestored),
    *(GoalSet, GoalChecked, GoalEnded),
}
"""Events that produce a note or for which a pending note waits."""


def note_of(entry: Entry) -> str | None:
    """The note of an event, if it has one."""
    event = entry.event
    text = _about_mode(event) or _about_goal(event) or _about_processes(event) or _about_rest(event)
    return f"[{NOTE_PREFIX}: {text}]" if text else None


def _about_mode(event: Event) -> str:
    match event:
        case SessionOpened() | Compacted():
            return model_note(event.mode)
        case Forked():
            return "" if event.mode is None else model_note(event.mode)
        case ModeChanged():
            return model_note(event.mode, event.previous)
        case _:
            return ""


def _about_goal(event: Event) -> str:
    match event:
        case GoalSet():
            return (
                "the next message of the user is the goal of this session. After each of your turns a check "
                "decides whether it is reached, and you are told to continue if it is not. Say clearly when it is reached, "
                "with the result that shows it, or when you cannot go on without the user."
            )
        case GoalChecked() if event.text:
            said = f"\nThe check of the last turn says: {event.reason}" if event.reason else ""
            return (
                "the goal that the user set is not reached yet. Continue with it; do not only report what "
                f"you would do.\nThe goal: {event.text}{said}"
            )
        case GoalEnded(outcome="cleared"):
            return "the user has cleared the goal. Do not continue with it."
        case _:
            return ""


def _about_processes(event: Event) -> str:
    match event:
        case ProcessEnded() if not event.reason.startswith(BY_THE_AGENT):
            tail = f" The end of its output:\n{event.tail}" if event.tail else " It had no output."
            return f"background process {event.process_id} (`{event.command}`) ended: {event.reason}.{tail}"
        case ProcessExpired():
            return (
                f"background process {event.process_id} (`{event.command}`) still runs after "
                f"{duration(event.ttl_seconds)}, its time to live: {event.evidence}. End it if it is not needed."
            )
        case ProcessesReceived():
            return f"background processes {', '.join(event.processes)} belong to this session now."
        case ContainerRestarted():
            return f"the container of the terminal was started again: {event.reason}."
        case ContainerLost():
            return (
                f"the container of the terminal was lost ({event.reason}). Programs and files that were "
                "only in it are gone; a new container replaces it. The working directory is kept."
            )
        case ContainerRemoved():
            return (
                f"the container of the terminal was removed: {event.reason}. Programs and files that "
                "were only in it are gone. The working directory is kept."
            )
        case _:
            return ""


def _about_rest(event: Event) -> str:
    """Resets, restored files and delegated tasks."""
    match event:
        case Renewed() if event.processes:
            return (
                f"this session replaced {event.previous_id} ({event.reason}). Background processes of "
                f"that one may still run: {', '.join(event.processes)}. The process tool lists them with all=true."
            )
        case FilesRestored() if not event.conversation:
            return (
                f"the user restored these files to their content after event {event.to_seq}: "
                f"{', '.join(map(one_line, event.files))}. Read them again before you edit them."
            )
        case ChildEnded():
            end = describe_end(event.child_id, event.outcome, event.reason, event.text)
            return f"the task {event.title!r} that you delegated has ended. {end}"
        case _:
            return ""


class PendingNotes:
    """Notes that wait for the results of calls."""

    def __init__(self) -> None:
        self._pending_calls: set[str] = set()
        self._waiting: list[tuple[Entry, str]] = []

    def after(self, entry: Entry, last: Message | None) -> Iterator[Message]:
        """The notes that follow an event; `last` is the message before them."""
        event = entry.event
        if isinstance(event, ModelSaid):
            self._pending_calls = {part.id for part in event.parts if isinstance(part, ToolCall)}
        elif isinstance(event, ToolEnded):
            self._pending_calls.discard(event.call_id)
        elif isinstance(event, Rewound):
            self._pending_calls.clear()
            self._waiting = [(one, text) for one, text in self._waiting if one.seq <= event.to_seq]
        elif (text := note_of(entry)) is not None:
            self._waiting.append((entry, text))
        if self._pending_calls:
            return
        for one, text in self._waiting:
            seq, turn_id = (one.seq, "") if last is None else (max(one.seq, last.seq), last.turn_id)
            yield Message(seq, "user", (Text(text),), one.at, turn_id=turn_id)
        self._waiting = []
