"""The message history of pydantic-ai: load it before a run, and save the run's new messages after it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.adapters.framework_session import constant, settle
from holdfast.adapters.items import ItemReader, decode_items, encode_item, refuse_not_json
from holdfast.adapters.named_session import NamedSession
from holdfast.adapters.requirement import missing
from holdfast.model.errors import Invalid
from holdfast.model.message import Role
from holdfast.store.database import Transaction

try:
    from pydantic import ValidationError
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
except ImportError as e:
    raise missing("pydantic-ai", e) from e

if TYPE_CHECKING:
    from pydantic_ai.run import AgentRunResult

ADAPTER = "pydantic-ai"
RETURNS = ("tool-return", "retry-prompt")


class HoldfastHistory:
    """The messages of one conversation, in Holdfast's log. Messages that are cleared stay in the log, as undone.

    A call returns after its messages are durable. If another process has saved messages since this one loaded the
    history, `save` raises Conflict and saves nothing.
    """

    def __init__(self, session_id: str, store: str | None = None) -> None:
        self.session_id = session_id
        self._session = NamedSession(store, ADAPTER, session_id)
        self._reader = ItemReader(ADAPTER)

    async def load(self, limit: int | None = None) -> list[ModelMessage]:
        """The newest messages, all without a limit, for `message_history=`. Raises Invalid if this pydantic-ai cannot read one."""
        if limit is not None and limit < 0:
            raise Invalid("a limit must not be negative")

        def view(tx: Transaction, session: Any) -> Any:
            return self._reader.read(tx, session, limit)

        found = await self._session.get().read(view)
        try:
            return ModelMessagesTypeAdapter.validate_python(decode_items(found))
        except ValidationError as e:
            raise Invalid(
                f"the installed pydantic-ai cannot read the messages of {self.session_id}; they are stored unchanged: {e}"
            ) from e

    async def save(self, result: "AgentRunResult[Any]") -> None:
        """Append the new messages of a run, all or none."""
        await self.add(result.new_messages())

    async def add(self, messages: Sequence[ModelMessage]) -> None:
        """Append messages, all or none. Raises Invalid if one is not JSON."""
        if messages:
            try:
                refuse_not_json(ModelMessagesTypeAdapter.dump_python(list(messages)))
                found = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
            except (ValueError, RecursionError) as e:  # that of Pydantic is a ValueError
                raise Invalid(f"an item of {ADAPTER} is not JSON and was not saved: {e}") from e
            await self._session.get().write(constant([encode_item(ADAPTER, one, role=_role(one)) for one in found]))

    async def clear(self) -> None:
        """Take back all messages."""
        await self._session.get().write(self._reader.undo_all, creates=False)

    async def release(self) -> None:
        """Let another process write to the session at once, instead of after 30 seconds without use."""
        await settle(self._session.get().release())


def _role(message: dict[str, Any]) -> Role:
    """A response is the model's; a request that only returns results of tools is a tool's."""
    if message.get("kind") == "response":
        return "assistant"
    kinds = [part.get("part_kind") for part in message.get("parts", ())]
    return "tool" if kinds and all(kind in RETURNS for kind in kinds) else "user"
