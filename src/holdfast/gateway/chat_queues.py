"""One queue and one task for each chat, so that chats do not wait for each other."""

import logging
from collections.abc import Awaitable, Callable

from holdfast.model.errors import HoldfastError
from holdfast.tasks import Tasks

logger = logging.getLogger(__name__)


class ChatQueues:
    """`serve` processes everything queued in a chat and returns when nothing is left. `name` is for the log."""

    def __init__(self, name: str, serve: Callable[[str], Awaitable[None]]) -> None:
        self._name = name
        self._serve = serve
        self._tasks = Tasks()
        self._active: set[str] = set()
        self._pending: set[str] = set()
        """Chats that may have new items since they were last processed."""

    def __contains__(self, chat: str) -> bool:
        """Whether a chat is being processed."""
        return chat in self._active

    def wake(self, chat: str) -> None:
        """Process a chat; if it is being processed, process it again afterwards."""
        self._pending.add(chat)
        if chat not in self._active:
            self._active.add(chat)
            self._tasks.start(self._run(chat), name=f"{self._name} {chat}")

    async def _run(self, chat: str) -> None:
        """An error stops only this chat; the next poll starts it again."""
        try:
            while chat in self._pending:
                self._pending.discard(chat)
                await self._serve(chat)
        except HoldfastError as e:
            logger.warning("%s: %s stopped: %s", self._name, chat, e)
        except Exception:
            logger.exception("%s: %s stopped", self._name, chat)
        finally:
            self._pending.discard(chat)
            self._active.discard(chat)

    async def close(self) -> None:
        await self._tasks.close()
        self._active.clear()  # also chats whose task had not started yet
