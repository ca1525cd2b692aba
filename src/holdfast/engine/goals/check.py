"""The check of a goal: one call of a model that reads the end of the conversation. Acts on nothing.

The answer is untrusted: it is parsed strictly, and anything else counts as a failed check.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.engine.compaction.transcript import format_message
from holdfast.engine.context.truncate import omit_middle
from holdfast.engine.goals.decide import GoalVerdict
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.loop import TurnSettings
from holdfast.engine.turn.whole_reply import ask_for_reply
from holdfast.model.errors import BadReply, BudgetExceeded, HoldfastError, Unavailable
from holdfast.model.goal import Goal
from holdfast.model.message import Message, Text, text_of
from holdfast.model.plan import PlanItem, checklist
from holdfast.model.provider import ModelRequest

INSTRUCTIONS = (Path(__file__).parent / "check.md").read_text("utf-8")
SYSTEM = "You judge the work of an agent, strictly and briefly."
DASHES = "-" * 20
TIMEOUT_SECONDS = 120.0
MOST_MESSAGES = 40
MOST_CHARS = 24_000
"""Characters of the conversation that the model gets, from the end."""
MESSAGE_CHARS = 4_000
REPLY_TOKENS = 2_000
"""Some models reason before they answer."""
TEXT_CHARS = 1_000
"""Characters of the reason and of the evidence that are kept."""
OBJECT = re.compile(r"\{.*\}", re.DOTALL)


class _Answer(msgspec.Struct):
    decision: str
    reason: str = ""
    evidence: str = ""


async def check_goal(
    active: ActiveSession, settings: TurnSettings, goal: Goal, plan: Sequence[PlanItem]
) -> GoalVerdict:
    """Ask the model. Every failure of it is a verdict, too; failures of the store propagate."""
    checking = settings.goal_check
    assert checking is not None, "only a session with these settings is checked"
    model = checking.model
    request = ModelRequest(
        model=model,
        system=SYSTEM,
        messages=(Message(1, "user", (Text(prompt(goal, plan, active.context.view)),), 0),),
        max_tokens=REPLY_TOKENS,
    )
    ask, meter = checking.ask, settings.model_call.meter
    if meter is not None:
        ask = meter.recording(ask, active.id, "goal", has_goal=True)
    try:
        reply = await ask_for_reply(ask, request, seconds=TIMEOUT_SECONDS)
        return msgspec.structs.replace(parse(text_of(reply.parts)), model=model)
    except BudgetExceeded as e:
        return GoalVerdict("failed", str(e), model=model, final=True)
    except Unavailable:
        raise
    except HoldfastError as e:
        return GoalVerdict("failed", str(e)[:TEXT_CHARS], model=model)


def prompt(goal: Goal, plan: Sequence[PlanItem], shown: Sequence[Message]) -> str:
    """The request for the model: instructions, the goal, the plan and the end of the conversation."""
    instructions = INSTRUCTIONS.format(turns=goal.turns, max_turns=goal.max_turns)
    before = f"The check before this one said: {goal.reason}\n\n" if goal.decision == "continue" else ""
    steps = f"The agent's plan:\n{checklist(plan)}\n\n" if plan else ""
    return (
        f"{instructions.strip()}\n\n{DASHES}\nThe goal:\n{goal.text}\n\n{steps}{before}"
        f"The end of the conversation:\n{_end_of(shown)}\n{DASHES}\n\nAnswer with the JSON object."
    )


def _end_of(shown: Sequence[Message]) -> str:
    lines: list[str] = []
    left = MOST_CHARS
    for message in reversed(shown[-MOST_MESSAGES:]):
        line = format_message(message)
        line = line if len(line) <= MESSAGE_CHARS else omit_middle(line, MESSAGE_CHARS, MESSAGE_CHARS // 2)
        left -= len(line)
        if left < 0 and lines:
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def parse(text: str) -> GoalVerdict:
    """The verdict in a reply. Raises BadReply for anything but one clear decision."""
    found = OBJECT.search(text)
    try:
        answer = msgspec.convert(json.loads(found[0] if found else text), _Answer)
    except (ValueError, RecursionError, msgspec.ValidationError) as e:
        raise BadReply(f"the check gave no decision; it answered {text.strip()[:200]!r}") from e
    decision = answer.decision.strip().lower()
    reason, evidence = answer.reason.strip()[:TEXT_CHARS], answer.evidence.strip()[:TEXT_CHARS]
    match decision:
        case "done" | "continue" | "stuck":
            return GoalVerdict(decision, reason, evidence)
        case _:
            raise BadReply(f"the check gave an unknown decision: {answer.decision[:100]!r}")
