"""The contract of every messaging platform: Matrix and e-mail with real servers, the others with fakes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.gateway import policy
from holdfast.gateway import setup as first_contact
from holdfast.gateway.intake import parse_payload
from holdfast.gateway.platforms import registry
from holdfast.gateway.port import (
    DeliveryUnknown,
    Incoming,
    Outgoing,
    Platform,
    PlatformOptions,
    Rejected,
    RetryLater,
    Sent,
)
from holdfast.gateway.recipes import RECIPES, find_problems
from holdfast.model.errors import Unavailable
from holdfast.store.repos.outbox import ReplyChoice
from holdfast.tasks import stop
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
    """An intake that records payloads, or fails to."""

    def __init__(self) -> None:
        self.payloads: list[str | bytes] = []
        self.position = ""
        self.refusing = 0
        """How many of the next payloads are not stored."""
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

    async def report_connected(self) -> None:
        self._connected.set()

    async def report_down(self, error: str) -> None:
        raise AssertionError(error)

    def begin_anew(self) -> None:
        self._connected.clear()

    async def until_connected(self, receiving: "asyncio.Task[None]") -> None:
        """Raises the error that prevented the connection."""
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
    """The received messages that can be parsed."""
    posts = [parse_payload("in-1", payload, platform.read) for payload in notes.payloads]
    texts = [one.decode("utf-8", "surrogateescape") if isinstance(one, bytes) else one for one in notes.payloads]
    return [platform.read(text) for text, post in zip(texts, posts, strict=True) if not post.fault]


@pytest.fixture(params=SUBJECTS)
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    async with SUBJECTS[request.param](request) as made:
        yield made


@asynccontextmanager
async def receiving(subject: Subject, notes: Notes) -> AsyncIterator[Platform]:
    """The platform, connected and receiving."""
    async with subject.connect() as platform:
        notes.begin_anew()
        task = asyncio.create_task(platform.receive(notes, notes.position))
        try:
            await notes.until_connected(task)
            yield platform
        finally:
            await stop(task)


def all_but(*names: str) -> pytest.MarkDecorator:
    """Platforms without this capability."""
    return pytest.mark.parametrize("subject", [name for name in SUBJECTS if name not in names], indirect=True)


MARKUP = (
    "> rm -rf *build* _out_ __pycache__ ~~x~~ ||y|| `z` \\* a_b <!channel> <@1> & :x:\n"
    "# [safe](https://evil.example/a_b_c) <https://evil.example|safe> ```\n- echo "
)
"""A command full of what some platform takes for markup."""


def out(subject: Subject, text: str = "hello", **more: object) -> Outgoing:
    return Outgoing(**{"chat": subject.chat, "text": text, "key": "out-1-1", "reply_to": "", **more})  # type: ignore[arg-type]


async def test_messages_are_received_in_order_and_parsed(subject: Subject) -> None:
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


@pytest.mark.process
async def test_setup_finds_who_writes_and_sends_them_a_message(subject: Subject) -> None:
    async with subject.connect() as platform, first_contact.connected(platform) as contact:
        with suppress(Exception):  # the platform may report that the message was not taken
            await subject.say("hello")
        person = await contact.wait_for_person(60)
        assert person is not None and person.person
        assert person.chat == subject.chat
        assert await first_contact.send_test_message(platform, person) == ""

    assert any("Holdfast is set up" in text for text in await subject.heard())


@all_but("fake")
async def test_every_setting_that_a_platform_reads_is_in_its_recipe(subject: Subject) -> None:
    options = PlatformOptions(subject.kind, dict(subject.options))
    policy.from_options(options)
    async with registry.connect(subject.kind)(options, SystemClock()):
        options.refuse_unknown()

    assert options.names_read <= RECIPES[subject.kind].settings
    assert find_problems(subject.kind, subject.options) == []
    assert find_problems(subject.kind, {**subject.options, "tokn": "x"}) != []


async def test_a_redelivered_message_has_the_same_id(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        await subject.say("once")
        await notes.until(1)
        await subject.say_again()
        await notes.until(2)
        first, second = understood(platform, notes)

    assert (first.chat, first.message) == (second.chat, second.message)


@pytest.mark.process
@all_but("fake", "discord")  # a queue in memory forgets; Discord's channels are read again, which its own test shows
async def test_a_message_that_was_not_stored_is_redelivered(subject: Subject) -> None:
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


@pytest.mark.process
async def test_a_malformed_payload_is_passed_on_and_blocks_nothing(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        await subject.send_malformed()
        await subject.say("still there?")
        await notes.until(2)
        found = understood(platform, notes)

    assert [one.text for one in found] == ["still there?"]


async def test_a_sent_message_arrives_and_has_an_id(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        result = await platform.send(out(subject))

    assert isinstance(result, Sent)
    assert await subject.heard() == ["hello"]


async def test_a_text_of_the_maximum_length_arrives_completely(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        text = "x" * platform.limits.text
        result = await platform.send(out(subject, text))

    assert isinstance(result, Sent)
    assert await subject.heard() == [text]


async def test_a_platform_with_keys_recognises_a_repeated_message(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        message = out(subject, reply_to="77")
        results = [await platform.send(message) for _ in range(2)]
        keyed = platform.limits.keyed

    assert all(isinstance(result, Sent) for result in results)
    assert len(await subject.heard()) == (1 if keyed else 2)


async def test_a_message_can_be_edited_if_the_platform_supports_it(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        sent = await platform.send(out(subject, "first"))
        assert isinstance(sent, Sent)
        result = await platform.edit(subject.chat, sent.remote, "second")
        edits = platform.limits.edits

    assert isinstance(result, Sent if edits else Rejected)
    assert await subject.heard() == ["second" if edits else "first"]


@all_but("discord")  # its library waits and retries by itself
async def test_a_temporary_refusal_is_not_a_failure(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        subject.be_busy()
        refused, taken = await platform.send(out(subject)), await platform.send(out(subject))

    assert isinstance(refused, RetryLater)
    assert isinstance(taken, Sent)
    assert await subject.heard() == ["hello"]


@all_but("discord")  # its library waits and retries by itself
async def test_a_lost_response_makes_the_delivery_unknown(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        subject.lose_answer()
        result = await platform.send(out(subject))

    assert isinstance(result, DeliveryUnknown)
    assert await subject.heard() == ["hello"]


@all_but("fake")
async def test_a_message_to_an_unknown_chat_is_rejected(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        result = await platform.send(out(subject, chat=subject.gone))

    assert isinstance(result, Rejected)
    assert await subject.heard() == []


async def test_angle_brackets_and_ampersands_of_a_reply_are_shown(subject: Subject) -> None:
    reply = "a Vec<String> & <!channel> <https://evil.example|a link>"
    async with receiving(subject, Notes()) as platform:
        assert isinstance(await platform.send(out(subject, reply)), Sent)

    assert await subject.heard() == [reply]


@pytest.mark.parametrize("has_buttons", [False, True])
async def test_a_literal_text_is_shown_character_by_character(subject: Subject, has_buttons: bool) -> None:
    choices = (ReplyChoice("allow", "Allow"),) if has_buttons else ()
    async with receiving(subject, Notes()) as platform:
        limits = platform.limits
        left = min(limits.text, 3_900) - (limits.measure_literal or limits.measure)(MARKUP)
        text = MARKUP + "x" * left
        assert isinstance(await platform.send(out(subject, text, literal=True, choices=choices)), Sent)

    [heard] = await subject.heard()
    assert heard.splitlines() == text.splitlines()


@all_but("dingtalk", "qq", "matrix", "email")  # there, yes and no are typed
async def test_a_button_returns_its_delivery(subject: Subject) -> None:
    notes = Notes()
    choices = (ReplyChoice("allow", "Allow"), ReplyChoice("deny", "Deny"))
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
        result = await platform.send(out(subject, "plan.txt", file=tmp_path / "plan.txt"))

    assert isinstance(result, Sent)
    assert await subject.received() == [("plan.txt", b"a plan")]


async def test_typing_indicators_never_fail(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        await platform.typing(subject.chat)
        await platform.typing(subject.gone or subject.chat)

    assert await subject.heard() == []


@all_but("webhook", "slack", "dingtalk", "qq", "email")
async def test_typing_indicators_are_shown_if_the_platform_has_them(subject: Subject) -> None:
    notes = Notes()
    async with receiving(subject, notes) as platform:
        before = await subject.saw_typing()
        await platform.typing(subject.chat)

        assert not before
        assert await subject.saw_typing()


@all_but("fake", "webhook", "telegram", "telegram webhook", "matrix", "email")  # there nothing stays open
async def test_a_connection_that_the_platform_closes_is_reopened(subject: Subject) -> None:
    notes = Notes()

    async def keep() -> None:
        """Like the gateway."""
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
