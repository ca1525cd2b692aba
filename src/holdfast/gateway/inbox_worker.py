"""Processes the inbox: the messages of each chat in order, each once.

An attempt is counted before it starts. A message that fails three times, or crashes the worker as often, becomes a dead
letter.
"""

import asyncio
import logging

from holdfast.engine.notifications import TopicListener
from holdfast.engine.services import EngineServices
from holdfast.gateway import intake
from holdfast.gateway.chat_queues import ChatQueues
from holdfast.gateway.message_handler import MessageHandler
from holdfast.gateway.port import describe_error
from holdfast.model.errors import HoldfastError, LeaseLost, NotSaved, Unavailable
from holdfast.store.repos import inbox
from holdfast.store.repos.inbox import InboundMessage
from holdfast.supervisor import BackgroundTask, Completed, ignore_cycle

logger = logging.getLogger(__name__)
MAX_ATTEMPTS = 3
POLL_SECONDS = 5.0
"""How often the inbox is polled if no notification arrives."""
RETRY_SECONDS = 0.5
"""How soon a message is retried that failed for a reason outside the message."""


class InboxWorker:
    """Processes the inbox of one platform: `read` parses a payload, and the handler handles the message."""

    def __init__(self, services: EngineServices, name: str, read: intake.ReadPayload, handler: MessageHandler) -> None:
        self._services = services
        self._name = name
        self._read = read
        self._handler = handler
        self._queues = ChatQueues(f"messages of {name}", self._serve)

    def as_task(self) -> BackgroundTask:
        return BackgroundTask(self.work, POLL_SECONDS)

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Process messages until cancelled. Errors escape to the supervisor."""
        try:
            with TopicListener(self._services.database, inbox.topic(self._name)) as listener:
                while True:
                    for inbound in await self._services.database.read(inbox.list_heads, self._name):
                        self._queues.wake(inbound.chat)
                    completed()
                    await listener.wait(POLL_SECONDS)
        finally:
            await self._queues.close()

    async def _serve(self, chat: str) -> None:
        """Process the waiting messages of one chat in order."""
        while True:
            inbound = await self._services.database.read(inbox.find_next, self._name, chat)
            if inbound is None:
                return
            message = await self._services.database.write(inbox.begin, inbound.id, self._services.worker_id)
            if message is None:
                return
            await self._process(message, interrupted=inbound.state == "working")

    async def _process(self, message: InboundMessage, *, interrupted: bool) -> None:
        """Process one message. Every error is recorded with the message and does not affect others."""
        if message.attempts > MAX_ATTEMPTS:
            await self._dead_letter(message, f"gave up after {MAX_ATTEMPTS} attempts; the last one was interrupted")
            return
        try:
            incoming = self._read(intake.load_payload(message))
        except Exception as e:  # noqa: BLE001 # any error of the parser is stored with the message
            await self._dead_letter(message, describe_error(e))
            return
        if (message.chat, message.message) != (incoming.chat, incoming.message):
            await self._services.database.write(inbox.rename, message, incoming.chat, incoming.message)
            return
        try:
            await self._handler.handle(message, incoming, interrupted=interrupted)
        except (NotSaved, Unavailable, LeaseLost) as e:
            await self._put_back(message, e)
        except HoldfastError as e:
            await self._handler.report_failure(message, incoming, str(e))
        except Exception as e:
            logger.exception("%s: message %s failed", self._name, message.id)
            if message.attempts >= MAX_ATTEMPTS:
                await self._dead_letter(message, f"failed {MAX_ATTEMPTS} times: {describe_error(e)}")

    async def _dead_letter(self, inbound: InboundMessage, why: str) -> None:
        logger.warning("%s: message %s is now a dead letter: %s", self._name, inbound.id, why)
        await self._services.database.write(inbox.mark_dead, inbound.id, why)

    async def _put_back(self, inbound: InboundMessage, error: HoldfastError) -> None:
        """Retry later without counting the attempt: the store is unavailable or this worker is stopping."""
        logger.warning("%s: message %s will be retried: %s", self._name, inbound.id, error)
        await asyncio.sleep(RETRY_SECONDS)
        await self._services.database.write(inbox.put_back, inbound.id, str(error))
