"""Permission modes: what the tool calls of a session may do without asking. Pure.

From the least to the most permissive: `plan` (read only), `ask` (ask before every change), `edits` (change files without
asking, ask before risky calls), `trusted` (ask before nothing but access to Holdfast's own files).
"""

from typing import Literal, get_args

from holdfast.model.errors import Invalid

Mode = Literal["plan", "ask", "edits", "trusted"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""From the least to the most permissive."""
DEFAULT_MODE: Mode = "edits"
MODE_HELP: dict[Mode, str] = {
    "ask": "asks before every change and every command that may change something",
    "edits": "changes files without asking; asks before risky calls",
    "plan": "reads only: changes nothing",
    "trusted": "runs every call without asking, except on Holdfast's own files",
}
LOCAL_USER = "local user"
"""`ModeChanged.by` for the user of this machine."""
_CYCLE: tuple[Mode, ...] = ("edits", "plan", "ask")


def least_permissive(first: Mode, *others: Mode) -> Mode:
    """The mode that allows the least. A sub-agent runs with that of its own mode and the modes of its ancestors."""
    return min((first, *others), key=MODES.index)


def next_mode(mode: Mode) -> Mode:
    """The mode after this one for a key that cycles through them. `trusted` must be chosen by name."""
    return _CYCLE[(_CYCLE.index(mode) + 1) % len(_CYCLE)] if mode in _CYCLE else "ask"


def parse_mode(text: str) -> Mode:
    """The mode of that name. Raises Invalid."""
    for mode in MODES:
        if mode == text.strip().lower():
            return mode
    raise Invalid(f"unknown permission mode {text!r}; use {', '.join(MODES[:-1])} or {MODES[-1]}")


def model_note(mode: Mode, previous: Mode | None = None) -> str:
    """What the model is told about the mode, which was `previous` before; empty if there is nothing to say."""
    if mode == "plan":
        return (
            "This session is in plan mode, which is read-only: calls that change files or run commands that can change "
            "anything are not run. Explore, then present a plan, and wait for the user to leave plan mode."
        )
    told = {
        "ask": "The permission mode is now ask: the user is asked before every change and every command that may change something.",
        "edits": "The permission mode is now edits: files may be changed without asking; risky calls ask the user.",
        "trusted": "The permission mode is now trusted: calls run without asking the user.",
    }[mode]
    if previous == "plan":
        return f"Plan mode has ended; changes may be made. {told}"
    return "" if previous is None and mode == DEFAULT_MODE else told
