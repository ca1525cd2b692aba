"""What a question shows, and which calls a rule approves."""

import json

import msgspec
import pytest

from holdfast.model.approval import ApprovalRule, Proposal, describe, pattern_for, suggested_prefix
from holdfast.model.finding import Finding

FORCE = Finding("rewrites what others have", "git push --force")
DELETE = Finding("deletes directories recursively", "rm -rf build")
COMMAND = "rm -rf build; touch X; git push --force"
PUSH = Proposal(
    tool="terminal",
    arguments=json.dumps({"command": "git push --force origin a"}),
    command="git push --force origin a",
    words=("git", "push", "--force", "origin", "a"),
    workdir="/repo",
    requester="local user",
    findings=(FORCE,),
)


def rule(proposal: Proposal = PUSH, **changes: object) -> ApprovalRule:
    match = changes.get("match", "exact")
    values: dict[str, object] = {
        "id": "rule-1",
        "requester": proposal.requester,
        "tool": proposal.tool,
        "match": match,
        "pattern": pattern_for(proposal, match),  # type: ignore[arg-type] # one of the three
        "workdir": proposal.workdir,
        "reasons": tuple(proposal.reasons),
        "session_id": None,
        "created_by": "chat",
        "created_at": 1,
    }
    return ApprovalRule(**{**values, **changes})  # type: ignore[arg-type] # the test names only fields


def push(command: str, **changes: object) -> Proposal:
    """The same call with another command."""
    values = {"command": command, "words": tuple(command.split(" ")), **changes}
    return msgspec.structs.replace(PUSH, **values)


def test_the_question_shows_the_whole_command_every_risk_the_directory_the_requester_and_the_session() -> None:
    text = describe(
        Proposal(tool="terminal", command=COMMAND, workdir="/repo", requester="slack:U1", findings=(DELETE, FORCE)),
        "hf-1",
    )

    assert COMMAND in text
    assert "2 risks:" in text
    assert "`rm -rf build`: deletes directories recursively" in text
    assert "`git push --force`: rewrites what others have" in text
    assert "directory: /repo" in text
    assert "requested by: slack:U1" in text
    assert "session: hf-1" in text


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("\x1b[2K", "\\x1b[2K"),
        ("\r", "\\r"),
        ("\x08", "\\x08"),
        ("\u202e", "\\u202e"),
        ("\u2066", "\\u2066"),
        ("\u200b", "\\u200b"),
        ("\u200d", "\\u200d"),
        ("\u2060", "\\u2060"),
        ("\ufeff", "\\ufeff"),
        ("\u00ad", "\\xad"),
        ("\u00a0", "\\xa0"),
        ("\u3164", "\\u3164"),
        ("\U000e0041", "\\U000e0041"),
        ("\udc80", "\\udc80"),
    ],
)
def test_invisible_characters_are_written_out(hidden: str, shown: str) -> None:
    for proposal in (
        Proposal(tool="terminal", command=f"a{hidden}b"),
        Proposal(tool="write_file", arguments='{"path": "x"}', preview=f"+a{hidden}b\n"),
        Proposal(tool="mcp__x__y", arguments=json.dumps({"name": f"a{hidden}b"})),
    ):
        assert f"a{shown}b" in describe(proposal)
        assert hidden not in describe(proposal)


def test_the_arguments_of_a_call_are_shown_in_full() -> None:
    text = describe(Proposal(tool="mcp__bank__pay", arguments='{"to": "Eve", "amount": 100, "note": "a\\nb"}'))

    assert "to: Eve" in text
    assert "amount: 100" in text
    assert "note: a\n  b" in text


def test_a_long_command_is_cut_only_where_it_says_how_many_lines_follow() -> None:
    proposal = Proposal(tool="terminal", command="\n".join(f"echo {n}" for n in range(100)), findings=(DELETE,))

    short = describe(proposal, max_lines=60, more="v shows all")
    assert "[… 40 more lines; v shows all]" in short
    assert "deletes directories" in short, "no risk is ever left out"
    assert "echo 99" in describe(proposal)


def test_a_rule_approves_the_same_command_and_no_other() -> None:
    exact = rule()

    assert exact.applies_to(PUSH, "hf-1")
    assert not exact.applies_to(push("git push --force origin b"), "hf-1")
    assert not exact.applies_to(push("git push --force origin a "), "hf-1")
    assert not exact.applies_to(push(PUSH.command, workdir="/other"), "hf-1")


def test_a_prefix_rule_approves_simple_commands_that_begin_with_its_words() -> None:
    prefix = rule(match="prefix")

    assert suggested_prefix(PUSH) == ("git", "push", "--force", "origin")
    assert prefix.applies_to(push("git push --force origin b"), "hf-1")
    assert not prefix.applies_to(push("git push --force"), "hf-1")
    assert not prefix.applies_to(push("git push --force originX"), "hf-1")


@pytest.mark.parametrize(
    "command",
    ["git push --force origin a; rm -rf /", "git push --force origin $(id)", "git push --force origin a > ~/.bashrc"],
)
def test_a_prefix_rule_approves_nothing_that_is_more_than_one_simple_command(command: str) -> None:
    assert not rule(match="prefix").applies_to(push(command, words=()), "hf-1")


def test_a_rule_approves_nothing_with_another_risk_than_the_person_saw() -> None:
    other = push("git push --force origin b", findings=(FORCE, DELETE))

    for match in ("prefix", "exact"):
        assert not rule(match=match).applies_to(msgspec.structs.replace(other, command=PUSH.command), "hf-1")


def test_a_rule_applies_to_its_requester_and_its_session_until_it_is_revoked() -> None:
    assert not rule().applies_to(msgspec.structs.replace(PUSH, requester="slack:U1"), "hf-1")
    assert rule(session_id="hf-1").applies_to(PUSH, "hf-1")
    assert not rule(session_id="hf-1").applies_to(PUSH, "hf-2")
    assert not rule(revoked_at=2).applies_to(PUSH, "hf-1")


def test_a_tool_that_runs_commands_cannot_be_approved_as_a_whole() -> None:
    pay = Proposal(tool="mcp__bank__pay", arguments='{"to": "Eve"}', requester="local user")

    assert pattern_for(PUSH, "tool") is None
    assert rule(pay, match="tool").applies_to(msgspec.structs.replace(pay, arguments='{"to": "Bob"}'), "hf-1")
    assert not rule(pay, match="tool").applies_to(msgspec.structs.replace(pay, tool="mcp__bank__close"), "hf-1")


def test_a_prefix_that_the_command_does_not_begin_with_makes_no_rule() -> None:
    assert pattern_for(PUSH, "prefix", ("git", "pull")) is None
    assert pattern_for(PUSH, "prefix", ("git", "push")) == '["git", "push"]'
    assert pattern_for(push("git push; id", words=()), "prefix") is None
