"""Matrix against a real homeserver: the gateway is killed at every point, and no message is lost."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.gateway.platforms.matrix import login, parsing
from holdfast.gateway.port import Incoming, Outgoing, Platform, PlatformOptions, Rejected, Sent
from holdfast.safe_fetch import TooLarge
from holdfast.store.repos import inbox, session_list
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.tasks import running
from tests.fakes.clock import FakeClock
from tests.gateway import synapse
from tests.gateway.crash_loop import MESSAGES, CrashLoop, choose_crash_points
from tests.gateway.encrypted_person import EncryptedPerson
from tests.gateway.synapse import Person

pytestmark = [pytest.mark.clients, pytest.mark.timeout(200 + MESSAGES)]
ROOMS, AWAY = 4, 110
CONFIG = """
model = "scripted:echo"
[agent]
titles = false
[gateway.matrix]
homeserver = "{url}"
user = "{user}"
token = "{token}"
allow = ["{person}"]
tell_queued = false
"""


class Scene:
    def __init__(self, home: Path, alice: Person, agent: str) -> None:
        self.home = home
        self.alice = alice
        self.agent = agent


async def set_scene(homeserver: str, home: Path, name: str) -> Scene:
    user, token = await synapse.register(homeserver, f"agent-{name}")
    person, theirs = await synapse.register(homeserver, f"alice-{name}")
    home.mkdir()
    (home / "config.toml").write_text(CONFIG.format(url=homeserver, user=user, token=token, person=person))
    return Scene(home, Person(homeserver, person, theirs), user)


@pytest.mark.process
async def test_promise_21_messages_survive_kills_at_every_point(homeserver: str, tmp_path: Path) -> None:
    scene = await set_scene(homeserver, tmp_path / "home", "storm")
    count = await survive_kills(scene.home, scene.alice, scene.agent, choose_crash_points(seed=7))
    await scene.alice.close()

    await assert_one_turn_each(scene.home, count)


async def survive_kills(home: Path, alice: Person | EncryptedPerson, agent: str, points: list[str]) -> int:
    """Write in several rooms while the agent is killed at each point; every reply must arrive once and in order.

    Returns the number of messages.
    """
    async with CrashLoop(home, points) as loop:
        rooms = [await alice.invite(agent) for _ in range(ROOMS)]
        for room in rooms:
            await alice.joined(room, 2)
        for number in range(MESSAGES):
            await alice.say(rooms[number % ROOMS], f"message {number}")
            if number % 20 == 0:
                await alice.listen(0.5)
        async with asyncio.timeout(100 + MESSAGES):
            count = MESSAGES
            while (heard := sum(map(len, alice.heard.values()))) < count or not loop.is_finished:
                loop.check()
                if heard >= count:
                    await alice.say(rooms[0], f"message {count}")
                    count += 1
                await alice.listen(0.5)
        await alice.listen(2)
        assert len(loop.crashed) == len(points)
    for place, room in enumerate(rooms):
        numbers = [n for n in range(MESSAGES) if n % ROOMS == place]
        numbers += range(MESSAGES, count) if place == 0 else ()
        assert alice.heard[room] == [f"You said: message {n}" for n in numbers]
    return count


async def assert_one_turn_each(home: Path, count: int) -> None:
    database = await open_sqlite(home / "holdfast.db")
    try:
        page = await database.read(session_list.list_page, session_list.SessionFilters(), limit=100)
        assert sum(session.summary.turn_count for session in page.sessions) == count
        assert await database.read(inbox.count_by_state) == []
    finally:
        await database.close()


@pytest.mark.process
async def test_messages_sent_while_the_agent_was_offline_are_answered_in_order(homeserver: str, tmp_path: Path) -> None:
    scene = await set_scene(homeserver, tmp_path / "home", "away")
    alice = scene.alice
    async with CrashLoop(scene.home, ()):
        room = await alice.invite(scene.agent)
        await alice.joined(room, 2)
    for number in range(AWAY):  # more than one sync returns
        await alice.say(room, f"message {number}")
    async with CrashLoop(scene.home, ()) as loop, asyncio.timeout(120):
        while len(alice.heard.get(room, ())) < AWAY:
            loop.check()
            await alice.listen(0.5)
    await alice.close()

    assert alice.heard[room] == [f"You said: message {number}" for number in range(AWAY)]


async def test_the_server_recognises_a_duplicate(homeserver: str) -> None:
    user, token = await synapse.register(homeserver, "twice")
    options = PlatformOptions("matrix", {"homeserver": homeserver, "user": user, "token": token})
    async with login.connect(options, FakeClock()) as platform:
        client = synapse.Person(homeserver, user, token)
        room = await client.invite("@nobody:matrix.test")
        message = Outgoing(chat=room, text="once", key="out-1-1")
        first, second = await platform.send(message), await platform.send(message)
        refused = await platform.send(Outgoing(chat="!nowhere:matrix.test", text="x", key="out-2-1"))
        await client.close()

    assert isinstance(first, Sent)
    assert first == second
    assert isinstance(refused, Rejected)


class Intake:
    """Passes on what arrives."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._taken = asyncio.Queue[Incoming]()

    async def take(self, payloads: Sequence[str | bytes], position: str | None = None) -> None:
        for payload in payloads:
            self._taken.put_nowait(self._platform.read(str(payload)))

    async def report_connected(self) -> None:
        """Nobody asks."""

    async def report_down(self, error: str) -> None:
        raise AssertionError(error)

    async def wait_for(self, text: str) -> Incoming:
        async with asyncio.timeout(60):
            while (found := await self._taken.get()).text != text:
                pass
        return found


