"""Encrypted rooms of a real homeserver, with matrix-nio's client as the other side."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nio import Api
from nio.crypto import OlmDevice, decrypt_attachment, encrypt_attachment

from holdfast.gateway.platforms.matrix import login
from holdfast.gateway.platforms.matrix.platform import Matrix
from holdfast.gateway.platforms.matrix.rooms import KeyMissing
from holdfast.gateway.port import Incoming, Outgoing, Platform, PlatformOptions, Rejected, Sent
from holdfast.model.errors import Invalid, Unavailable
from tests.fakes.clock import FakeClock
from tests.gateway import synapse
from tests.gateway.crash_loop import MESSAGES, choose_crash_points
from tests.gateway.encrypted_person import EncryptedPerson
from tests.gateway.platforms.test_matrix import assert_one_turn_each, survive_kills

pytestmark = [pytest.mark.clients, pytest.mark.timeout(200 + MESSAGES)]
CONFIG = """
model = "scripted:echo"
[agent]
titles = false
[gateway.matrix]
homeserver = "{url}"
user = "{user}"
password = "{password}"
allow = ["{person}"]
tell_queued = false
{more}
"""


class Agent:
    """The account of the agent, and its home."""

    def __init__(self, homeserver: str, home: Path, name: str) -> None:
        self.homeserver, self.home, self._name = homeserver, home, name
        self.user = f"@{name}:{synapse.NAME}"

    async def register(self, person: str, more: str = "") -> None:
        await synapse.register(self.homeserver, self._name)
        self.home.mkdir(mode=0o700)
        password = f"password of {self._name}"
        text = CONFIG.format(url=self.homeserver, user=self.user, password=password, person=person, more=more)
        (self.home / "config.toml").write_text(text)

    def options(self, **more: object) -> PlatformOptions:
        given = {"homeserver": self.homeserver, "user": self.user, "password": f"password of {self._name}", **more}
        return PlatformOptions("matrix", given, self.home / "platforms" / "matrix")


@pytest.fixture
async def alice(homeserver: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[EncryptedPerson]:
    person = EncryptedPerson(homeserver, f"alice-{tmp_path.name}".lower(), tmp_path / "alice")
    await person.register()
    yield person
    await person.close()


@pytest.fixture
async def agent(homeserver: str, tmp_path: Path, alice: EncryptedPerson) -> Agent:
    made = Agent(homeserver, tmp_path / "home", f"agent-{tmp_path.name}".lower())
    await made.register(alice.client.user_id)
    return made


class Collected:
    """An intake that keeps what it gets in memory."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.messages: list[Incoming] = []
        self.position = ""
        self._arrived = asyncio.Event()

    async def take(self, payloads: list[str], position: str | None = None) -> None:
        read = [self._platform.read(payload) for payload in payloads]
        self.messages += [one for one in read if not one.ignored]
        self.position = position or self.position
        self._arrived.set()

    async def report_connected(self) -> None: ...

    async def report_down(self, error: str) -> None: ...

    async def collect(self, count: int, begin: str = "") -> list[Incoming]:
        """Receive until there are that many messages; a count of zero takes one sync."""
        receiving = asyncio.ensure_future(self._platform.receive(self, begin))  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(60):
                while len(self.messages) < count or not self.position:
                    self._arrived.clear()
                    waiting = asyncio.ensure_future(self._arrived.wait())
                    await asyncio.wait({waiting, receiving}, return_when=asyncio.FIRST_COMPLETED)
                    waiting.cancel()
                    if receiving.done():
                        receiving.result()
        finally:
            receiving.cancel()
            await asyncio.wait({receiving})
        return self.messages


async def join(platform: Platform, alice: EncryptedPerson, room: str) -> str:
    """Let the agent accept the invitation; returns the position after that."""
    intake = Collected(platform)
    await intake.collect(0)
    await alice.joined(room)
    return intake.position


@pytest.mark.process
async def test_encrypted_messages_survive_kills_at_every_point(alice: EncryptedPerson, agent: Agent) -> None:
    count = await survive_kills(agent.home, alice, agent.user, choose_crash_points(seed=11))

    assert alice.readable == [], "nothing is sent in plain text"
    await assert_one_turn_each(agent.home, count)
    keys = agent.home / "platforms" / "matrix"
    assert keys.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in keys.iterdir()} == {0o600}


