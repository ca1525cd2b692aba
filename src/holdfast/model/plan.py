"""The plan of a session: the steps that the model set itself with the tool `todo`."""

from collections.abc import Sequence
from typing import Literal

import msgspec

StepStatus = Literal["pending", "in_progress", "completed"]
MARKS: dict[StepStatus, str] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class PlanItem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One step of a plan."""

    content: str
    status: StepStatus = "pending"


def checklist(items: Sequence[PlanItem]) -> str:
    """The plan as text, one line per step."""
    return "\n".join(f"{MARKS[item.status]} {item.content}" for item in items)


def progress(items: Sequence[PlanItem]) -> str:
    """How many steps are completed, in words."""
    done = sum(item.status == "completed" for item in items)
    return f"{done} of {len(items)} completed"
