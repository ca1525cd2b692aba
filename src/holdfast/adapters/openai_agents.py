"""The session of openai-agents: `Runner.run(agent, "Hello", session=HoldfastSession("chat-1"))`."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from holdfast.adapters.framework_session import constant, settle
from holdfast.adapters.items import ItemReader, decode_item, decode_items, encode_item
from holdfast.adapters.named_session import NamedSession
from holdfast.adapters.requirement import missing
from holdfast.model.errors import Unavailable
from holdfast.model.event import Event, ItemAdded, Rewound
from holdfast.model.message import Role
from holdfast.model.session import Session
from holdfast.store.database import Transaction

try:
    from agents.memory.session import SessionABC
    from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit
except ImportError as e:
    raise missing("openai-agents", e) from e

if TYPE_CHECKING:
    from agents.items import TResponseInputItem

ADAPTER = "openai-agents"
ROLES: dict[object, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "user",
    "developer": "user",
    "function_call": "assistant",
    "function_call_output": "tool",
    "reasoning": "assistant",
}


class HoldfastSession(SessionABC):
    """The history of one conversation, in Holdfast's log. Items that are popped or cleared stay in the log, as undone.

    A call returns after its items are durable. Objects with the same id share the session, in this process and in others:
    see `holdfast.adapters.framework_session` for what happens when two processes write.
    """

    def __init__(
        self,
        session_id: str,
        store: str | None = None,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = (
            SessionSettings() if session_settings is None else coerce_session_settings(session_settings)
        )
        self._session = NamedSession(store, ADAPTER, session_id)
        self._reader = ItemReader(ADAPTER)
        self._closed = False

    async def get_items(self, limit: int | None = None) -> "list[TResponseInputItem]":
        """The newest items up to the limit, by default that of the settings, oldest first."""
        self._refuse_when_closed()
        wanted = resolve_session_limit(limit, self.session_settings)
        limit = None if wanted is None or wanted < 0 else wanted
        found = await self._session.get().read(partial(self._reader.read, limit=limit))
        return cast("list[TResponseInputItem]", decode_items(found))

    async def add_items(self, items: "list[TResponseInputItem]") -> None:
        """Append the items, all or none. Raises Invalid if one is not JSON."""
        self._refuse_when_closed()
        if items:
            await self._session.get().write(constant([encode_item(ADAPTER, one, role=_role(one)) for one in items]))

    async def pop_item(self) -> "TResponseInputItem | None":
        """Take back the newest item, and return it; None if there is none."""
        self._refuse_when_closed()
        popped: list[ItemAdded] = []

        def decide(tx: Transaction, session: Session) -> Sequence[Event]:
            popped.clear()
            for item in self._reader.read(tx, session, 1):
                popped.append(item.event)
                return [Rewound(to_seq=item.seq - 1)]
            return []

        await self._session.get().write(decide, creates=False)
        return cast("TResponseInputItem", decode_item(popped[0])) if popped else None

    async def clear_session(self) -> None:
        """Take back all items."""
        self._refuse_when_closed()
        await self._session.get().write(self._reader.undo_all, creates=False)

    async def _atomic_replace_items(self, items: "list[TResponseInputItem]") -> bool:
        """Replace all items in one commit.

        `OpenAIResponsesCompactionSession` of the SDK calls it if it exists; otherwise it clears the session and then adds the
        items, so that a crash in between would leave an empty session.
        """
        self._refuse_when_closed()
        added = [encode_item(ADAPTER, one, role=_role(one)) for one in items]

        def decide(tx: Transaction, session: Session) -> Sequence[Event]:
            return [*self._reader.undo_all(tx, session), *added]

        await self._session.get().write(decide)
        return True

    async def release(self) -> None:
        """Let another process write to the session at once, instead of after 30 seconds without use."""
        await settle(self._session.get().release())

    def close(self) -> None:
        """Release the session. This object cannot be used afterwards."""
        if not self._closed:
            self._closed = True
            self._session.get().release().result()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise Unavailable(f"the session {self.session_id} has been closed")


def _role(item: object) -> Role | None:
    """Who said an item. Items of unknown types are kept, and are no messages."""
    if not isinstance(item, dict):
        return None
    return ROLES.get(item.get("role") or item.get("type"))
