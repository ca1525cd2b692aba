"""Lets the model keep a plan of its work, which the person sees and a compaction preserves."""

import msgspec

from holdfast.model.finding import Finding
from holdfast.model.plan import PlanItem, progress
from holdfast.model.session import collapse_line
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.tools.spec import load_spec

MAX_ITEMS = 30
MAX_CHARS = 200
"""Characters of a step. Both limits keep the plan small enough to be shown with every summary."""


class TodoTool:
    repeatable = True
    spec = load_spec(
        "todo",
        {
            "items": {
                "type": "array",
                "description": f"All steps, in order; at most {MAX_ITEMS}.",
                "items": {
                    "type": "object",
                    "properties": {
                        "content": {"type": "string", "description": "What to do, in one short line."},
                        "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                    },
                    "required": ["content", "status"],
                    "additionalProperties": False,
                },
            }
        },
        ("items",),
    )

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return ()

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        given = msgspec.convert(arguments["items"], tuple[PlanItem, ...])
        items = tuple(msgspec.structs.replace(item, content=collapse_line(item.content)) for item in given)
        if problem := _find_problem(items):
            return ToolOutput.say(f"The plan was not changed: {problem}.", ok=False)
        text = f"The plan is saved: {progress(items)}." if items else "The plan is removed."
        return msgspec.structs.replace(ToolOutput.say(text), plan=items)


def _find_problem(items: tuple[PlanItem, ...]) -> str:
    """What makes the list unusable; empty if nothing does."""
    if len(items) > MAX_ITEMS:
        return f"it has {len(items)} steps, and at most {MAX_ITEMS} are allowed; combine some"
    for number, item in enumerate(items, 1):
        if not item.content:
            return f"step {number} has no text"
        if len(item.content) > MAX_CHARS:
            return f"step {number} has {len(item.content)} characters, and at most {MAX_CHARS} are allowed"
    return ""
