"""From the inbox to sessions: each chat's messages one after another, each dealt with once.

An attempt is counted before it is made. A letter that fails three times, or brings the worker down, is given up and kept.
"""

import asyncio
import logging

from holdfast.engine.bell import Bell
from holdfast.engine.hand import Ground
from holdfast.gateway import inlet
from holdfast.gateway.desk import Desk
from holdfast.gateway.lines import Lines
from holdfast.gateway.port import reason
from holdfast.model.errors import HoldfastError, LeaseLost, NotSaved, Unavailable
from holdfast.store import inbox
from holdfast.store.inbox import Letter

logger = logging.getLogger(__name__)
MAX_ATTEMPTS = 3
LOOK_SECONDS = 5.0
"""How often the inbox is looked at, should nobody ring."""
RETRY_SECONDS = 0.5
"""How soon a message is looked at again that could not be dealt with through no fault of its own."""


class Router:
    """Of one platform: `read` understands what it brought, and the desk deals with it."""

    def __init__(self, ground: Ground, name: str, read: inlet.Read, desk: Desk) -> None:
        self._ground = ground
        self._name = name
        self._read = read
        self._desk = desk
        self._lines = Lines(f"messages of {name}", self._serve)

    async def work(self) -> None:
        """Deal with what comes, until cancelled."""
        try:
            async with Bell(self._ground.database, inbox.topic(self._name)) as bell:
                while True:
                    for letter in await self._ground.database.read(inbox.heads, self._name):
                        self._lines.begin(letter.chat)
                    await bell.wait(LOOK_SECONDS)
        finally:
            await self._lines.close()

    async def _serve(self, chat: str) -> None:
        """All that waits in one chat, in order."""
        while True:
            letter = await self._ground.database.read(inbox.following, self._name, chat)
            if letter is None:
                return
            begun = await self._ground.database.write(inbox.begin, letter.id, self._ground.worker_id)
            if begun is None:
                return
            await self._see_to(begun, cut_off=letter.state == "working")

    async def _see_to(self, begun: Letter, *, cut_off: bool) -> None:
        """The boundary of a message: whatever goes wrong with it is written down, and it stops nothing else."""
        if begun.attempts > MAX_ATTEMPTS:
            await self._bury(begun, f"it was given up after {MAX_ATTEMPTS} attempts; the last one was cut off")
            return
        try:
            incoming = self._read(inlet.payload_of(begun))
        except Exception as e:  # noqa: BLE001 # it goes to the dead-letter list, with the message
            await self._bury(begun, reason(e))
            return
        if (begun.chat, begun.message) != (incoming.chat, incoming.message):
            await self._ground.database.write(inbox.rename, begun, incoming.chat, incoming.message)
            return
        try:
            await self._desk.handle(begun, incoming, cut_off=cut_off)
        except (NotSaved, Unavailable, LeaseLost) as e:
            await self._wait(begun, e)
        except HoldfastError as e:
            await self._desk.say_no(begun, incoming, str(e))
        except Exception as e:
            logger.exception("%s: message %s failed", self._name, begun.id)
            if begun.attempts >= MAX_ATTEMPTS:
                await self._bury(begun, f"it failed {MAX_ATTEMPTS} times: {reason(e)}")

    async def _bury(self, letter: Letter, why: str) -> None:
        logger.warning("%s: message %s is given up and kept: %s", self._name, letter.id, why)
        await self._ground.database.write(inbox.bury, letter.id, why)

    async def _wait(self, letter: Letter, error: HoldfastError) -> None:
        """The store is away or this worker is leaving: the message is not to blame."""
        logger.warning("%s: message %s has to wait: %s", self._name, letter.id, error)
        await asyncio.sleep(RETRY_SECONDS)
        await self._ground.database.write(inbox.put_back, letter.id, str(error))
