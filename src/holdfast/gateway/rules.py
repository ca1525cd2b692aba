"""Who may talk to the agent, where it answers, and what becomes of a message. Pure: the router acts on it."""

from pathlib import Path
from typing import Literal, cast

import msgspec

from holdfast.gateway.port import Incoming, Options
from holdfast.slash import registry

Groups = Literal["addressed", "all", "none"]
EVERYBODY = "*"
FOR_OWNERS = ("sessions", "search", "export", "takeover")
"""Commands that show or change more than the chat's own sessions."""
YES = frozenset(("yes", "y", "allow", "ok", "ja", "oui", "si", "sí", "是", "好"))
NO = frozenset(("no", "n", "deny", "nein", "non", "否", "不"))


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What is set for a platform, the same for all of them."""

    allow: frozenset[str] = frozenset()
    """People, or chats, that may talk; `*` for everybody."""
    owners: frozenset[str] = frozenset()
    """People who may also use the commands that reach beyond their own chat."""
    pairing: bool = True
    """Whether strangers are given a code by which the owner can let them in."""
    groups: Groups = "addressed"
    max_attachment_bytes: int = 20 * 1024 * 1024
    hold_unknown: bool = False
    """Whether a message that may have arrived waits for a person instead of being sent again with a mark."""
    stream: bool = True
    """Whether a reply is shown while it is made, where the platform can change messages."""
    tell_queued: bool = True
    """Whether people are told that their words wait, where the platform is one for chatting."""
    workdir: str = ""

    @property
    def folder(self) -> Path | None:
        """Where the tools of its sessions work; None for the home."""
        return Path(self.workdir).expanduser() if self.workdir else None


def from_options(options: Options) -> Rules:
    """Raises Invalid."""
    return Rules(
        allow=frozenset(options.texts("allow")),
        owners=frozenset(options.texts("owners")),
        pairing=options.flag("pairing", default=True),
        groups=cast("Groups", options.one_of("groups", ("addressed", "all", "none"))),
        max_attachment_bytes=int(options.number("max_attachment_mb", 20) * 1024 * 1024),
        hold_unknown=options.one_of("on_unknown", ("repeat", "hold")) == "hold",
        stream=options.flag("stream", default=True),
        tell_queued=options.flag("tell_queued", default=True),
        workdir=options.text("workdir", ""),
    )


class Ignore(msgspec.Struct, frozen=True):
    reason: str


class Refuse(msgspec.Struct, frozen=True):
    """A stranger; with `knock` they are given a code."""

    knock: bool


class Press(msgspec.Struct, frozen=True):
    """An answer to a question by a button."""

    delivery_id: str
    value: str


class Answer(msgspec.Struct, frozen=True):
    """Words that answer a question, if one is open; else they are words like any other."""

    allowed: bool


class Command(msgspec.Struct, frozen=True):
    line: str
    forbidden: bool = False


class Say(msgspec.Struct, frozen=True):
    pass


Step = Ignore | Refuse | Press | Answer | Command | Say


def decide(incoming: Incoming, rules: Rules, *, let_in: bool) -> Step:
    """What becomes of a message. `let_in` says that the owner has let this person in."""
    if incoming.ignored:
        return Ignore(incoming.ignored)
    if not incoming.private and (found := _not_for_us(incoming, rules)):
        return Ignore(found)
    owner = incoming.person in rules.owners
    if not (owner or let_in or rules.allow & {EVERYBODY, incoming.person, incoming.chat}):
        return Refuse(knock=rules.pairing and incoming.private)
    if incoming.pressed:
        return Press(incoming.about, incoming.pressed)
    words = incoming.text.strip()
    typed = None if incoming.attachments else registry.parse(words)
    if typed is not None:
        return Command(words, forbidden=typed[0] in FOR_OWNERS and not owner)
    if not words and not incoming.attachments:
        return Ignore("it says nothing")
    if words.lower() in YES | NO:
        return Answer(words.lower() in YES)
    return Say()


def _not_for_us(incoming: Incoming, rules: Rules) -> str:
    if rules.groups == "none":
        return "the agent does not talk in groups"
    if rules.groups == "addressed" and not incoming.addressed and not incoming.pressed:
        return "nobody spoke to the agent"
    return ""
