"""What a read has determined about a client's request. The write checks that it still holds."""

import msgspec

from holdfast.engine.admission.history_match import ClientHistory, ClientMessage, HistoryEdited
from holdfast.engine.admission.revised_history import Revision
from holdfast.engine.admission.rewind import Rewind
from holdfast.store.database import Transaction
from holdfast.store.repos import session_forks
from holdfast.store.repos.session_forks import SharedLog


class NotPrepared(Exception):
    """The request needs a read before its write. The caller, inside the engine, does that and tries again."""


class PreparedRequest(msgspec.Struct, frozen=True):
    history: ClientHistory
    """The messages, hashed and located."""
    retry: Rewind | None = None
    """The plan to take back a failed request that this one repeats."""
    shared: SharedLog | None = None
    """The shared log of a fork."""
    revision: Revision | None = None
    """How the messages continue a session whose history they revise."""
    is_revision_searched: bool = False
    """Whether a read has looked for that."""
    is_partial: bool = False
    """Whether only the messages were hashed: the store was not read."""

    @classmethod
    def of(cls, messages: tuple[ClientMessage, ...]) -> "PreparedRequest":
        """Hash the messages, which needs no store."""
        return cls(ClientHistory.of(messages))

    def without_retry(self) -> "PreparedRequest":
        """The same, to be completed by a read only if the request repeats a failed one."""
        return msgspec.structs.replace(self, is_partial=True)

    def shared_with(self, tx: Transaction, edited: HistoryEdited) -> SharedLog:
        """The shared log of a fork at that position: the prepared one if it still holds, else a new one."""
        wanted, shared = (edited.position.session_id, edited.position.seq), self.shared
        if shared is not None and (shared.parent_id, shared.seq) == wanted and session_forks.is_unchanged(tx, shared):
            return shared
        return session_forks.prepare_fork(tx, *wanted)
