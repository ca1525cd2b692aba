"""Lets the model save a fact for later sessions."""

from typing import Literal

import msgspec

from holdfast.model.errors import Conflict, Invalid, NotFound
from holdfast.model.finding import Finding
from holdfast.model.memory.fact import MAX_FACT, SCOPES, FactRequest, MemoryScope, parse_fact_id
from holdfast.model.tool import Preview, ToolContext, ToolOutput
from holdfast.tools.spec import load_spec

TOLD_TO_EVERYBODY = Finding("the fact will be told to the model in the sessions of every user of this installation")


class RememberArguments(msgspec.Struct, frozen=True):
    fact: str
    scope: MemoryScope = "user"
    replaces: str = ""


class RememberTool:
    """A call may run again after a crash: it finds the fact that it has saved."""

    repeatable = True
    spec = load_spec(
        "remember",
        {
            "fact": {"type": "string", "description": f"One sentence of at most {MAX_FACT:,} characters."},
            "scope": {"type": "string", "enum": list(SCOPES), "description": "Whose fact it is."},
            "replaces": {"type": "string", "description": "The id of the fact that it corrects."},
        },
        ("fact",),
    )

    def effect(self, arguments: dict[str, object], context: ToolContext) -> Literal["edit"]:
        """A lasting change that is easy to take back, like that of a file."""
        return "edit"

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return (TOLD_TO_EVERYBODY,) if arguments.get("scope") == "global" else ()

    async def preview(self, arguments: dict[str, object], context: ToolContext) -> Preview:
        """Raise Invalid before anybody is asked to approve a fact that cannot be saved."""
        try:
            if context.host is not None:
                await context.host.check_fact(_request(arguments))
        except (Invalid, NotFound) as e:
            raise Invalid(_not_saved(e)) from e
        return Preview()

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        if context.host is None:
            return ToolOutput.say("Not saved: there is no memory here.", ok=False)
        try:
            fact = await context.host.remember(_request(arguments))
        except (Invalid, NotFound, Conflict) as e:
            return ToolOutput.say(_not_saved(e), ok=False)
        text = f"Saved as {fact.id} with the scope {fact.scope}. The user can see and change it with /memory."
        if fact.sources:
            text += f" It is marked as unverified, because the context has content of: {', '.join(fact.sources)}."
        return ToolOutput.say(text)


def _request(arguments: dict[str, object]) -> FactRequest:
    """What the call asks to remember. Raises NotFound for a malformed id."""
    parsed = msgspec.convert(arguments, RememberArguments)
    replaces = parse_fact_id(parsed.replaces) if parsed.replaces.strip() else None
    return FactRequest(text=parsed.fact, scope=parsed.scope, replaces=replaces)


def _not_saved(error: Exception) -> str:
    return f"Not saved: {error}."
