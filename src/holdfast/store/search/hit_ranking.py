"""Orders hits: how well a text matches a query, and how recent it is. Pure."""

from collections.abc import Sequence

from holdfast.store.search.trigrams import SearchTerm

WHOLE_WORD, WORD_START, TYPO = 2.0, 1.0, -1.5
AS_TYPED = 0.5
"""For a term with the same capitals and accents."""
IN_ORDER = 1.5
"""For several terms that stand together as in the query."""
TITLE, TOOL_OUTPUT = 1.5, -0.5
SHORT_TEXT = 0.5
SHORT = 300
"""Characters of a text that counts as short."""
RECENT = 1.5
HALF_LIFE_MICROS = 30 * 86_400 * 1_000_000
LOOKED_AT = 20
"""Occurrences of a term that are looked at."""
BY_KIND = {"titled": TITLE, "session_opened": TITLE, "tool_ended": TOOL_OUTPUT}


def relevance(text: str, folded: str, kind: str, wanted: Sequence[SearchTerm]) -> float:
    """How well the text matches; it contains all terms."""
    score = sum(_rate(term, text, folded) for term in wanted) / len(wanted)
    if len(wanted) > 1 and " ".join(term.forms[0] for term in wanted) in folded:
        score += IN_ORDER
    return score + BY_KIND.get(kind, 0.0) + SHORT_TEXT * min(1.0, SHORT / max(1, len(folded)))


def recency(at: int, newest: int) -> float:
    """What the time of a hit adds; `newest` is that of the newest hit."""
    return float(RECENT * 0.5 ** ((newest - at) / HALF_LIFE_MICROS))


def _rate(term: SearchTerm, text: str, folded: str) -> float:
    found = [_place(form, folded) for form in term.forms if form in folded]
    if not found:
        return TYPO
    return max(found) + (AS_TYPED if term.typed and term.typed in text else 0.0)


def _place(form: str, folded: str) -> float:
    """Whether it is a word, the start of one, or a part of one."""
    best, at = 0.0, folded.find(form)
    for _ in range(LOOKED_AT):
        if at < 0 or best == WHOLE_WORD:
            break
        if at == 0 or not (folded[at - 1].isalnum() and form[0].isalnum()):
            end = at + len(form)
            is_whole = end == len(folded) or not (folded[end].isalnum() and form[-1].isalnum())
            best = WHOLE_WORD if is_whole else WORD_START
        at = folded.find(form, at + 1)
    return best
