"""What a person is asked to approve, and the rules that approve without asking. Pure."""

import hashlib
import json
from typing import Literal

import msgspec

from holdfast.model.finding import Finding
from holdfast.model.form_fields import describe_fields
from holdfast.model.sanitize import exact
from holdfast.model.text import counted

Scope = Literal["once", "session", "always"]
Match = Literal["exact", "prefix", "tool"]

SHORT_ARGUMENT = 200
"""Characters up to which an argument is listed beside a diff, which shows the long ones."""


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Everything that a call would do, as it was known when it was proposed."""

    tool: str = ""
    arguments: str = ""
    """The arguments as the model wrote them: JSON text."""
    command: str = ""
    """The shell command that the call runs; empty if it runs none."""
    words: tuple[str, ...] = ()
    """The words of the command, if it is one simple command without any expansion; a prefix rule needs them."""
    preview: str = ""
    """What changes: the unified diff of a file, or the content of a new one."""
    workdir: str = ""
    requester: str = ""
    """Who asked for the turn: a sender on a platform, a caller of the API, the local user."""
    findings: tuple[Finding, ...] = ()
    kind: Literal["approval", "elicitation", "sampling"] = "approval"
    """Whether a call may run, or what a running call asks: to fill in a form or open a page, or to use the model."""
    message: str = ""
    """What the running call asks."""
    form: str = ""
    """The JSON schema of the values to give, as text; empty if the answer is yes or no."""
    url: str = ""
    """The page to open."""
    parent_id: str = ""
    """For the call of a child session: the session that delegated to it."""
    root_id: str = ""
    """The session at the top of the tree, whose user is asked."""

    @property
    def digest(self) -> str:
        """Equal for two proposals that would do the same."""
        shown = [self.tool, self.arguments, self.command, self.preview, self.workdir, self.message, self.form, self.url]
        return hashlib.sha256(json.dumps(shown).encode()).hexdigest()

    @property
    def reasons(self) -> frozenset[str]:
        return frozenset(finding.reason for finding in self.findings)


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True):
    """Approves calls like one that a person approved. `session_id` limits it to one session."""

    id: str
    requester: str
    tool: str
    match: Match
    pattern: str
    """JSON: for `exact` the command or the arguments, for `prefix` the list of words, for `tool` null."""
    workdir: str
    reasons: tuple[str, ...]
    """The risks that the person saw; a call with any other risk is asked about."""
    session_id: str | None
    created_by: str
    created_at: int
    revoked_at: int | None = None
    revoked_by: str | None = None

    def applies_to(self, proposal: Proposal, session_id: str) -> bool:
        """Whether the rule approves the call."""
        return (
            self.revoked_at is None
            and self.session_id in (None, session_id)
            and (self.requester, self.tool) == (proposal.requester, proposal.tool)
            and proposal.reasons <= set(self.reasons)
            and self._matches(proposal)
        )

    def _matches(self, proposal: Proposal) -> bool:
        wanted = json.loads(self.pattern)
        match self.match:
            case "tool":
                return not proposal.command
            case "exact":
                return self.workdir == proposal.workdir and wanted == (
                    proposal.command or parsed_arguments(proposal.arguments)
                )
            case "prefix":
                return self.workdir == proposal.workdir and list(proposal.words[: len(wanted)]) == wanted

    @property
    def text(self) -> str:
        """What the rule allows, in a phrase."""
        reach = "in this session" if self.session_id else "always"
        pattern = json.loads(self.pattern)
        match self.match:
            case "tool":
                return f"{reach}: every call of {self.tool} with the same risks"
            case "prefix":
                return f"{reach}: commands that begin with `{exact(' '.join(pattern))}` in {exact(self.workdir)}"
            case "exact":
                shown = pattern if isinstance(pattern, str) else json.dumps(pattern, ensure_ascii=False)
                return f"{reach}: {self.tool} `{exact(shown)}` in {exact(self.workdir)}"


def parsed_arguments(arguments: str) -> object:
    """The arguments as a JSON value; as they are if the model wrote no JSON."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def pattern_for(proposal: Proposal, match: Match, prefix: tuple[str, ...] = ()) -> str | None:
    """The pattern of a rule that approves calls like this one; None if no safe rule of that kind exists."""
    match match:
        case "tool":
            # A tool that runs commands can do anything: only a command or the beginning of one can be approved.
            return None if proposal.command else json.dumps(None)
        case "exact":
            return json.dumps(proposal.command or parsed_arguments(proposal.arguments))
        case "prefix":
            words = prefix or suggested_prefix(proposal)
            fits = bool(words) and proposal.words[: len(words)] == words
            return json.dumps(list(words)) if fits else None


