"""Who may answer a question about a tool call in a chat. Pure.

A question asks whether a risky call may run for the person who requested it. In a group, other people talk to the
agent as well; they must not decide for that person or for the machine. So only the requester of the turn and the
approvers that the operator has named may answer. A private chat has only one person.
"""

import msgspec

from holdfast.gateway.port import Incoming, PlatformOptions

NOT_AN_APPROVER = "! Only the person who asked for this, or an approver of this chat, may answer."


class Approvers(msgspec.Struct, frozen=True):
    """People in `everywhere` may answer in all chats of the platform, people in `chats` only in that chat."""

    everywhere: frozenset[str] = frozenset()
    chats: dict[str, tuple[str, ...]] = {}

    def may_answer(self, incoming: Incoming, requester: str) -> bool:
        """Whether the sender may answer a question of the turn that `requester` requested.

        A turn that nobody on the platform requested, such as that of a schedule, has no requester.
        """
        person = incoming.person
        if person and (person in self.everywhere or person in self.chats.get(incoming.chat, ())):
            return True
        return person == requester if requester else incoming.private


def from_options(options: PlatformOptions) -> Approvers:
    """Read the approvers from the settings. Raises Invalid."""
    return Approvers(frozenset(options.texts("approvers")), options.lists("chat_approvers"))
