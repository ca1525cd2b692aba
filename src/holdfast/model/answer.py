"""Parses a person's reply to an approval question: an approval, a refusal, or neither. Pure."""

import re

import msgspec

from holdfast.model.approval import Match, Scope

YES = frozenset(
    {"y", "yes", "yep", "yeah", "yup", "ok", "okay", "sure", "allow", "allowed", "approve", "approved", "proceed"}
    | {"ja", "oui", "si", "sí", "是", "好"}
)
AGREEING = YES | frozenset(
    {"please", "go", "ahead", "do", "it", "that", "this", "the", "command", "once", "fine", "run", "now", "just"}
)
"""An approval consists of these words only: any other word may be a condition."""
PHRASES = ("go ahead", "do it", "run it", "please do", "please go ahead")
WHOLE = frozenset(
    {"go on", "of course", "i agree", "absolutely", "definitely", "confirm", "confirmed", "yes of course"}
)
SCOPES: dict[str, tuple[Scope, Match]] = {
    "session": ("session", "exact"),
    "for this session": ("session", "exact"),
    "for the session": ("session", "exact"),
    "in this session": ("session", "exact"),
    "session prefix": ("session", "prefix"),
    "session tool": ("session", "tool"),
    "always": ("always", "exact"),
    "always exact": ("always", "exact"),
    "always prefix": ("always", "prefix"),
    "always tool": ("always", "tool"),
}
NO = frozenset(
    {
        "n",
        "no",
        "nope",
        "nah",
        "deny",
        "denied",
        "refuse",
        "reject",
        "dont",
        "don't",
        "never",
        "nein",
        "non",
        "否",
        "不",
    }
)
NOT_A_NO = r"(?i)no\W+(problem|worries|worry|objection|objections|idea|clue|doubt|matter|one|need|rush|more)\b"
"""Phrases that start with `no` but do not refuse."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the call may run, how long the approval lasts, and the reason given to the model for a refusal."""

    allowed: bool
    scope: Scope = "once"
    match: Match = "exact"
    prefix: tuple[str, ...] = ()
    """The words of a prefix rule; empty for the suggested ones."""
    reason: str = ""
    content: str = ""
    """The values of a form, as JSON text."""


def parse_answer(text: str) -> Answer | None:
    """The answer in a line that a person typed; None if it is not clearly an answer."""
    plain = " ".join(re.sub(r"[,.!;:…]+(?=\s|$)", " ", text.strip().lower()).split()).replace("\u2019", "'")
    words = plain.split(" ")
    if not plain:
        return None
    if words[0] in NO:
        return None if re.match(NOT_A_NO, text.strip()) else Answer(allowed=False, reason=_reason(text, words[0]))
    if (kept := _kept(plain)) is not None:
        return kept
    begins = words[0] in YES or plain.startswith(PHRASES)
    agrees = plain in WHOLE or (begins and all(word in AGREEING for word in words))
    return Answer(allowed=True) if agrees else None


def _kept(plain: str) -> Answer | None:
    """An approval for more than one call."""
    rest = re.sub(r"^(yes|y|ok|okay|allow|approve)\s+(it\s+)?", "", plain)
    rest = re.sub(r"^always allow\b", "always", rest)
    rest = re.sub(r"^(always|session) (this|it|this command)$", r"\1", rest)
    found = SCOPES.get(rest)
    return None if found is None else Answer(allowed=True, scope=found[0], match=found[1])


def _reason(text: str, word: str) -> str:
    """The text after the refusal; the whole text if the refusing word is part of the sentence."""
    if word in ("dont", "don't", "never"):
        return text.strip()
    return re.sub(r"^\W+", "", re.sub(r"^\s*\S+?(?=[\s,.!;:…]|$)", "", text, count=1)).strip()
