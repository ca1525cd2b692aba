"""What a room says about its members and its encryption, and why a message in it cannot be read."""

from holdfast.gateway.platforms.matrix.homeserver import Homeserver, Json, ServerRefusal

ENCRYPTION = "m.room.encryption"
MEMBER = "m.room.member"


class KeyMissing(Exception):
    """What is needed to read a message has not arrived yet; the text says what."""


class Undecryptable(Exception):
    """A message can never be decrypted, or must not be trusted; the text says why."""


async def is_encrypted_on_server(server: Homeserver, room_id: str) -> bool:
    """Whether the server says that the room is encrypted. Raises Unavailable or ServerRefusal."""
    try:
        await server.get("rooms", room_id, "state", ENCRYPTION, "")
    except ServerRefusal as e:
        if e.code == "M_NOT_FOUND":
            return False
        raise
    return True


def is_encryption_event(event: object) -> bool:
    """Whether the event turns encryption on."""
    return isinstance(event, dict) and event.get("type") == ENCRYPTION and "state_key" in event


def find_changes(synced: Json) -> tuple[set[str], set[str]]:
    """The rooms of a sync whose members changed, and those that became encrypted."""
    members: set[str] = set()
    encrypted: set[str] = set()
    for room_id, room in synced.get("rooms", {}).get("join", {}).items():
        events = [event for part in ("state", "timeline") for event in room.get(part, {}).get("events", [])]
        if any(isinstance(event, dict) and event.get("type") == MEMBER for event in events):
            members.add(room_id)
        if any(map(is_encryption_event, events)):
            encrypted.add(room_id)
    return members, encrypted