def rule_kinds(proposal: Proposal) -> tuple[Match, ...]:
    """The kinds of rules that an approval can make; none for a question of a release that stored no proposal."""
    kinds: tuple[Match, ...] = ("exact", "prefix", "tool") if proposal.tool and proposal.kind == "approval" else ()
    return tuple(kind for kind in kinds if pattern_for(proposal, kind) is not None)


def suggested_prefix(proposal: Proposal) -> tuple[str, ...]:
    """The beginning of the command that a prefix rule covers unless the person names another: all but the last word."""
    return proposal.words[:-1] if len(proposal.words) > 2 else proposal.words


def describe(proposal: Proposal, session_id: str = "", *, max_lines: int | None = None, more: str = "") -> str:
    """The question in full, or its first lines and how many more there are; `more` says how to see them."""
    lines = [*_action(proposal), *_risks(proposal), *_context(proposal, session_id)]
    body = _body(proposal)
    if max_lines is not None and len(body) > max_lines:
        left_out = counted(len(body) - max_lines, "more line")
        body = [*body[:max_lines], f"[… {left_out}{'; ' + more if more else ''}]"]
    return "\n".join([lines[0], *body, *lines[1:]])


def line_count(proposal: Proposal) -> int:
    """How many lines the command, diff or arguments have."""
    return len(_body(proposal))


def _action(proposal: Proposal) -> list[str]:
    if proposal.kind == "sampling":
        return [f"{proposal.tool} wants to use the model for this request:"]
    if proposal.kind == "elicitation":
        return [f"{proposal.tool} asks:"]
    if proposal.command:
        return [f"{proposal.tool} wants to run this command:"]
    if proposal.preview:
        return [f"{proposal.tool} wants to make this change:"]
    return [f"{proposal.tool} wants to run with these arguments:"]


def _body(proposal: Proposal) -> list[str]:
    if proposal.kind != "approval":
        return [f"  {line}" for line in _question_lines(proposal)]
    if proposal.command:
        return [f"  {line}" for line in exact(proposal.command).split("\n")]
    arguments = [f"  {line}" for line in _argument_lines(proposal)]
    return [
        *arguments,
        *(f"  {line}" for line in exact(proposal.preview).removesuffix("\n").split("\n") if proposal.preview),
    ]


def _question_lines(proposal: Proposal) -> list[str]:
    """What a running call asks. It comes from a server, so a page is shown in full, and nothing is opened."""
    lines = exact(proposal.message).split("\n")
    if proposal.url:
        lines += [f"page: {exact(proposal.url)}"]
    return lines if not proposal.form else [*lines, *(f"- {line}" for line in describe_fields(proposal.form))]


def _argument_lines(proposal: Proposal) -> list[str]:
    arguments = parsed_arguments(proposal.arguments)
    if not isinstance(arguments, dict):
        return exact(proposal.arguments).split("\n")
    shown = [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in arguments.items()
    ]
    if proposal.preview:
        shown = [(name, text) for name, text in shown if len(text) <= SHORT_ARGUMENT and "\n" not in text]
    return [line for name, text in shown for line in f"{exact(str(name))}: {exact(text)}".split("\n")]


def _risks(proposal: Proposal) -> list[str]:
    if not proposal.findings:
        return []
    return [
        f"{counted(len(proposal.findings), 'risk')}:",
        *(f"  - {exact(str(finding))}" for finding in proposal.findings),
    ]


def _context(proposal: Proposal, session_id: str) -> list[str]:
    facts = {"directory": proposal.workdir, "requested by": proposal.requester, "session": session_id}
    facts["sub-agent of"] = proposal.parent_id
    return [f"{name}: {exact(value)}" for name, value in facts.items() if value]