async def test_a_chat_is_no_longer_private_when_a_third_person_joins(homeserver: str) -> None:
    user, token = await synapse.register(homeserver, "counting")
    alice = Person(homeserver, *await synapse.register(homeserver, "alice-counting"))
    bob = Person(homeserver, *await synapse.register(homeserver, "bob-counting"))
    options = PlatformOptions("matrix", {"homeserver": homeserver, "user": user, "token": token})
    async with login.connect(options, FakeClock()) as platform:
        intake = Intake(platform)
        async with running(platform.receive(intake, "")):
            room = await alice.invite(user)
            await alice.joined(room, 2)
            await alice.say(room, "alone")
            alone = await intake.wait_for("alone")
            await alice.client.room_invite(room, bob.client.user_id)
            await bob.client.join(room)
            await alice.say(room, "together")
            together = await intake.wait_for("together")
    for person in (alice, bob):
        await person.close()

    assert alone.private
    assert not together.private


async def test_files_are_sent_and_fetched_up_to_the_limit(homeserver: str, tmp_path: Path) -> None:
    user, token = await synapse.register(homeserver, "files")
    options = PlatformOptions("matrix", {"homeserver": homeserver, "user": user, "token": token})
    (tmp_path / "plan.txt").write_bytes(b"a plan")
    client = synapse.Person(homeserver, user, token)
    room = await client.invite("@nobody:matrix.test")
    async with login.connect(options, FakeClock()) as platform:
        sent = await platform.send(Outgoing(chat=room, text="", key="out-1-1", file=tmp_path / "plan.txt"))
        assert isinstance(sent, Sent)
        event = (await client.client.room_get_event(room, sent.remote)).event.source
        payload = {"room": room, "people": 2, "me": "@other:x", "event": event}
        [found] = platform.read(json.dumps(payload)).attachments
        await platform.fetch(found, tmp_path / "fetched", 100)
        with pytest.raises(TooLarge):
            await platform.fetch(found, tmp_path / "no", 3)
    await client.close()

    assert found.name == "plan.txt"
    assert (tmp_path / "fetched").read_bytes() == b"a plan"


@pytest.mark.parametrize(
    ("content", "ignored"),
    [
        (
            {"msgtype": "m.text", "body": "* new", "m.relates_to": {"rel_type": "m.replace", "event_id": "$1"}},
            "an edit",
        ),
        ({"msgtype": "m.notice", "body": "beep"}, "notice of another bot"),
        ({}, "redacted"),
    ],
)
def test_edits_notices_and_own_messages_are_ignored(content: dict[str, object], ignored: str) -> None:
    event = {"type": "m.room.message", "event_id": "$2", "sender": "@alice:x", "content": content}
    read = parsing.parse_payload(json.dumps({"room": "!r", "people": 2, "me": "@agent:x", "event": event}))

    assert read.ignored == ignored


def test_threads_are_separate_chats_and_stickers_have_text() -> None:
    relates = {"rel_type": "m.thread", "event_id": "$root"}
    event = {
        "type": "m.sticker",
        "event_id": "$2",
        "sender": "@alice:x",
        "content": {"body": "a cat", "url": "mxc://x/y", "m.relates_to": relates},
    }
    read = parsing.parse_payload(json.dumps({"room": "!r", "people": 5, "me": "@agent:x", "event": event}))

    assert read.chat == "!r/$root"
    assert read.text == "[sticker: a cat]"
    assert not read.private
