"""The keys of our device, and what it knows of other devices, in a SQLite database in the home directory.

Everything here blocks: it runs in one thread, which `encryption.py` owns. The state is saved before anything that depends
on it leaves this machine, and what a sync brings is saved as one transaction: after a crash the server delivers it again.
"""

import hashlib
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from nio import Event, KeysClaimResponse, KeysQueryResponse, MegolmEvent, ToDeviceEvent
from nio.crypto import Olm, OlmDevice
from nio.event_builders import ToDeviceMessage
from nio.events.to_device import OlmEvent
from nio.exceptions import EncryptionError
from nio.responses import ToDeviceResponse
from nio.store import SqliteStore

from holdfast.gateway.platforms.matrix.rooms import KeyMissing, Undecryptable
from holdfast.model.errors import Unavailable

logger = logging.getLogger(__name__)
Json = dict[str, Any]
ONE_TIME_KEYS = "signed_curve25519"


class KnownNoise(logging.Filter):
    """Drops what the library logs as errors when a server delivers messages for this device again, as after a crash."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(
            ("Found matching session yet", "Attempted to mark device", "Missing session")
        )


logging.getLogger("nio.crypto.log").addFilter(KnownNoise())


class RoomKeyShare(msgspec.Struct, frozen=True):
    """Messages that give the key of a room to other devices, and these devices."""

    devices: set[tuple[str, str]]
    messages: Json


class DeviceKeys:
    """`trusted` are the fingerprints of the devices that may read and write; if empty, every device of a member may."""

    def __init__(self, folder: Path, user: str, device: str, trusted: frozenset[str]) -> None:
        name = f"{hashlib.sha256(f'{user} {device}'.encode()).hexdigest()[:16]}.db"
        self._store = SqliteStore(user, device, str(folder), database_name=name)
        (folder / name).chmod(0o600)
        self._olm = Olm(user, device, self._store)
        if self._olm.account.shared:
            self._olm.mark_keys_as_published()  # they were saved to be uploaded: the server may have them
        self._trusted = trusted
        self.encrypted_rooms: set[str] = set(self._store.load_encrypted_rooms())
        self.token: str = self._store.load_sync_token() or ""
        """The sync up to which messages for this device were taken."""

    @property
    def identity_keys(self) -> dict[str, str]:
        return dict(self._olm.account.identity_keys)

    def close(self) -> None:
        self._store.database.close()

    def absorb(self, messages: list[Json], key_count: int | None, encrypted: set[str], token: str) -> None:
        """Take the messages for this device. Raises an error of the database; then this object must not be used again."""
        if key_count is not None:
            self._olm.uploaded_key_count = key_count
        if not messages and encrypted <= self.encrypted_rooms:
            return
        with self._store.database.atomic():
            for message in messages:
                self._take(message)
            if messages:
                self._olm.save_account()
                self._store.save_sync_token(token)
                self.token = token
            self._store.save_encrypted_rooms(encrypted)
        self.encrypted_rooms |= encrypted

    def _take(self, message: Json) -> None:
        """Decrypt a message for this device; it may bring the key of a room. One that is malformed is skipped."""
        try:
            event = ToDeviceEvent.parse_event(message)
            if isinstance(event, OlmEvent):
                self._olm.decrypt_event(event)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            logger.warning("Matrix: skipped a malformed message for this device: %s", e)

    def note_encrypted(self, room_id: str) -> None:
        self._store.save_encrypted_rooms({room_id})
        self.encrypted_rooms.add(room_id)

    def make_upload(self) -> Json | None:
        """The keys that the server needs; None if it has enough. They are saved first."""
        if not self._olm.should_upload_keys:
            return None
        keys: Json = self._olm.share_keys()
        self._olm.save_account()
        return keys

    def sign(self, content: Json) -> str:
        return str(self._olm.sign_json(content))

    def record_upload(self, response: Json) -> None:
        self._olm.account.shared = True
        self._olm.uploaded_key_count = int(response.get("one_time_key_counts", {}).get(ONE_TIME_KEYS, 0))
        self._olm.mark_keys_as_published()
        self._olm.save_account()

    def record_query(self, response: Json) -> None:
        """Take the devices of users. If any changed, rooms get a new key with the next message."""
        found = KeysQueryResponse.from_dict(response)
        if not isinstance(found, KeysQueryResponse):
            raise Unavailable("the server's response with device keys is malformed")
        self._olm.handle_response(found)
        if found.changed:
            self._olm.outbound_group_sessions.clear()

    def forget_room_keys(self, rooms: Iterable[str]) -> None:
        """Use a new key for these rooms: somebody joined or left."""
        for room_id in rooms:
            self._olm.outbound_group_sessions.pop(room_id, None)

    def list_missing_sessions(self, users: list[str]) -> dict[str, list[str]]:
        """The devices of these users, and those with a broken session, that we cannot write to yet."""
        missing = {user: list(devices) for user, devices in self._olm.get_missing_sessions(users).items()}
        for device in self._olm.wedged_devices:
            missing.setdefault(device.user_id, []).append(device.id)
        return missing

    def record_claim(self, response: Json) -> None:
        found = KeysClaimResponse.from_dict(response)
        if not isinstance(found, KeysClaimResponse):
            raise Unavailable("the server's response with one-time keys is malformed")
        self._olm.handle_response(found)

    @property
    def has_broken_sessions(self) -> bool:
        return bool(self._olm.wedged_devices)

    def list_outgoing(self) -> list[ToDeviceMessage]:
        return list(self._olm.outgoing_to_device_messages)

    def record_sent(self, message: ToDeviceMessage) -> None:
        self._olm.handle_response(ToDeviceResponse(message))

    def must_share(self, room_id: str) -> bool:
        """Whether the room needs a new key, or its key was not given to everybody."""
        return bool(self._olm.should_share_group_session(room_id))

    def make_shares(self, room_id: str, users: list[str]) -> list[RoomKeyShare]:
        """What gives the current key of the room to the devices of these users."""
        for device in self._devices(users):
            if self._trusts(device):
                self._olm.unblacklist_device(device)
            else:
                self._olm.blacklist_device(device)
        shares = self._olm.share_group_session_parallel(room_id, users, ignore_unverified_devices=True)
        return [RoomKeyShare(devices, messages) for devices, messages in shares]

    def _devices(self, users: list[str]) -> list[OlmDevice]:
        return [device for user in users for device in self._olm.device_store.active_user_devices(user)]

    def _trusts(self, device: OlmDevice) -> bool:
        return not self._trusted or device.ed25519 in self._trusted

    def record_shared(self, room_id: str, shares: list[RoomKeyShare]) -> None:
        session = self._olm.outbound_group_sessions[room_id]
        for share in shares:
            session.users_shared_with |= share.devices
        session.mark_as_shared()

    def encrypt(self, room_id: str, kind: str, content: Json) -> Json:
        """The content of the encrypted event. What it relates to stays readable, as the server needs it."""
        relates = content.get("m.relates_to")
        hidden = {key: value for key, value in content.items() if key != "m.relates_to"}
        encrypted: Json = self._olm.group_encrypt(room_id, {"type": kind, "content": hidden})
        return encrypted if relates is None else {**encrypted, "m.relates_to": relates}

    def decrypt(self, room_id: str, given: Json) -> Json:
        """The event in plain text. Raises KeyMissing or Undecryptable."""
        event = Event.parse_encrypted_event(given)
        if not isinstance(event, MegolmEvent):
            raise Undecryptable("its encryption is not supported")
        session = self._olm.inbound_group_store.get(room_id, event.sender_key, event.session_id)
        if session is None:
            self._olm.check_if_wedged(event)
            raise KeyMissing("its key did not arrive")
        try:
            found = self._olm.decrypt_megolm_event(event, room_id)
            plain = found.source
        except (EncryptionError, ValueError, KeyError, TypeError, AttributeError) as e:
            raise Undecryptable(f"it cannot be decrypted: {e}") from e
        device = self._olm.device_store.device_from_sender_key(event.sender, event.sender_key)
        if device is None:
            raise KeyMissing("its sender's device is unknown")
        if device.ed25519 != session.ed25519:
            raise Undecryptable("its key belongs to no device of the sender")
        if not self._trusts(device):
            raise Undecryptable(
                f"the device {device.id} with the fingerprint {device.ed25519} is not in trusted_devices"
            )
        return {**given, "type": plain["type"], "content": plain["content"]}
