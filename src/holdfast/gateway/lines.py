"""One line for each chat: what waits there is dealt with by one task, and chats do not wait for each other."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast.engine.together import stop
from holdfast.model.errors import HoldfastError

logger = logging.getLogger(__name__)


class Lines:
    """`serve` deals with all that waits in a chat, and returns when nothing does. `name` is for the log."""

    def __init__(self, name: str, serve: Callable[[str], Awaitable[None]]) -> None:
        self._name = name
        self._serve = serve
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        """Chats in which something may have come since they were last looked at."""

    def __contains__(self, chat: str) -> bool:
        """Whether a chat is being dealt with."""
        return chat in self._tasks

    def begin(self, chat: str) -> None:
        """Deal with a chat; with one that is being dealt with, once more when that is done."""
        self._again.add(chat)
        if chat not in self._tasks:
            self._tasks[chat] = asyncio.create_task(self._run(chat), name=f"{self._name} {chat}")

    async def _run(self, chat: str) -> None:
        """Whatever goes wrong is the chat's own trouble: it is begun again when somebody next looks."""
        try:
            while chat in self._again:
                self._again.discard(chat)
                await self._serve(chat)
        except HoldfastError as e:
            logger.warning("%s: %s is at a stand: %s", self._name, chat, e)
        except Exception:
            logger.exception("%s: %s is at a stand", self._name, chat)
        finally:
            self._again.discard(chat)
            self._tasks.pop(chat, None)

    async def close(self) -> None:
        await stop(*self._tasks.values())
        self._tasks.clear()  # those that had not begun yet
