"""Lets the model find facts that were saved in this session or earlier ones."""

from holdfast.model.errors import Invalid
from holdfast.model.finding import Finding
from holdfast.model.memory.fact import describe_fact
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.tools.spec import load_spec

MAX_CHARS = 12_000


class RecallMemoryTool:
    repeatable = True
    spec = load_spec("recall_memory", {"query": {"type": "string", "description": "Words to search for."}}, ("query",))

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return ()

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        query = str(arguments["query"])
        if context.host is None:
            return ToolOutput.say("There is no memory here.", ok=False)
        if not query.strip():
            return ToolOutput.say("the query is empty: give at least one word", ok=False)
        try:
            facts = await context.host.find_facts(query)
        except Invalid as e:
            return ToolOutput.say(f"Not searched: {e}.", ok=False)
        lines = [describe_fact(fact, with_place=True) for fact in facts]
        while sum(map(len, lines)) > MAX_CHARS:
            lines.pop()
        return ToolOutput.say("\n".join(lines) or f"No remembered fact matches {query!r}.")
