"""What a running tool call can ask of its session: questions to the person, checkpoints, and completions by the model.

A question is committed before it is shown, under the id of the call and the key of the question. A worker that continues
the call finds it there, open or answered. It is closed together with the call.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.engine.file_rewind import find_start
from holdfast.engine.spending.meter import Meter
from holdfast.engine.streaming.bus import LiveText
from holdfast.engine.turn import approval
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.delegate_call import DelegationSettings, delegate
from holdfast.engine.turn.memory_call import MemorySettings, check_fact, find_facts, remember
from holdfast.engine.turn.whole_reply import ask_for_reply
from holdfast.model.approval import Proposal
from holdfast.model.delegation import DelegationRecord, DelegationRequest, delegation_of
from holdfast.model.errors import Invalid
from holdfast.model.event import ToolCheckpointed
from holdfast.model.file_change import NewFileChange
from holdfast.model.memory.fact import Fact, FactRequest
from holdfast.model.message import ToolCall, text_of
from holdfast.model.provider import AskModel, ModelRequest
from holdfast.model.tool import CallAnswer, CallQuestion, Completion, CompletionRequest
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, file_changes, log

MAX_SHOWN = 20_000
"""Characters of a completion request that the person is shown."""
MAX_REPORT = 500


class CallModelSettings(msgspec.Struct, frozen=True):
    """The session's model."""

    name: str
    ask: AskModel
    seconds: float
    meter: Meter | None = None


class HostSettings(msgspec.Struct, frozen=True):
    """How questions of running calls are answered."""

    approvals: Literal["ask", "allow", "deny"]
    seconds: float | None
    """How long a question waits for its answer; None for no limit."""
    model: CallModelSettings | None = None
    delegation: DelegationSettings | None = None
    memory: MemorySettings | None = None


class SessionHost:
    def __init__(self, active: ActiveSession, call: ToolCall, settings: HostSettings) -> None:
        assert active.turn.id is not None, "calls belong to a turn"
        self._active = active
        self._call = call
        self._settings = settings
        self._turn_id = active.turn.id

    async def ask(self, question: CallQuestion) -> CallAnswer:
        if self._settings.approvals == "deny":
            return CallAnswer(action="decline")
        database = self._active.services.database
        place = (self._active.id, self._turn_id, f"{self._call.id}{approvals.ASKED_BY}{question.key}")
        if await database.read(approvals.get, *place) is None:
            await self._put(place, question)
        allowed = await approval.wait(self._active, place, self._settings.seconds)
        if allowed is None:
            return CallAnswer(action="cancel")
        answer = await database.read(approvals.get_answer, *place)
        if answer is None or answer.by == approval.TIME_LIMIT:
            return CallAnswer(action="cancel")
        return CallAnswer(action="accept" if allowed else "decline", content=answer.content)

    async def checkpoint(self, state: str) -> None:
        await self._active.commit([ToolCheckpointed(turn_id=self._turn_id, call_id=self._call.id, state=state)])

    async def complete(self, request: CompletionRequest) -> Completion | None:
        model = self._settings.model
        if model is None:
            return None
        if self._settings.approvals != "allow":
            question = CallQuestion(key=request.key, kind="sampling", message=_shown(request))
            if (await self.ask(question)).action != "accept":
                return None
        wanted = ModelRequest(
            model=model.name,
            system=request.system,
            messages=request.messages,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
        )
        ask = model.ask
        if model.meter is not None:
            ask = model.meter.recording(ask, self._active.id, "sampling", self._turn_id)
        reply = await ask_for_reply(ask, wanted, seconds=model.seconds)
        return Completion(text=text_of(reply.parts), model=reply.model or wanted.model, finish=reply.finish)

    async def delegate(self, request: DelegationRequest) -> DelegationRecord:
        if self._settings.delegation is None:
            raise Invalid("this session cannot delegate tasks. Do the task yourself.")
        return await delegate(self._active, self._call, self._settings.delegation, request)

    async def remember(self, request: FactRequest) -> Fact:
        return await remember(self._active, self._call, self._settings.memory, request)

    async def check_fact(self, request: FactRequest) -> None:
        await check_fact(self._active, self._settings.memory, request)

    async def find_facts(self, query: str) -> list[Fact]:
        return await find_facts(self._active, self._settings.memory, query)

    def report(self, text: str) -> None:
        self._active.stream("progress", f"{self._call.name}: {text[:MAX_REPORT]}")

    def show_output(self, text: str) -> None:
        active = self._active
        output = LiveText(self._turn_id, "output", text, behind=active.seen, call_id=self._call.id)
        active.services.bus.show_output(active.id, output)

    async def record_change(self, change: NewFileChange) -> None:
        await self._record([change], self._call.id, only_missing=False)

    async def record_command(self, changes: Sequence[NewFileChange], *, call_id: str = "") -> None:
        if changes:
            await self._record(changes, call_id or self._call.id, only_missing=True)

    async def _record(self, changes: Sequence[NewFileChange], call_id: str, *, only_missing: bool) -> None:
        active, services = self._active, self._active.services
        at, host = services.clock.now(), services.identity.host
        seq = find_start(active.entries, call_id) or active.seen
        encoded = await asyncio.to_thread(file_changes.encode, changes)

        def work(tx: Transaction) -> None:
            log.require_lease(tx, active.lease)
            file_changes.add(tx, active.id, encoded, seq=seq, host=host, at=at, only_missing=only_missing)

        await services.database.write(work)

    def is_stopped(self) -> bool:
        return self._active.stop.is_set()

    async def _put(self, place: tuple[str, str, str], asked: CallQuestion) -> None:
        active = self._active
        link = delegation_of(active.session, active.opened)
        proposal = Proposal(
            tool=self._call.name,
            requester=approval.requester_of(active, self._turn_id),
            kind=asked.kind,
            message=asked.message,
            form=asked.form,
            url=asked.url,
            parent_id=link.parent_id,
            root_id=link.root_id,
        )
        await approval.put_question(active, place, proposal)


def _shown(request: CompletionRequest) -> str:
    """The request for the person who is asked to approve it."""
    limit = "" if request.max_tokens is None else f" (at most {request.max_tokens} tokens)"
    lines = [f"system: {request.system}"] if request.system else []
    lines += [f"{message.role}: {message.text}" for message in request.messages]
    text = "\n".join(lines)
    return (text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}\n[… {len(text) - MAX_SHOWN:,} more]") + limit
