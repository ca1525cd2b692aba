"""Handles a parsed message: ignores or refuses it, takes it as an answer or a command, or passes it to the model.

A message is admitted in the transaction that marks it as done, so that after a crash it is either waiting or admitted,
never both and never neither. A command acts outside a transaction: one that a crash interrupted is not run again, and
the person is told.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import assert_never

from holdfast.engine import outbound
from holdfast.engine.admission.admit import Admission, UserInput, admit
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.admission.rewind import Rewind
from holdfast.engine.engine import Engine
from holdfast.engine.submission import AdmitInTransaction
from holdfast.gateway import approvers, attachments
from holdfast.gateway.command_context import AwaitingAnswer, ChannelCommandContext, OpenIndex
from holdfast.gateway.policy import (
    CANCEL,
    ButtonAnswer,
    ChatMessageText,
    Ignore,
    PlatformRules,
    Refuse,
    SlashCommandText,
    Step,
    TextAnswer,
    Unreadable,
    decide,
)
from holdfast.gateway.port import Incoming, Platform
from holdfast.gateway.voice import Transcriber
from holdfast.model import answer as answers
from holdfast.model.errors import Conflict, Invalid, NotFound, Unavailable
from holdfast.model.event import GoalSet
from holdfast.model.form import parse_reply
from holdfast.model.ids import ALPHABET, TURN
from holdfast.model.message import Content, Text
from holdfast.model.session import Session
from holdfast.settings import Settings
from holdfast.slash import registry
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, approvals, choices, contacts, delegations, inbox, input_queue, outbox
from holdfast.store.repos.choices import PendingChoice
from holdfast.store.repos.inbox import InboundMessage
from holdfast.store.repos.outbox import Address, OutboundMessage

OnTurnStarted = Callable[[str, str, Address], None]
"""Called for each turn that starts for a chat, with its session, its id and the address of the reply."""


class HandlerServices:
    """The engine, settings and platform of a message handler."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        name: str,
        platform: Platform,
        rules: PlatformRules,
        transcriber: Transcriber | None = None,
    ) -> None:
        self.engine = engine
        self.transcriber = transcriber
        self.settings = settings
        self.name = name
        self.platform = platform
        self.rules = rules


