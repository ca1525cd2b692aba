"""What counts as an approval, what as a refusal, and what as neither."""

import pytest

from holdfast.model.answer import Answer, parse_answer

ALLOWS = [
    *("y", "Y", "yes", "Yes", "YES", "yes.", "yes!", " yes ", "yep", "yeah", "yup", "ok", "OK", "okay", "Ok.", "sure"),
    *("allow", "Allow", "allowed", "approve", "approved", "proceed", "yes please", "Yes, please.", "yes, go ahead"),
    *(
        "go ahead",
        "Go ahead!",
        "sure, go ahead",
        "ok go ahead",
        "okay, do it",
        "do it",
        "Do it.",
        "run it",
        "yes, do it",
    ),
    *("yes yes", "y please", "ok, run it", "allow it", "allow this", "approve it", "allow once", "yes, just once"),
    *("please do", "please go ahead", "of course", "yes, of course", "go on", "absolutely", "confirm", "i agree"),
    *("yes run the command", "allow the command please", "yes, do that now"),
]
KEEPS = {
    "session": ("session", "exact"),
    "for this session": ("session", "exact"),
    "yes, for this session": ("session", "exact"),
    "allow for this session": ("session", "exact"),
    "allow it for the session": ("session", "exact"),
    "always": ("always", "exact"),
    "Always.": ("always", "exact"),
    "yes always": ("always", "exact"),
    "yes, always": ("always", "exact"),
    "allow always": ("always", "exact"),
    "always allow": ("always", "exact"),
    "always allow this": ("always", "exact"),
    "always allow this command": ("always", "exact"),
    "always prefix": ("always", "prefix"),
    "allow always prefix": ("always", "prefix"),
    "always tool": ("always", "tool"),
    "session tool": ("session", "tool"),
}
DENIES = {
    "n": "",
    "N": "",
    "no": "",
    "No.": "",
    "no!": "",
    "nope": "",
    "nah": "",
    "deny": "",
    "denied": "",
    "reject": "",
    "refuse": "",
    "no, because it is mine": "because it is mine",
    "no because it is mine": "because it is mine",
    "no: use the other directory": "use the other directory",
    "no - ask Bob first": "ask Bob first",
    "no use mv instead": "use mv instead",
    "n not today": "not today",
    "deny: too dangerous": "too dangerous",
    "no, yes I mean no": "yes I mean no",
    "No thanks": "thanks",
    "don't": "don't",
    "don\u2019t do that": "don\u2019t do that",
    "never": "never",
    "no\nuse mv": "use mv",
}
NEITHER = [
    *(
        "",
        " ",
        "?",
        "what does it do?",
        "yes but only the first file",
        "yes, but carefully",
        "ok wait",
        "ok no",
        "yes no",
    ),
    *("yesterday I deleted it", "okay-ish", "why", "maybe", "use the other directory", "not yet", "wait", "hello"),
    *("no problem", "no problem, go ahead", "no worries", "no idea what that is", "no need to ask", "no objections"),
    *("k", "yes?", "is it ok", "please", "it is fine", "allow rm", "always rm -rf /", "allow all", "yes to all"),
    *(
        "always no",
        "session no",
        "y n",
        "1",
        "true",
        "okay then let me think",
        "sure, after lunch",
        "run",
        "please don't",
    ),
    *(
        "yes\nand then delete the rest",
        "approve only the first",
        "go",
        "ahead",
        "ok thanks for the report",
        "do not do it",
    ),
    *("normal", "nothing", "notes", "noon", "oksana", "allowance", "yes if the tests pass", "continue"),
]


@pytest.mark.parametrize("text", ALLOWS)
def test_an_approval_in_plain_english_allows_once(text: str) -> None:
    assert parse_answer(text) == Answer(allowed=True)


@pytest.mark.parametrize("text", KEEPS)
def test_an_approval_can_last_longer(text: str) -> None:
    scope, match = KEEPS[text]

    assert parse_answer(text) == Answer(allowed=True, scope=scope, match=match)  # type: ignore[arg-type] # as listed


@pytest.mark.parametrize("text", DENIES)
def test_a_refusal_includes_its_reason(text: str) -> None:
    assert parse_answer(text) == Answer(allowed=False, reason=DENIES[text])


@pytest.mark.parametrize("text", NEITHER)
def test_anything_else_is_no_answer(text: str) -> None:
    assert parse_answer(text) is None
