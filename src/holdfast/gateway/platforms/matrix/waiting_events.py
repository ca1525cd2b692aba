"""Messages that arrived before the key to read them, in a file, so that a crash loses none."""

from pathlib import Path

import msgspec

from holdfast.gateway.platforms.matrix.homeserver import Json
from holdfast.model.times import SECOND, Clock
from holdfast.store import atomic_file

FILE = "waiting.json"
WAIT_SECONDS = 60
"""How long a message waits for its key. Keys normally arrive before the message."""
MAX_WAITING = 200


class WaitingEvent(msgspec.Struct, frozen=True):
    room: str
    event: Json
    until: int

    @property
    def id(self) -> str:
        return str(self.event.get("event_id"))


class WaitingEvents:
    def __init__(self, folder: Path, clock: Clock) -> None:
        self._file = folder / FILE
        self._clock = clock
        text = self._file.read_bytes() if self._file.exists() else b"[]"
        self._events = {one.id: one for one in msgspec.json.decode(text, type=list[WaitingEvent])}

    def list_all(self) -> list[WaitingEvent]:
        return list(self._events.values())

    def has_expired(self, one: WaitingEvent) -> bool:
        return self._clock.now() >= one.until

    def add(self, room_id: str, event: Json) -> bool:
        """Let an event wait; False if too many wait already. It is durable after `save`."""
        if len(self._events) >= MAX_WAITING:
            return False
        waiting = WaitingEvent(room_id, event, self._clock.now() + WAIT_SECONDS * SECOND)
        self._events.setdefault(waiting.id, waiting)
        return True

    def remove(self, ids: set[str]) -> None:
        self._events = {key: one for key, one in self._events.items() if key not in ids}

    def save(self) -> None:
        with atomic_file.new_file(self._file, replace=True) as stream:
            stream.write(msgspec.json.encode(list(self._events.values())).decode())