async def test_messages_and_files_are_encrypted_in_both_directions(
    alice: EncryptedPerson, agent: Agent, tmp_path: Path
) -> None:
    room = await alice.invite(agent.user)
    (tmp_path / "plan.txt").write_bytes(b"a plan")
    async with login.connect(agent.options(), FakeClock()) as platform:
        begin = await join(platform, alice, room)
        await alice.say(room, "a secret")
        await send_file(alice, room, b"an encrypted picture")
        intake = Collected(platform)
        said, shown = await intake.collect(2, begin)
        await platform.fetch(shown.attachments[0], tmp_path / "fetched", 100)
        sent = await platform.send(Outgoing(chat=room, text="an answer", key="out-1-1"))
        again = await platform.send(Outgoing(chat=room, text="an answer", key="out-1-1"))
        await platform.send(Outgoing(chat=room, text="", key="out-2-1", file=tmp_path / "plan.txt"))
        assert await alice.hear(room, 1) == ["an answer"]
        await alice.listen(0.5)

    assert (said.text, said.unreadable, said.private) == ("a secret", "", True)
    assert (tmp_path / "fetched").read_bytes() == b"an encrypted picture"
    assert isinstance(sent, Sent)
    assert sent == again, "the server recognises a repeat, although its ciphertext differs"
    [file] = alice.files
    cipher = await alice.client.download(file.url)
    assert b"a plan" not in bytes(cipher.body)
    assert decrypt_attachment(cipher.body, file.key["k"], file.hashes["sha256"], file.iv) == b"a plan"
    assert alice.readable == []


async def send_file(alice: EncryptedPerson, room: str, content: bytes) -> None:
    cipher, keys = encrypt_attachment(content)

    answer, _ = await alice.client.upload(lambda *_: cipher, "application/octet-stream", filesize=len(cipher))
    info = {"mimetype": "image/png", "size": len(content)}
    file = {"msgtype": "m.image", "body": "x.png", "info": info, "file": {**keys, "url": answer.content_uri}}
    await alice.client.room_send(room, "m.room.message", file, ignore_unverified_devices=True)


async def test_the_device_is_verified_by_its_own_account(alice: EncryptedPerson, agent: Agent) -> None:
    for _ in range(2):  # the second time, it is there already
        async with login.connect(agent.options(), FakeClock()):
            pass
    method, path, data = Api.keys_query(alice.client.access_token, [agent.user])
    answer = await (await alice.client.send(method, path, data)).json()

    [device] = answer["device_keys"][agent.user].values()
    [signing] = answer["self_signing_keys"][agent.user]["keys"]
    assert signing in device["signatures"][agent.user]
    [master] = answer["master_keys"][agent.user]["keys"]
    assert master in answer["self_signing_keys"][agent.user]["signatures"][agent.user]


async def test_a_message_waits_for_its_key_also_across_a_restart(alice: EncryptedPerson, agent: Agent) -> None:
    clock = FakeClock()
    room = await alice.invite(agent.user)
    async with login.connect(agent.options(), clock) as platform:
        begin = await join(platform, alice, room)
        device = await alice.device_of(agent.user)
        alice.client.blacklist_device(device)
        alice.client.olm.create_outbound_group_session(room)
        key = alice.client.olm.outbound_group_sessions[room].session_key
        await alice.say(room, "early")
        intake = Collected(platform)
        await intake.collect(0, begin)
        position = intake.position
    assert intake.messages == []
    async with login.connect(agent.options(), clock) as platform:
        await send_room_key(alice, room, device, key)
        intake = Collected(platform)
        [message] = await intake.collect(1, position)

    assert message.text == "early"


async def send_room_key(alice: EncryptedPerson, room: str, device: OlmDevice, key: str) -> None:
    """Send the current key of the room to one device, which did not get it."""
    olm = alice.client.olm
    if not olm.session_store.get(device.curve25519):
        await alice.client.keys_claim({device.user_id: [device.id]})
    group = olm.outbound_group_sessions[room]
    content = {"algorithm": olm._megolm_algorithm, "room_id": room, "session_id": group.id, "session_key": key}
    session = olm.session_store.get(device.curve25519)
    message = olm._olm_encrypt(session, device, "m.room_key", content)
    body = {"messages": {device.user_id: {device.id: message}}}
    method, path, data = Api.to_device(alice.client.access_token, "m.room.encrypted", body, "late")
    await alice.client.send(method, path, data)


async def test_a_message_whose_key_never_arrives_is_answered(alice: EncryptedPerson, agent: Agent) -> None:
    clock = FakeClock()
    room = await alice.invite(agent.user)
    async with login.connect(agent.options(), clock) as platform:
        begin = await join(platform, alice, room)
        alice.client.blacklist_device(await alice.device_of(agent.user))
        await alice.say(room, "lost")
        intake = Collected(platform)
        await intake.collect(0, begin)
        clock.pass_seconds(61)
        alice.client.unblacklist_device(await alice.device_of(agent.user))
        alice.client.invalidate_outbound_session(room)
        await alice.say(room, "readable")
        messages = await intake.collect(2, intake.position)

    assert {(one.text, one.unreadable) for one in messages} == {("readable", ""), ("", "its key did not arrive")}


async def test_plain_text_in_an_encrypted_room_is_refused(alice: EncryptedPerson, agent: Agent) -> None:
    room = await alice.invite(agent.user)
    async with login.connect(agent.options(), FakeClock()) as platform:
        begin = await join(platform, alice, room)
        forged = synapse.Person(agent.homeserver, alice.client.user_id, alice.client.access_token)
        await forged.say(room, "obey")
        await forged.close()
        intake = Collected(platform)
        [message] = await intake.collect(1, begin)

    assert (message.text, message.unreadable) == ("", "it is not encrypted, although this room is")


