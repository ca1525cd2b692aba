"""What becomes of a message that was understood: it is ignored or refused, answers a question, is a command, or words for the model.

Words are admitted in the transaction that settles their letter, so that a crash leaves them waiting or admitted, never
both and never neither. A command acts outside a transaction: one that was cut off by a crash is not run again, and
the person is told.
"""

import secrets
from collections.abc import Callable
from typing import assert_never

from holdfast.engine import replies
from holdfast.engine.admit import Admission, Words, admit
from holdfast.engine.engine import Engine
from holdfast.engine.opening import Opening
from holdfast.engine.rewind import Rewind
from holdfast.gateway import attachments
from holdfast.gateway.port import Incoming, Platform
from holdfast.gateway.rules import Answer, Command, Ignore, Press, Refuse, Rules, Say, decide
from holdfast.gateway.seat import ChatSeat, Find
from holdfast.model.errors import Conflict, NotFound, Unavailable
from holdfast.model.ids import ALPHABET, TURN
from holdfast.model.message import Content, Text
from holdfast.model.session import Session
from holdfast.settings import Settings
from holdfast.slash import registry
from holdfast.store import aliases, inbox, inputs, outbox, people
from holdfast.store.database import Transaction
from holdfast.store.inbox import Letter
from holdfast.store.outbox import Address, Message

Attend = Callable[[str, str, Address], None]
"""Told of each turn that begins for a chat: its session, its id and where its reply goes."""


class Place:
    """What a desk works with."""

    def __init__(self, engine: Engine, settings: Settings, name: str, platform: Platform, rules: Rules) -> None:
        self.engine = engine
        self.settings = settings
        self.name = name
        self.platform = platform
        self.rules = rules


