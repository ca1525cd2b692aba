"""Decrypts the events of a sync before they are stored. An event whose key is missing waits for it, durably."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.gateway.platforms.matrix.homeserver import Json
from holdfast.gateway.platforms.matrix.rooms import KeyMissing, Undecryptable, is_encryption_event
from holdfast.gateway.platforms.matrix.waiting_events import WaitingEvents
from holdfast.model.times import Clock

if TYPE_CHECKING:
    from holdfast.gateway.platforms.matrix.encryption import RoomEncryption

ENCRYPTED = "m.room.encrypted"
NOT_ENCRYPTED = "it is not encrypted, although this room is"
NOT_TRUSTED = "it is not encrypted, and only trusted_devices are listened to"


class RoomEvent(msgspec.Struct, frozen=True):
    """An event in plain text, or why it cannot be read."""

    room: str
    event: Json
    unreadable: str = ""


class InboundDecryption:
    """`strict`: only encrypted messages are accepted, in all rooms."""

    def __init__(self, encryption: "RoomEncryption", folder: Path, clock: Clock, *, strict: bool) -> None:
        self._encryption = encryption
        self._waiting = WaitingEvents(folder, clock)
        self._strict = strict
        self._changed = False
        self._late: set[str] = set()

    async def open_all(
        self, room_id: str, events: list[Json], me: str, were_encrypted: frozenset[str]
    ) -> list[RoomEvent]:
        """The events of a room in plain text, without those that wait for their key.

        `were_encrypted` are the rooms that were encrypted before this sync; another one may have messages from before.
        """
        begin = next((index for index, event in enumerate(events) if is_encryption_event(event)), 0)
        opened: list[RoomEvent] = []
        for index, event in enumerate(events):
            plain = room_id not in were_encrypted and (index < begin or not self._encryption.was_encrypted(room_id))
            found = await self._open(room_id, event, me, plain=plain and not self._strict)
            opened += [] if found is None else [found]
        return opened

    async def _open(self, room_id: str, event: Json, me: str, *, plain: bool) -> RoomEvent | None:
        if not isinstance(event, dict) or event.get("sender") == me:
            return RoomEvent(room_id, event)
        if event.get("type") != ENCRYPTED:
            refusal = NOT_TRUSTED if self._strict else NOT_ENCRYPTED
            return RoomEvent(room_id, event, "" if plain else refusal)
        try:
            return RoomEvent(room_id, await self._encryption.decrypt(room_id, event))
        except KeyMissing as e:
            self._changed = True
            return None if self._waiting.add(room_id, event) else RoomEvent(room_id, event, str(e))
        except Undecryptable as e:
            return RoomEvent(room_id, event, str(e))

    async def open_late(self) -> list[RoomEvent]:
        """The waiting events whose key has arrived, and those that have waited long enough."""
        opened: list[RoomEvent] = []
        for one in self._waiting.list_all():
            try:
                opened.append(RoomEvent(one.room, await self._encryption.decrypt(one.room, one.event)))
            except KeyMissing as e:
                if not self._waiting.has_expired(one):
                    continue
                opened.append(RoomEvent(one.room, one.event, str(e)))
            except Undecryptable as e:
                opened.append(RoomEvent(one.room, one.event, str(e)))
            self._late.add(one.id)
        return opened

    async def save(self) -> None:
        """Make the waiting events durable, before the position moves past them."""
        if self._changed:
            await asyncio.to_thread(self._waiting.save)
            self._changed = False

    async def forget_late(self) -> None:
        """Remove the waiting events that are stored as messages now."""
        if self._late:
            self._waiting.remove(self._late)
            self._late = set()
            await asyncio.to_thread(self._waiting.save)