class MessageHandler:
    """Handles the messages of one platform."""

    def __init__(self, services: HandlerServices, *, open_index: OpenIndex, on_turn_started: OnTurnStarted) -> None:
        self._engine = services.engine
        self._services = services.engine.services
        self._settings = services.settings
        self._name = services.name
        self._platform = services.platform
        self._rules = services.rules
        self._transcriber = services.transcriber
        self._tells_queued = services.rules.tell_queued and services.platform.limits.tells_queued
        self._open_index = open_index
        self._on_turn_started = on_turn_started

    async def handle(self, inbound: InboundMessage, incoming: Incoming, *, interrupted: bool) -> None:
        """Handle a message. `interrupted`: an earlier attempt started, and it is unknown how far it got."""
        paired = await self._services.database.read(contacts.is_allowed, self._name, incoming.person)
        step: Step | None = decide(incoming, self._rules, paired=paired)
        if isinstance(step, TextAnswer | SlashCommandText | ChatMessageText):
            step = await self._after_choice(inbound, incoming, step)
        match step:
            case None:
                return
            case Ignore():
                await self._finish(inbound, f"ignored: {step.reason}")
            case Refuse():
                await self._refuse(inbound, incoming, send_code=step.send_code)
            case Unreadable():
                await self.report_failure(inbound, incoming, f"I could not read your message: {step.reason}")
            case ButtonAnswer():
                await self._handle_button(inbound, incoming, step)
            case TextAnswer():
                await self._answer(inbound, incoming, step.given)
            case SlashCommandText():
                await self._command(inbound, incoming, step, interrupted=interrupted)
            case ChatMessageText():
                await self._answer(inbound, incoming, None)
            case _:
                assert_never(step)

    async def _after_choice(
        self, inbound: InboundMessage, incoming: Incoming, step: TextAnswer | SlashCommandText | ChatMessageText
    ) -> Step | None:
        """Apply this message to a command of this person that waits for a choice: an offered answer runs it.

        Anything else cancels the command. Return None if that was all, else how to handle the message.
        """
        key, now = self._channel(incoming), self._services.clock.now()
        pending = await self._services.database.read(choices.get, key, incoming.person, now)
        if pending is None:
            return step
        word, (verb, _, rest) = incoming.text.strip().lower(), pending.command.partition(" ")
        if word in pending.answers:
            return SlashCommandText(f"{verb} {word} {rest}".strip())
        await self._services.database.write(choices.delete, key, incoming.person)
        notice = f"{verb} was cancelled; nothing was changed."
        if word in CANCEL:
            await self._finish(inbound, "a command", notice, self._address(incoming))
            return None
        out = self._services.ids.make(outbound.OUT)
        await self._services.database.write(
            outbox.put, out, self._address(incoming), OutboundMessage(text=notice), at=now
        )
        return step

    async def _finish(
        self,
        inbound: InboundMessage,
        outcome: str,
        notice: str = "",
        to: Address | None = None,
        then: Callable[[Transaction], None] | None = None,
    ) -> None:
        """Mark the message as done; send the notice and run `then` in the same transaction."""
        at, out = self._services.clock.now(), self._services.ids.make(outbound.OUT)

        def work(tx: Transaction) -> None:
            if not inbox.mark_done(tx, inbound.id, outcome):
                return
            if notice and to is not None:
                outbox.put(tx, out, to, OutboundMessage(text=notice), at=at)
            if then is not None:
                then(tx)

        await self._services.database.write(work)

    async def report_failure(self, inbound: InboundMessage, incoming: Incoming, why: str) -> None:
        """Mark the message as failed and tell the person why."""
        await self._finish(inbound, f"failed: {why}", f"! {why}", self._address(incoming))

    def _address(self, incoming: Incoming) -> Address:
        return Address(self._name, incoming.chat, incoming.reply_to or incoming.message)

    async def _refuse(self, inbound: InboundMessage, incoming: Incoming, *, send_code: bool) -> None:
        """Send an unknown person a pairing code, at most once an hour; in a group, send nothing."""
        at = self._services.clock.now()
        person = contacts.Person(self._name, incoming.person, incoming.name, _make_pairing_code(), "asked", at)
        out, to = self._services.ids.make(outbound.OUT), self._address(incoming)

        def work(tx: Transaction) -> None:
            code = contacts.request_pairing(tx, person) if send_code and incoming.person else None
            if inbox.mark_done(tx, inbound.id, "refused: not authorised") and code is not None:
                text = (
                    f"You are not authorised. On the host run: holdfast gateway pair {code}\n"
                    "(valid for 1 hour). Then send your message again."
                )
                outbox.put(tx, out, to, OutboundMessage(text=text), at=at)

        await self._services.database.write(work)

    async def _handle_button(self, inbound: InboundMessage, incoming: Incoming, pressed: ButtonAnswer) -> None:
        found = await self._services.database.read(outbox.find, pressed.delivery_id)
        if found is None or found.kind != "question" or found.session_id is None or found.turn_id is None:
            await self._finish(inbound, "ignored: a button without a question")
            return
        if (found.platform, found.chat) != (self._name, incoming.chat):
            await self._finish(inbound, "ignored: a button of another chat")
            return
        allowed = pressed.value == outbound.ALLOW
        await self._approve(
            inbound, incoming, (found.session_id, found.turn_id, found.message.call_id), answers.Answer(allowed=allowed)
        )

    async def _answer(self, inbound: InboundMessage, incoming: Incoming, given: answers.Answer | None) -> None:
        """Answer the oldest question of the chat's session; if there is none, pass the text to the model.

        `given` is the answer in the text, if it is one to any question; a form decides by itself what answers it.
        """
        session_id = await self._services.database.read(aliases.get_channel_session, self._channel(incoming))
        questions = (
            []
            if session_id is None
            else await self._services.database.read(approvals.list_unanswered_in_tree, session_id)
        )
        first = questions[0] if questions else None
        if first is not None and first.proposal.form and not incoming.attachments:
            given = parse_reply(first.proposal, incoming.text)
        if first is None or given is None:
            await self._submit(inbound, incoming)
            return
        await self._approve(inbound, incoming, first.call_key, given)

    async def _approve(
        self, inbound: InboundMessage, incoming: Incoming, call: tuple[str, str, str], given: answers.Answer
    ) -> None:
        root = await self._services.database.read(delegations.find_root, call[0], call[1])
        requester = await self._services.database.read(outbox.get_requester, *root, self._address(incoming))
        if not self._rules.approvers.may_answer(incoming, requester):
            await self._finish(inbound, "refused: not an approver", approvers.NOT_AN_APPROVER, self._address(incoming))
            return
        by = _describe_person(incoming, self._name)
        try:
            await self._engine.answer(call, given, by=by)
        except (Conflict, Invalid, NotFound) as e:
            await self.report_failure(inbound, incoming, str(e))
            return
        notice = "Allowed." if given.allowed else "Denied."
        await self._finish(inbound, notice, notice, self._address(incoming))

    async def _command(
        self, inbound: InboundMessage, incoming: Incoming, command: SlashCommandText, *, interrupted: bool
    ) -> None:
        to = self._address(incoming)
        if command.forbidden:
            await self._finish(
                inbound, "refused: owners only", "! Only an owner of this agent may use this command.", to
            )
            return
        if interrupted:
            notice = f"! {command.line.split()[0]} was interrupted by a restart and may or may not have run. Check, and repeat it if needed."
            await self._finish(inbound, "unknown: a command was interrupted", notice, to, self._forget_choice(incoming))
            return
        context = await self._open_command_context(incoming)
        before, then = context.busy, self._forget_choice(incoming)
        try:
            await registry.run(context, command.line)
        except AwaitingAnswer as e:
            then = self._await_choice(incoming, command.line, e.answers)
        if context.busy != before:
            await self._services.database.write(contacts.set_busy_mode, self._channel(incoming), context.busy)
        await self._finish(inbound, "a command", "\n\n".join(context.replies), to, then)

    def _forget_choice(self, incoming: Incoming) -> Callable[[Transaction], None]:
        key = self._channel(incoming)
        return lambda tx: choices.delete(tx, key, incoming.person)

    def _await_choice(self, incoming: Incoming, line: str, answers: tuple[str, ...]) -> Callable[[Transaction], None]:
        at = self._services.clock.now()
        pending = PendingChoice(self._channel(incoming), incoming.person, line, answers, at)
        return lambda tx: choices.put(tx, pending)

    async def _open_command_context(self, incoming: Incoming) -> ChannelCommandContext:
        async def send_message(
            session: Session, parts: tuple[Content, ...], instead: Rewind | None, goal: GoalSet | None
        ) -> None:
            await self._admit(None, incoming, session, parts, instead, goal=goal)

        owner = incoming.person in self._rules.owners
        context = ChannelCommandContext(
            self._engine,
            self._settings,
            self._channel(incoming),
            owner=owner,
            may_approve=self._rules.approvers.may_answer(incoming, ""),
            open_index=self._open_index,
            send_message=send_message,
        )
        context.user = _describe_person(incoming, self._name)
        context.memory_owner = self._sender(incoming) if incoming.private else ""
        context.session_id = await self._engine.actions.find_bookmark(self._channel(incoming))
        context.busy = await self._busy(incoming)
        return context

    async def _busy(self, incoming: Incoming) -> input_queue.InputMode:
        chosen = await self._services.database.read(contacts.get_busy_mode, self._channel(incoming))
        return chosen or self._settings.agent.busy

    def _terminal(self, key: str) -> str:
        """The terminal backend of a new session of the chat, if one is configured for the chat or the platform."""
        return self._settings.terminal.channels.get(key) or self._rules.terminal

    async def _submit(self, inbound: InboundMessage, incoming: Incoming) -> None:
        """Submit a message to the chat's current session; the first message of a chat opens one."""
        key = self._channel(incoming)
        opened = await self._engine.open(
            OpenRequest(channel=key, source="gateway", workdir=self._rules.folder, terminal=self._terminal(key))
        )
        session = opened.session
        parts: list[Content] = [Text(incoming.text)] if incoming.text.strip() else []
        found = await attachments.fetch_attachments(
            self._platform,
            incoming.attachments,
            attachments.AttachmentTarget(
                self._settings.home / "files" / session.id, inbound.id, self._rules.max_attachment_bytes
            ),
            self._transcriber,
        )
        await self._admit(inbound, incoming, session, (*parts, *found.parts), notices=found.notices)

    async def _admit(
        self,
        inbound: InboundMessage | None,
        incoming: Incoming,
        session: Session,
        parts: tuple[Content, ...],
        instead: Rewind | None = None,
        notices: Sequence[str] = (),
        goal: GoalSet | None = None,
    ) -> None:
        """Admit the message, mark it as done and send the notices in one transaction; then start the preview of the turn."""
        at, turn_id, out = (
            self._services.clock.now(),
            self._services.ids.make(TURN),
            self._services.ids.make(outbound.OUT),
        )
        note = self._services.ids.make(outbound.OUT)
        mode: input_queue.InputMode = await self._busy(incoming) if goal is None else "queue"
        name = "" if incoming.private else incoming.name
        message = UserInput(
            turn_id=turn_id,
            parts=parts,
            mode=mode,
            name=name,
            sender=self._sender(incoming),
            shared=not incoming.private or session.summary.channel not in (None, self._channel(incoming)),
            instead=instead,
            before=() if goal is None else (goal,),
        )
        to, key, worker_id = self._address(incoming), self._channel(incoming), self._services.worker_id

        def work(tx: Transaction) -> Admission | None:
            if aliases.get_channel_session(tx, key) != session.id:
                raise Unavailable(f"session {session.id} was just replaced by another")
            if inbound is not None and not inbox.mark_done(tx, inbound.id, "said", session=session.id, turn=turn_id):
                return None
            admission = admit(tx, session.id, message, worker_id=worker_id, at=at)
            outbox.add_reply_address(tx, session.id, turn_id, to, at=at, person=incoming.person)
            if notices:
                outbox.put(tx, note, to, OutboundMessage(text="\n".join(notices)), at=at, session_id=session.id)
            if not admission.began and self._tells_queued:
                text = _queued_notice(tx, session.id, mode)
                outbox.put(tx, out, to, OutboundMessage(text=text), at=at, session_id=session.id)
            return admission

        if await self._engine.submit(AdmitInTransaction(work, session.id)) is not None:
            self._on_turn_started(session.id, turn_id, to)

    def _sender(self, incoming: Incoming) -> str:
        return f"{self._name}:{incoming.person}" if incoming.person else ""

    def _channel(self, incoming: Incoming) -> str:
        return outbox.format_channel(self._name, incoming.chat)


def _queued_notice(tx: Transaction, session_id: str, mode: input_queue.InputMode) -> str:
    """The notice for a message that arrives while a turn runs."""
    if mode == "interrupt":
        return "The running turn is being interrupted; your message is next."
    if mode == "steer":
        return "Your message was added to the running turn."
    count = sum(item.said is not None for item in input_queue.list_waiting(tx, session_id))
    return f"Queued at position {count}."


def _describe_person(incoming: Incoming, platform: str) -> str:
    """Who answered a question: the name, and the id because people choose their names freely."""
    name, person = incoming.name, incoming.person
    return f"{name} ({person}) on {platform}" if name and name != person else f"{person} on {platform}"


def _make_pairing_code() -> str:
    """A pairing code: eight characters that are not easily confused."""
    characters = "".join(secrets.choice(ALPHABET) for _ in range(8)).upper()
    return f"{characters[:4]}-{characters[4:]}"
