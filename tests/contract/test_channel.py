"""What every messaging platform has to do: Matrix and e-mail with real servers, the others with stand-ins."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.engine.together import stop
from holdfast.gateway.inlet import understand
from holdfast.gateway.port import Incoming, Later, Never, Outgoing, Platform, Sent, Unsure
from holdfast.model.errors import Unavailable
from holdfast.store.outbox import Choice
from tests.contract.channel_subjects import SUBJECTS as STAND_INS
from tests.contract.channel_subjects import Subject
from tests.contract.server_subjects import SUBJECTS as SERVERS

SUBJECTS = STAND_INS | SERVERS
pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(180),  # the first one of a kind starts a server
    pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning"),  # the library warns itself
]


class Notes:
    """An inlet that writes down what comes, or fails to."""

    def __init__(self) -> None:
        self.payloads: list[str | bytes] = []
        self.position = ""
        self.refusing = 0
        """How many of the next payloads are not kept."""
        self.refused = 0
        self._news = asyncio.Condition()
        self._connected = asyncio.Event()

    async def take(self, payloads: Sequence[str | bytes], position: str | None = None) -> None:
        if payloads and self.refusing:
            self.refusing -= 1
            self.refused += 1
            async with self._news:
                self._news.notify_all()
            raise Unavailable("the store is away")
        self.payloads += payloads
        self.position = position if position is not None else self.position
        async with self._news:
            self._news.notify_all()

    async def connected(self) -> None:
        self._connected.set()

    async def troubled(self, error: str) -> None:
        raise AssertionError(error)

    def begin_anew(self) -> None:
        self._connected.clear()

    async def until_connected(self, receiving: "asyncio.Task[None]") -> None:
        """Raises what kept the platform from being reached."""
        waiting = asyncio.ensure_future(self._connected.wait())
        await asyncio.wait({waiting, receiving}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if receiving.done():
            receiving.result()
        assert self._connected.is_set(), "the platform was not reached"

    async def until(self, count: int) -> None:
        await self.until_so(lambda: len(self.payloads) >= count)

    async def until_refused(self) -> None:
        await self.until_so(lambda: self.refused > 0)

    async def until_so(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20), self._news:
            await self._news.wait_for(holds)


def understood(platform: Platform, notes: Notes) -> list[Incoming]:
    """What was brought and makes sense."""
    posts = [understand("in-1", payload, platform.read) for payload in notes.payloads]
    texts = [one.decode("utf-8", "surrogateescape") if isinstance(one, bytes) else one for one in notes.payloads]
    return [platform.read(text) for text, post in zip(texts, posts, strict=True) if not post.fault]


@pytest.fixture(params=SUBJECTS)
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    async with SUBJECTS[request.param](request) as made:
        yield made


@asynccontextmanager
async def receiving(subject: Subject, notes: Notes) -> AsyncIterator[Platform]:
    """The platform connected, and bringing what there is."""
    async with subject.connect() as platform:
        notes.begin_anew()
        task = asyncio.create_task(platform.receive(notes, notes.position))
        try:
            await notes.until_connected(task)
            yield platform
        finally:
            await stop(task)


def all_but(*names: str) -> pytest.MarkDecorator:
    """For what these platforms do not have."""
    return pytest.mark.parametrize("subject", [name for name in SUBJECTS if name not in names], indirect=True)


def out(subject: Subject, text: str = "hello", **more: object) -> Outgoing:
    return Outgoing(**{"chat": subject.chat, "text": text, "key": "out-1-1", "reply_to": "", **more})  # type: ignore[arg-type]


async def test_what_is_said_is_brought_in_order_and_understood(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        for number in range(5):
            await subject.say(f"number {number}")
        await notes.until(5)
        found = understood(platform, notes)

    assert [one.text for one in found] == [f"number {number}" for number in range(5)]
    assert {one.chat for one in found} == {subject.chat}
    assert len({one.message for one in found}) == 5
    assert all(one.person and one.private and not one.ignored for one in found)


async def test_what_is_brought_again_has_the_same_name(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        await subject.say("once")
        await notes.until(1)
        await subject.say_again()
        await notes.until(2)
        first, second = understood(platform, notes)

    assert (first.chat, first.message) == (second.chat, second.message)


@all_but("fake", "discord")  # a queue in memory forgets; Discord's channels are read again, which its own test shows
async def test_what_was_not_kept_is_brought_again(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes):
        await subject.say("kept")
        await notes.until(1)
    notes.refusing = 1
    async with receiving(subject, notes) as platform:
        saying = asyncio.create_task(subject.say("not kept at first"))
        await notes.until_refused()
    async with receiving(subject, notes) as platform:
        await notes.until(2)
        await saying
        texts = [one.text for one in understood(platform, notes)]

    assert "not kept at first" in texts
    assert texts[0] == "kept"


async def test_what_makes_no_sense_is_handed_on_and_stops_nothing(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        await subject.be_odd()
        await subject.say("still there?")
        await notes.until(2)
        found = understood(platform, notes)

    assert [one.text for one in found] == ["still there?"]


async def test_a_message_arrives_and_has_a_name(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        fate = await platform.send(out(subject))

    assert isinstance(fate, Sent)
    assert await subject.heard() == ["hello"]


async def test_a_text_of_the_greatest_length_arrives_whole(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        text = "x" * platform.limits.text
        fate = await platform.send(out(subject, text))

    assert isinstance(fate, Sent)
    assert await subject.heard() == [text]


async def test_a_platform_that_says_so_knows_what_is_sent_again(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        message = out(subject, reply_to="77")
        fates = [await platform.send(message) for _ in range(2)]
        keyed = platform.limits.keyed

    assert all(isinstance(fate, Sent) for fate in fates)
    assert len(await subject.heard()) == (1 if keyed else 2)


async def test_a_message_can_be_changed_where_that_is_said(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        sent = await platform.send(out(subject, "first"))
        assert isinstance(sent, Sent)
        fate = await platform.edit(subject.chat, sent.remote, "second")
        edits = platform.limits.edits

    assert isinstance(fate, Sent if edits else Never)
    assert await subject.heard() == ["second" if edits else "first"]


@all_but("discord")  # its library waits and asks again by itself
async def test_a_refusal_for_the_time_being_is_no_failure(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        subject.be_busy()
        refused, taken = await platform.send(out(subject)), await platform.send(out(subject))

    assert isinstance(refused, Later)
    assert isinstance(taken, Sent)
    assert await subject.heard() == ["hello"]


@all_but("discord")  # its library waits and asks again by itself
async def test_an_answer_that_is_lost_is_a_doubt(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        subject.lose_answer()
        fate = await platform.send(out(subject))

    assert isinstance(fate, Unsure)
    assert await subject.heard() == ["hello"]


@all_but("fake")
async def test_a_chat_that_is_not_there_is_never_written_to(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        fate = await platform.send(out(subject, chat=subject.gone))

    assert isinstance(fate, Never)
    assert await subject.heard() == []


@all_but("dingtalk", "qq", "matrix", "email")  # there, yes and no are said
async def test_a_button_brings_back_what_it_belongs_to(subject: Subject) -> None:
    notes = Notes()
    choices = (Choice("allow", "Allow"), Choice("deny", "Deny"))
    async with receiving(subject, notes) as platform:
        assert isinstance(await platform.send(out(subject, choices=choices, about="out-7")), Sent)
        await subject.press(1)
        await notes.until_so(lambda: any(one.pressed for one in understood(platform, notes)))
        pressed = [one for one in understood(platform, notes) if one.pressed]

    assert [(one.chat, one.pressed, one.about) for one in pressed] == [(subject.chat, "deny", "out-7")]


@all_but("dingtalk", "qq")
async def test_a_file_arrives_with_its_name_and_content(subject: Subject, tmp_path: Path) -> None:
    notes = Notes()
    (tmp_path / "plan.txt").write_bytes(b"a plan")
    async with receiving(subject, notes) as platform:
        fate = await platform.send(out(subject, "plan.txt", file=tmp_path / "plan.txt"))

    assert isinstance(fate, Sent)
    assert await subject.received() == [("plan.txt", b"a plan")]


async def test_signs_of_typing_disturb_nobody(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        await platform.typing(subject.chat)
        await platform.typing(subject.gone or subject.chat)

    assert await subject.heard() == []


@all_but("webhook", "slack", "dingtalk", "qq", "email")
async def test_signs_of_typing_are_shown_where_there_are_some(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        before = await subject.saw_typing()
        await platform.typing(subject.chat)

        assert not before
        assert await subject.saw_typing()


@all_but("fake", "webhook", "telegram", "telegram webhook", "matrix", "email")  # there nothing stays open
async def test_a_connection_that_the_platform_closes_is_opened_anew(subject: Subject) -> None:
    notes = Notes()

    async def keep() -> None:
        """As the gateway does it."""
        while True:
            try:
                async with subject.connect() as platform:
                    await platform.receive(notes, notes.position)
            except Unavailable:
                await asyncio.sleep(0.1)

    keeping = asyncio.create_task(keep())
    await notes.until_connected(keeping)
    await subject.say("before")
    await notes.until(1)
    notes.begin_anew()
    await subject.hang_up()
    await notes.until_connected(keeping)
    await subject.say("after")
    await notes.until_so(lambda: any("after" in str(one) for one in notes.payloads))
    await stop(keeping)