class Desk:
    """Of one platform."""

    def __init__(self, place: Place, *, find: Find, attend: Attend) -> None:
        self._engine = place.engine
        self._ground = place.engine.ground
        self._settings = place.settings
        self._name = place.name
        self._platform = place.platform
        self._rules = place.rules
        self._tells_queued = place.rules.tell_queued and place.platform.limits.tells_queued
        self._find = find
        self._attend = attend

    async def handle(self, letter: Letter, incoming: Incoming, *, cut_off: bool) -> None:
        """Deal with a message. `cut_off` says that this was begun before, and nobody knows how far it came."""
        known = await self._ground.database.read(people.is_allowed, self._name, incoming.person)
        step = decide(incoming, self._rules, let_in=known)
        match step:
            case Ignore():
                await self._settle(letter, f"ignored: {step.reason}")
            case Refuse():
                await self._refuse(letter, incoming, knock=step.knock)
            case Press():
                await self._press(letter, incoming, step)
            case Answer():
                await self._answer(letter, incoming, allowed=step.allowed)
            case Command():
                await self._command(letter, incoming, step, cut_off=cut_off)
            case Say():
                await self._say(letter, incoming)
            case _:
                assert_never(step)

    async def _settle(self, letter: Letter, outcome: str, told: str = "", to: Address | None = None) -> None:
        """It has been dealt with; what the person is told goes out with the same commit."""
        at, out = self._ground.clock.now(), self._ground.ids.make(replies.OUT)

        def work(tx: Transaction) -> None:
            if inbox.settle(tx, letter.id, outcome) and told and to is not None:
                outbox.put(tx, out, to, Message(text=told), at=at)

        await self._ground.database.write(work)

    async def say_no(self, letter: Letter, incoming: Incoming, why: str) -> None:
        """It cannot be done, and the person is told why."""
        await self._settle(letter, f"failed: {why}", f"! {why}", self._address(incoming))

    def _address(self, incoming: Incoming) -> Address:
        return Address(self._name, incoming.chat, incoming.reply_to or incoming.message)

    async def _refuse(self, letter: Letter, incoming: Incoming, *, knock: bool) -> None:
        """A stranger gets a code, once an hour, and nothing else; in a group, nothing at all."""
        at = self._ground.clock.now()
        stranger = people.Person(self._name, incoming.person, incoming.name, _code(), "asked", at)
        out, to = self._ground.ids.make(replies.OUT), self._address(incoming)

        def work(tx: Transaction) -> None:
            code = people.knock(tx, stranger) if knock and incoming.person else None
            if inbox.settle(tx, letter.id, "refused: a stranger") and code is not None:
                text = (
                    f"I do not know you. If this is your agent, let yourself in with: holdfast gateway pair {code}\n"
                    "Then say it again. The code holds for an hour."
                )
                outbox.put(tx, out, to, Message(text=text), at=at)

        await self._ground.database.write(work)

    async def _press(self, letter: Letter, incoming: Incoming, pressed: Press) -> None:
        found = await self._ground.database.read(outbox.find, pressed.delivery_id)
        if found is None or found.kind != "question" or found.session_id is None or found.turn_id is None:
            await self._settle(letter, "ignored: a choice that belongs to nothing")
            return
        if (found.platform, found.chat) != (self._name, incoming.chat):
            await self._settle(letter, "ignored: a choice of another chat")
            return
        allowed = pressed.value == replies.ALLOW
        await self._approve(letter, incoming, (found.session_id, found.turn_id, found.message.call_id), allowed=allowed)

    async def _answer(self, letter: Letter, incoming: Incoming, *, allowed: bool) -> None:
        """Yes or no: to the oldest question of the chat's session or, if there is none, to the model."""
        session_id = await self._ground.database.read(aliases.current, self._channel(incoming))
        questions = [] if session_id is None else await self._engine.questions(session_id)
        if not questions:
            await self._say(letter, incoming)
            return
        first = questions[0]
        await self._approve(letter, incoming, (first.session_id, first.turn_id, first.call_id), allowed=allowed)

    async def _approve(self, letter: Letter, incoming: Incoming, place: tuple[str, str, str], *, allowed: bool) -> None:
        by = f"{incoming.name or incoming.person} on {self._name}"
        try:
            await self._engine.approve(*place, allowed=allowed, by=by)
        except (Conflict, NotFound) as e:
            await self.say_no(letter, incoming, str(e))
            return
        told = "Allowed." if allowed else "Denied."
        await self._settle(letter, told, told, self._address(incoming))

    async def _command(self, letter: Letter, incoming: Incoming, command: Command, *, cut_off: bool) -> None:
        to = self._address(incoming)
        if command.forbidden:
            await self._settle(letter, "refused: a command", "! Only an owner of this agent may do that.", to)
            return
        if cut_off:
            told = f"! {command.line.split()[0]} was cut off by a restart. It may or may not have been done; look, and say it again if need be."
            await self._settle(letter, "unknown: a command that was cut off", told, to)
            return
        seat = await self._sit(letter, incoming)
        before = seat.busy
        await registry.run(seat, command.line)
        if seat.busy != before:
            await self._ground.database.write(people.set_busy, self._channel(incoming), seat.busy)
        await self._settle(letter, "a command", "\n\n".join(seat.told), to)

    async def _sit(self, letter: Letter, incoming: Incoming) -> ChatSeat:
        async def speak(session: Session, parts: tuple[Content, ...], instead: Rewind | None) -> None:
            await self._admit(None, incoming, session, parts, instead)

        owner = incoming.person in self._rules.owners
        seat = ChatSeat(
            self._engine, self._settings, self._channel(incoming), owner=owner, find=self._find, speak=speak
        )
        seat.session_id = await self._engine.bookmarked(self._channel(incoming))
        seat.busy = await self._busy(incoming)
        return seat

    async def _busy(self, incoming: Incoming) -> inputs.Mode:
        chosen = await self._ground.database.read(people.busy, self._channel(incoming))
        return chosen or self._settings.agent.busy

    async def _say(self, letter: Letter, incoming: Incoming) -> None:
        """The words go to the chat's current session, which begins with its first ones."""
        key = self._channel(incoming)
        opened = await self._engine.open(Opening(channel=key, source="gateway", workdir=self._rules.folder))
        session = opened.session
        parts: list[Content] = [Text(incoming.text)] if incoming.text.strip() else []
        parts += await attachments.fetch(
            self._platform,
            incoming.attachments,
            self._settings.home / "files" / session.id,
            letter.id,
            self._rules.max_attachment_bytes,
        )
        await self._admit(letter, incoming, session, tuple(parts))

    async def _admit(
        self,
        letter: Letter | None,
        incoming: Incoming,
        session: Session,
        parts: tuple[Content, ...],
        instead: Rewind | None = None,
    ) -> None:
        """Admit the words and settle their letter in one transaction; have the turn attended to."""
        at, turn_id, out = self._ground.clock.now(), self._ground.ids.make(TURN), self._ground.ids.make(replies.OUT)
        mode, name = await self._busy(incoming), "" if incoming.private else incoming.name
        words = Words(turn_id=turn_id, parts=parts, mode=mode, name=name, instead=instead)
        to, key, worker_id = self._address(incoming), self._channel(incoming), self._ground.worker_id

        def work(tx: Transaction) -> Admission | None:
            if aliases.current(tx, key) != session.id:
                raise Unavailable(f"another session has just taken the place of {session.id}")
            if letter is not None and not inbox.settle(tx, letter.id, "said", session=session.id, turn=turn_id):
                return None
            admission = admit(tx, session.id, words, worker_id=worker_id, at=at)
            outbox.expect(tx, session.id, turn_id, to, at=at)
            if not admission.began and self._tells_queued:
                told = _place_in_line(tx, session.id, mode)
                outbox.put(tx, out, to, Message(text=told), at=at, session_id=session.id)
            return admission

        admission = await self._engine.admit_by(work)
        if admission is not None:
            self._attend(session.id, turn_id, to)

    def _channel(self, incoming: Incoming) -> str:
        return outbox.channel_of(self._name, incoming.chat)


def _place_in_line(tx: Transaction, session_id: str, mode: inputs.Mode) -> str:
    """What a person is told whose words come while a turn runs."""
    if mode == "interrupt":
        return "The turn that runs is ended; your words come next."
    if mode == "steer":
        return "Your words join the turn that runs."
    count = sum(item.said is not None for item in inputs.waiting(tx, session_id))
    return f"Queued: number {count} in line."


def _code() -> str:
    """What a stranger shows to be let in: eight letters that are not mistaken for others."""
    letters = "".join(secrets.choice(ALPHABET) for _ in range(8)).upper()
    return f"{letters[:4]}-{letters[4:]}"