async def test_only_trusted_devices_are_listened_to_and_written_to(
    homeserver: str, alice: EncryptedPerson, agent: Agent, tmp_path: Path
) -> None:
    other = EncryptedPerson(homeserver, alice.client.user, tmp_path / "other")
    await register_again(alice, other)
    fingerprint = alice.client.olm.account.identity_keys["ed25519"]
    room = await alice.invite(agent.user)
    trusted = agent.options(trusted_devices=[f"{fingerprint[:4]} {fingerprint[4:]}"])
    async with login.connect(trusted, FakeClock()) as platform:
        begin = await join(platform, alice, room)
        await other.joined(room)
        await alice.say(room, "from the trusted one")
        await other.say(room, "from the other")
        intake = Collected(platform)
        first, second = await intake.collect(2, begin)
        await platform.send(Outgoing(chat=room, text="for you alone", key="out-1-1"))
        assert await alice.hear(room, 1) == ["for you alone"]
        await other.listen(0.5)
    await other.close()

    assert (first.text, first.unreadable) == ("from the trusted one", "")
    assert second.text == ""
    assert "is not in trusted_devices" in second.unreadable
    assert other.heard.get(room) is None


async def register_again(alice: EncryptedPerson, other: EncryptedPerson) -> None:
    other.client.user = alice.client.user_id
    await other.log_in()


async def test_a_token_of_another_client_is_refused(alice: EncryptedPerson, agent: Agent) -> None:
    given = {"homeserver": agent.homeserver, "user": alice.client.user_id, "token": alice.client.access_token}
    options = PlatformOptions("matrix", given, agent.home / "platforms" / "matrix")

    with pytest.raises(Invalid, match="has encryption keys that are not in this home"):
        async with login.connect(options, FakeClock()):
            pass


async def test_without_encryption_nothing_is_sent_to_an_encrypted_room(alice: EncryptedPerson, agent: Agent) -> None:
    room = await alice.invite(agent.user)
    async with login.connect(agent.options(encryption=False), FakeClock()) as platform:
        await join(platform, alice, room)
        refused = await platform.send(Outgoing(chat=room, text="open", key="out-1-1"))

    assert isinstance(refused, Rejected)
    assert "encrypted" in refused.reason


async def test_what_was_not_committed_is_delivered_again(alice: EncryptedPerson, agent: Agent) -> None:
    room = await alice.invite(agent.user)
    async with login.connect(agent.options(), FakeClock()) as platform:
        begin = await join(platform, alice, room)
        await alice.say(room, "once")
        await Collected(platform).collect(1, begin)
    async with login.connect(agent.options(), FakeClock()) as platform:
        [message] = await Collected(platform).collect(1, begin)

    assert (message.text, message.unreadable) == ("once", "")


async def test_two_processes_never_use_the_same_keys(agent: Agent) -> None:
    async with login.connect(agent.options(), FakeClock()):
        with pytest.raises(Unavailable, match="another process uses the encryption keys"):
            async with login.connect(agent.options(), FakeClock()):
                pass


async def test_a_server_cannot_show_a_message_as_that_of_another_person(
    homeserver: str, alice: EncryptedPerson, agent: Agent, tmp_path: Path
) -> None:
    mallory = EncryptedPerson(homeserver, f"mallory-{tmp_path.name}".lower(), tmp_path / "mallory")
    await mallory.register()
    room = await alice.invite(agent.user, mallory.client.user_id)
    await mallory.client.join(room)
    async with login.connect(agent.options(), FakeClock()) as platform:
        begin = await join(platform, alice, room)
        await mallory.joined(room, 3)
        await mallory.say(room, "obey me")
        [said] = await Collected(platform).collect(1, begin)
        path = f"/_matrix/client/v3/rooms/{room}/event/{said.message}"
        answer = await mallory.client.send("GET", f"{path}?access_token={mallory.client.access_token}")
        forged = {**await answer.json(), "sender": alice.client.user_id}
        assert isinstance(platform, Matrix)
        assert platform.encryption is not None
        with pytest.raises(KeyMissing, match="its sender's device is unknown"):
            await platform.encryption.rooms.decrypt(room, forged)
    await mallory.close()

    assert (said.text, said.person, said.private) == ("obey me", mallory.client.user_id, False)


async def test_keys_that_cannot_be_saved_end_the_connection_and_nothing_is_lost(
    alice: EncryptedPerson, agent: Agent
) -> None:
    room = await alice.invite(agent.user)
    async with login.connect(agent.options(), FakeClock()) as platform:
        begin = await join(platform, alice, room)
        await alice.say(room, "while the keys are locked")
        [keys] = (agent.home / "platforms" / "matrix").glob("*.db")
        with contextlib.closing(sqlite3.connect(keys, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")  # as if the disk were full
            with pytest.raises(Unavailable, match="encryption keys cannot be saved"):
                await Collected(platform).collect(1, begin)
            other.execute("ROLLBACK")
    async with login.connect(agent.options(), FakeClock()) as platform:
        [message] = await Collected(platform).collect(1, begin)

    assert message.text == "while the keys are locked"
