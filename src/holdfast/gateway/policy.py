"""Decides who may talk to the agent, where it answers, and how a message is handled. Pure; the message handler acts on it."""

from pathlib import Path
from typing import Literal, cast

import msgspec

from holdfast.gateway import approvers
from holdfast.gateway.approvers import Approvers
from holdfast.gateway.port import Incoming, PlatformOptions
from holdfast.model import answer
from holdfast.settings import TERMINALS
from holdfast.slash import registry

Groups = Literal["addressed", "all", "none"]
EVERYBODY = "*"
OWNER_COMMANDS = ("sessions", "search", "export", "takeover", "questions", "approvals", "rewind")
"""Commands that show or change more than the chat's own sessions."""
CANCEL = frozenset(("cancel", "/cancel", "no", "n", "abort"))
"""Answers that cancel a command which waits for a choice."""


class PlatformRules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that all platforms share."""

    allow: frozenset[str] = frozenset()
    """People or chats that may talk to the agent; `*` for everybody."""
    owners: frozenset[str] = frozenset()
    """People who may also use the commands that reach beyond their own chat."""
    pairing: bool = True
    """Whether an unknown person receives a pairing code that the owner can approve."""
    groups: Groups = "addressed"
    max_attachment_bytes: int = 20 * 1024 * 1024
    hold_unknown: bool = False
    """Whether a message that may have arrived waits for a person, instead of being sent again with a mark."""
    stream: bool = True
    """Whether a reply is shown while it is generated, if the platform can edit messages."""
    tell_queued: bool = True
    """Whether people are told that their message is queued, if the platform supports it."""
    workdir: str = ""
    terminal: str = ""
    """The terminal backend of its sessions; empty for the configured one."""
    approvers: Approvers = Approvers()
    """Who may answer questions about calls that another person requested."""

    @property
    def folder(self) -> Path | None:
        """The working directory of its sessions; None gives each session its own in the home directory."""
        return Path(self.workdir).expanduser() if self.workdir else None


def from_options(options: PlatformOptions) -> PlatformRules:
    """Read the shared settings. Raises Invalid."""
    return PlatformRules(
        allow=frozenset(options.texts("allow")),
        owners=frozenset(options.texts("owners")),
        pairing=options.flag("pairing", default=True),
        groups=cast("Groups", options.one_of("groups", ("addressed", "all", "none"))),
        max_attachment_bytes=int(options.number("max_attachment_mb", 20) * 1024 * 1024),
        hold_unknown=options.one_of("on_unknown", ("repeat", "hold")) == "hold",
        stream=options.flag("stream", default=True),
        tell_queued=options.flag("tell_queued", default=True),
        workdir=options.text("workdir", ""),
        terminal=options.one_of("terminal", ("default", *TERMINALS)).removeprefix("default"),
        approvers=approvers.from_options(options),
    )


class Ignore(msgspec.Struct, frozen=True):
    reason: str


class Refuse(msgspec.Struct, frozen=True):
    """The person is unknown; `send_code` says whether to send a pairing code."""

    send_code: bool


class Unreadable(msgspec.Struct, frozen=True):
    """The message of an authorised person that cannot be read."""

    reason: str


class ButtonAnswer(msgspec.Struct, frozen=True):
    """A button that answers a question."""

    delivery_id: str
    value: str


class TextAnswer(msgspec.Struct, frozen=True):
    """A text that answers a question if one is open, and is an ordinary message otherwise."""

    given: answer.Answer


class SlashCommandText(msgspec.Struct, frozen=True):
    line: str
    forbidden: bool = False


class ChatMessageText(msgspec.Struct, frozen=True):
    pass


Step = Ignore | Refuse | Unreadable | ButtonAnswer | TextAnswer | SlashCommandText | ChatMessageText


def decide(incoming: Incoming, rules: PlatformRules, *, paired: bool) -> Step:
    """Decide how to handle a message. `paired` says that the owner has approved this person."""
    if incoming.ignored:
        return Ignore(incoming.ignored)
    if not incoming.private and (found := _group_ignore_reason(incoming, rules)):
        return Ignore(found)
    owner = incoming.person in rules.owners
    if not (owner or paired or rules.allow & {EVERYBODY, incoming.person, incoming.chat}):
        return Refuse(send_code=rules.pairing and incoming.private)
    if incoming.unreadable:
        return Unreadable(incoming.unreadable)
    if incoming.pressed:
        return ButtonAnswer(incoming.about, incoming.pressed)
    text = incoming.text.strip()
    typed = None if incoming.attachments else registry.parse(text)
    if typed is not None:
        return SlashCommandText(text, forbidden=typed[0] in OWNER_COMMANDS and not owner)
    if not text and not incoming.attachments:
        return Ignore("empty message")
    given = None if incoming.attachments else answer.parse_answer(text)
    return ChatMessageText() if given is None else TextAnswer(given)


def _group_ignore_reason(incoming: Incoming, rules: PlatformRules) -> str:
    if rules.groups == "none":
        return "groups are disabled"
    if rules.groups == "addressed" and not incoming.addressed and not incoming.pressed:
        return "not addressed to the agent"
    return ""
