"""Lets the model delegate a task to a child session."""

import msgspec

from holdfast.model.delegation import DelegationRequest, completion_text
from holdfast.model.errors import Invalid
from holdfast.model.finding import Finding
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.tools.spec import load_spec

LIMIT: dict[str, object] = {"type": "integer", "minimum": 1}
LIMITS: dict[str, object] = {
    "type": "object",
    "properties": {"steps": LIMIT, "seconds": LIMIT, "tokens": LIMIT},
    "additionalProperties": False,
    "description": "When to stop the sub-agent.",
}


class TaskLimits(msgspec.Struct, frozen=True):
    steps: int = 0
    seconds: int = 0
    tokens: int = 0


class DelegateArguments(msgspec.Struct, frozen=True):
    task: str
    model: str = ""
    tools: list[str] | None = None
    background: bool = False
    limits: TaskLimits = TaskLimits()


class DelegateTool:
    """A call may run again after a crash: it finds the child session that it has started."""

    repeatable = True
    spec = load_spec(
        "delegate",
        {
            "task": {"type": "string", "description": "What to do, with all that is needed for it."},
            "model": {"type": "string", "description": "The model, as provider:name."},
            "tools": {"type": "array", "items": {"type": "string"}, "description": "The tools that it may use."},
            "background": {"type": "boolean", "description": "Return at once; the result arrives as a note."},
            "limits": LIMITS,
        },
        ("task",),
    )

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        """None: every call of the sub-agent is checked like one of its parent."""
        return ()

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, DelegateArguments)
        if not parsed.task.strip():
            return ToolOutput.say("the task is empty: describe what the sub-agent should do", ok=False)
        if context.host is None:
            return ToolOutput.say("tasks cannot be delegated here. Do the task yourself.", ok=False)
        request = DelegationRequest(
            task=parsed.task,
            model=parsed.model.strip(),
            tools=None if parsed.tools is None else tuple(dict.fromkeys(parsed.tools)),
            background=parsed.background,
            max_steps=parsed.limits.steps,
            max_tokens=parsed.limits.tokens,
            seconds=parsed.limits.seconds,
        )
        try:
            record = await context.host.delegate(request)
        except Invalid as e:
            return ToolOutput.say(f"Not delegated: {e}", ok=False)
        if request.background:
            return ToolOutput.say(f"Sub-agent {record.child_id} was started. Its result will arrive as a note.")
        return ToolOutput.say(completion_text(record), ok=record.outcome == "done")
