"""Parses a person's reply to a question: an approval, a refusal, the values of a form, or none of them. Pure."""

import json
import re
import shlex

import msgspec

from holdfast.model.answer import Answer, parse_answer
from holdfast.model.approval import Proposal
from holdfast.model.errors import Invalid
from holdfast.model.form_fields import Schema, fields, fill

USAGE = "name=value pairs, JSON, yes for the defaults, or no"


def parse_reply(proposal: Proposal, text: str) -> Answer | None:
    """The answer in what a person typed; None if it is not clearly one. The values of a form are not checked yet."""
    if not proposal.form:
        return parse_answer(text)
    plain, known = text.strip(), fields(proposal.form)
    given = _values(plain, known)
    if given is not None:
        return Answer(allowed=True, content=json.dumps(given))
    agreed = parse_answer(plain)
    if agreed is not None and not agreed.allowed:
        return Answer(allowed=False, reason=agreed.reason)
    if len(known) == 1 and plain and (agreed is None or "default" not in next(iter(known.values()))):
        ((name, schema),) = known.items()
        return Answer(allowed=True, content=json.dumps({name: _value(plain, schema)}))
    return None if agreed is None else Answer(allowed=True, content="{}")


def require_reply(proposal: Proposal, text: str) -> Answer:
    """The answer in what a person typed. Raises Invalid if it is not clearly one."""
    answer = parse_reply(proposal, text)
    if answer is None:
        known = USAGE if proposal.form else "yes, no, session, always, 'always prefix' or 'always tool'"
        raise Invalid(f"{text!r} is not an answer; use {known}. The question is still open")
    return answer


def complete_answer(proposal: Proposal, answer: Answer) -> Answer:
    """The answer with all values of the form. Raises Invalid if they do not fit the form."""
    if not answer.allowed or not proposal.form:
        return answer if not answer.content else msgspec.structs.replace(answer, content="")
    try:
        given = json.loads(answer.content or "{}")
    except ValueError as e:
        raise Invalid(f"the answer is not JSON: {e}") from e
    if not isinstance(given, dict):
        raise Invalid("the answer must be a JSON object with the fields of the form")
    return msgspec.structs.replace(answer, content=json.dumps(fill(proposal.form, given)))


def _values(text: str, known: dict[str, Schema]) -> dict[str, object] | None:
    """The values in JSON or in `name=value` pairs; None if the text is neither."""
    try:
        if text.startswith("{"):
            found = json.loads(text)
            return found if isinstance(found, dict) else None
        words = shlex.split(text)
    except ValueError:
        return None
    if not words or not all(re.match(r"[^\s=]+=", word) for word in words):
        return None
    pairs = (word.partition("=") for word in words)
    return {name: _value(value, known.get(name, {})) for name, _, value in pairs}


def _value(text: str, schema: Schema) -> object:
    """What the text means for this field; the text itself if it does not fit, so that the check can name it."""
    kind = schema.get("type")
    if kind == "boolean" and (agreed := parse_answer(text)) is not None:
        return agreed.allowed
    if kind == "array":
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind in ("number", "integer", "boolean"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
