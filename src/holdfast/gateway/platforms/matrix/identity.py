"""The account's cross-signing identity: it says that our device belongs to the account.

Clients such as Element warn about a device without it, or do not write to it. An account that has none gets one here; its
private keys are in the home directory. An identity that another client made cannot be used: its keys are not here.
"""

import asyncio
import json
import logging
from pathlib import Path

import msgspec
import vodozemac
from nio import Api

from holdfast.gateway.platforms.matrix.device_keys import DeviceKeys
from holdfast.gateway.platforms.matrix.homeserver import Homeserver, Json, ServerRefusal
from holdfast.store import atomic_file

logger = logging.getLogger(__name__)
FILE = "identity.json"
USAGES = ("master", "self_signing", "user_signing")
PICKLE_KEY = bytes(32)
"""The file itself is private; a key beside it would add nothing."""


class SigningKeys(msgspec.Struct, frozen=True):
    """The three private keys of an identity."""

    master: vodozemac.Account
    self_signing: vodozemac.Account
    user_signing: vodozemac.Account

    @property
    def master_key(self) -> str:
        return str(self.master.ed25519_key.to_base64())


async def sign_device(
    server: Homeserver, keys: DeviceKeys, folder: Path, owner: tuple[str, str], password: str
) -> None:
    """Let the account's identity sign our device, unless it did. A failure is logged: messages work without it."""
    user, device = owner
    try:
        found = await server.post("keys", "query", body={"device_keys": {user: []}})
        published = _public_key(found.get("master_keys", {}).get(user, {}))
        ours = await asyncio.to_thread(_load, folder, create=not published)
        if ours is None or (published and published != ours.master_key):
            logger.warning(
                "Matrix: %s was verified by another client; verify the device %s (%s) there",
                *(user, device, keys.identity_keys["ed25519"]),
            )
            return
        if not published:
            await _publish(server, user, ours, keys, device, password)
        theirs = found["device_keys"][user][device]
        if f"ed25519:{ours.self_signing.ed25519_key.to_base64()}" not in theirs.get("signatures", {}).get(user, {}):
            await server.post(
                "keys", "signatures", "upload", body={user: {device: _sign(theirs, user, ours.self_signing)}}
            )
    except (ServerRefusal, KeyError) as e:
        logger.warning("Matrix: the device %s could not be verified; clients may warn about it: %s", device, e)


def _load(folder: Path, *, create: bool) -> SigningKeys | None:
    """The keys in the folder; new ones if there are none and they may be created."""
    file = folder / FILE
    if file.exists():
        pickles = json.loads(file.read_text())
        return SigningKeys(*(vodozemac.Account.from_pickle(pickles[usage], PICKLE_KEY) for usage in USAGES))
    if not create:
        return None
    made = SigningKeys(vodozemac.Account(), vodozemac.Account(), vodozemac.Account())
    with atomic_file.new_file(file) as stream:
        json.dump({usage: getattr(made, usage).pickle(PICKLE_KEY) for usage in USAGES}, stream)
    return made


async def _publish(
    server: Homeserver, user: str, ours: SigningKeys, keys: DeviceKeys, device: str, password: str
) -> None:
    """Upload the identity. Servers may ask for the password."""
    body = {f"{usage}_key": _describe(user, usage, getattr(ours, usage)) for usage in USAGES}
    for usage in ("self_signing", "user_signing"):
        body[f"{usage}_key"] = _sign(body[f"{usage}_key"], user, ours.master)
    master = body["master_key"]
    body["master_key"] = {**master, "signatures": {user: {f"ed25519:{device}": keys.sign(dict(master))}}}
    try:
        await server.post("keys", "device_signing", "upload", body=body)
    except ServerRefusal as e:
        if e.status != 401 or "session" not in e.body or not password:
            raise
        login = {"type": "m.login.password", "identifier": {"type": "m.id.user", "user": user}, "password": password}
        await server.post(
            "keys", "device_signing", "upload", body={**body, "auth": {**login, "session": e.body["session"]}}
        )


def _describe(user: str, usage: str, key: vodozemac.Account) -> Json:
    public = key.ed25519_key.to_base64()
    return {"user_id": user, "usage": [usage], "keys": {f"ed25519:{public}": public}}


def _sign(content: Json, user: str, key: vodozemac.Account) -> Json:
    """The content with one signature more."""
    plain = {name: value for name, value in content.items() if name not in ("signatures", "unsigned")}
    signature = key.sign(Api.to_canonical_json(plain).encode()).to_base64()
    signatures = {**content.get("signatures", {}).get(user, {}), f"ed25519:{key.ed25519_key.to_base64()}": signature}
    return {**plain, "signatures": {user: signatures}}


def _public_key(content: Json) -> str:
    return next(iter(content.get("keys", {}).values()), "")
