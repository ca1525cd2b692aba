"""What a platform brings is kept before anything else happens to it, understood or not."""

import hashlib
import logging
from collections.abc import Callable, Sequence

from holdfast.engine.hand import Ground
from holdfast.gateway.port import Incoming, reason
from holdfast.model.entry import dumps
from holdfast.store import inbox, platforms
from holdfast.store.inbox import Letter, Post
from holdfast.store.platforms import Link

logger = logging.getLogger(__name__)
PREFIX = "in-"
MAX_PAYLOAD = 32 * 1024 * 1024
"""Characters of a payload that are kept; a longer one is not understood."""
NO_CHAT = "?"
"""The chat of what could not be understood."""

Read = Callable[[str], Incoming]


class Intake:
    """The inlet of one platform, and the one who says how its connection is."""

    def __init__(self, ground: Ground, name: str, read: Read) -> None:
        self._ground = ground
        self._name = name
        self._read = read

    async def take(self, payloads: Sequence[str | bytes], position: str | None = None) -> None:
        posts = [understand(self._ground.ids.make(PREFIX), payload, self._read) for payload in payloads]
        at = self._ground.clock.now()
        for taken in await self._ground.database.write(inbox.put, self._name, posts, at=at, position=position):
            if taken.new and taken.post.fault:
                logger.warning(
                    "%s: a message was not understood (%s); it is kept as %s",
                    self._name,
                    taken.post.fault,
                    taken.post.id,
                )
            elif taken.changed:
                logger.warning(
                    "%s: message %s of %s came again with other words; the first ones stand",
                    self._name,
                    taken.post.message,
                    taken.post.chat,
                )

    async def connected(self) -> None:
        await self._note("connected", "")

    async def troubled(self, error: str) -> None:
        logger.warning("%s: %s", self._name, error)
        await self._note("down", error)

    async def _note(self, state: Link, error: str) -> None:
        at = self._ground.clock.now()
        await self._ground.database.write(platforms.note, self._name, self._ground.worker_id, state, error=error, at=at)


def understand(letter_id: str, payload: str | bytes, read: Read) -> Post:
    """A payload as it is kept. Whatever is wrong with it is a fault of the payload, and no error."""
    text = payload.decode("utf-8", "surrogateescape") if isinstance(payload, bytes) else payload
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    kept = dumps(text[:MAX_PAYLOAD])
    found, fault = _read(text, read)
    if found is None:
        return Post(letter_id, NO_CHAT, f"sha256:{digest}", kept, digest, fault)
    return Post(letter_id, found.chat, found.message, kept, digest)


def _read(text: str, read: Read) -> tuple[Incoming | None, str]:
    if len(text) > MAX_PAYLOAD:
        return None, f"it is longer than {MAX_PAYLOAD:,} characters"
    try:
        found = read(text)
        for name in (found.chat, found.message):
            if not name or "\0" in name or len(name) > 500:
                return None, "it has no name that could be kept"
            name.encode("utf-8")
    except Exception as e:  # noqa: BLE001 # whatever a payload does to its reader, it is kept with the reason
        return None, reason(e)
    return found, ""


def payload_of(letter: Letter) -> str:
    """The payload of a letter as it came."""
    import json

    text = json.loads(letter.payload)
    assert isinstance(text, str), "payloads are kept as texts"
    return text
