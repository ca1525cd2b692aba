"""Whose remembered facts a turn may use. Pure."""

from collections.abc import Iterable

import msgspec

from holdfast.model.event import Delegation, UserSaid
from holdfast.model.session import collapse_line

LOCAL_OWNER = "local"
"""The owner of the facts of the person who uses this machine."""
EVERYBODY = ""
"""The owner of facts with the scope `global`."""
API_OWNER = "api:"
"""The owner of facts of API clients that name no user; the prefix of the others."""


class MemoryPlace(msgspec.Struct, frozen=True):
    """Whose facts may be used, and in which project. Without a project there are no facts of the scope `project`."""

    owner: str
    project: str = ""


def owner_of(source: str, link: Delegation, said: Iterable[UserSaid], *, client: str) -> str:
    """Whose facts a turn may use: those of the one person who wrote its messages; empty for nobody's.

    `link` is the delegation of a child session. A conversation that others read, or that another kind of user continues,
    has no memory: a person's facts must not reach somebody else. `client` names a program that uses the API.
    """
    if link.parent_id:
        return link.memory_owner
    messages = list(said)
    senders = {_person(one.sender) for one in messages}
    if len(senders) != 1 or any(one.shared for one in messages):
        return ""
    (sender,) = senders
    is_api = sender.startswith(API_OWNER)
    if sender != collapse_line(sender):
        return ""
    if source == "gateway":
        return "" if is_api else sender
    if source == "api":
        return (sender or API_OWNER) if is_api or not sender else ""
    return "" if sender or client else LOCAL_OWNER


def _person(sender: str) -> str:
    """The sender without the name of the session that an API request gives: one user has many sessions."""
    return sender.partition(" ")[0] if sender.startswith(API_OWNER) else sender
