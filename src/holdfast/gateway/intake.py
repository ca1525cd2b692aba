"""Stores every payload of a platform before anything else happens to it, whether it can be parsed or not."""

import hashlib
import logging
from collections.abc import Callable, Sequence

from holdfast.engine.services import EngineServices
from holdfast.gateway.port import Incoming, describe_error
from holdfast.model.entry import dumps
from holdfast.store.repos import inbox, platforms
from holdfast.store.repos.inbox import InboundMessage, NewInboundMessage
from holdfast.store.repos.platforms import LinkState

logger = logging.getLogger(__name__)
PREFIX = "in-"
MAX_PAYLOAD = 32 * 1024 * 1024
"""Characters of a payload that are stored; a longer one is not parsed."""
UNKNOWN_CHAT = "?"
"""The chat of payloads that could not be parsed."""

ReadPayload = Callable[[str], Incoming]


class Intake:
    """Stores the payloads and the connection state of one platform."""

    def __init__(self, services: EngineServices, name: str, read: ReadPayload) -> None:
        self._services = services
        self._name = name
        self._read = read

    async def take(self, payloads: Sequence[str | bytes], position: str | None = None) -> None:
        messages = [parse_payload(self._services.ids.make(PREFIX), payload, self._read) for payload in payloads]
        at = self._services.clock.now()
        for taken in await self._services.database.write(inbox.put, self._name, messages, at=at, position=position):
            if taken.new and taken.post.fault:
                logger.warning(
                    "%s: cannot parse a message (%s); stored as dead letter %s",
                    self._name,
                    taken.post.fault,
                    taken.post.id,
                )
            elif taken.changed:
                logger.warning(
                    "%s: message %s of %s was received again with a different text; the first one counts",
                    self._name,
                    taken.post.message,
                    taken.post.chat,
                )

    async def report_connected(self) -> None:
        await self._record_state("connected", "")

    async def report_down(self, error: str) -> None:
        logger.warning("%s: %s", self._name, error)
        await self._record_state("down", error)

    async def _record_state(self, state: LinkState, error: str) -> None:
        at = self._services.clock.now()
        await self._services.database.write(
            platforms.record_state, self._name, self._services.worker_id, state, error=error, at=at
        )


def parse_payload(message_id: str, payload: str | bytes, read: ReadPayload) -> NewInboundMessage:
    """Prepare a payload for the inbox. A payload that cannot be parsed gets a fault; this never raises."""
    text = payload.decode("utf-8", "surrogateescape") if isinstance(payload, bytes) else payload
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    stored = dumps(text[:MAX_PAYLOAD])
    found, fault = _read_payload(text, read)
    if found is None:
        return NewInboundMessage(message_id, UNKNOWN_CHAT, f"sha256:{digest}", stored, digest, fault)
    return NewInboundMessage(message_id, found.chat, found.message, stored, digest)


def _read_payload(text: str, read: ReadPayload) -> tuple[Incoming | None, str]:
    if len(text) > MAX_PAYLOAD:
        return None, f"longer than {MAX_PAYLOAD:,} characters"
    try:
        found = read(text)
        for name in (found.chat, found.message):
            if not name or "\0" in name or len(name) > 500:
                return None, "chat or message id is missing, too long or contains NUL"
            name.encode("utf-8")
    except Exception as e:  # noqa: BLE001 # any error of the parser is stored with the payload
        return None, describe_error(e)
    return found, ""


def load_payload(inbound: InboundMessage) -> str:
    """The original payload of an inbound message."""
    import json

    text = json.loads(inbound.payload)
    assert isinstance(text, str), "payloads are stored as JSON strings"
    return text
