"""Permission modes: what runs, asks and is denied in each, from the log, also after a crash."""

import asyncio
import itertools
from pathlib import Path

import pytest

from holdfast.engine.turn.permission import PLAN_MODE, Policy, decide
from holdfast.model.answer import Answer
from holdfast.model.entry import Entry
from holdfast.model.event import ApprovalAnswered, ApprovalAsked, Compacted, ModeChanged, SessionOpened, ToolEnded
from holdfast.model.finding import OWN_FILES, OWN_STORE, Finding
from holdfast.model.message import text_of
from holdfast.model.mode import MODES, Mode
from holdfast.model.tool import Effect
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import approvals, sessions, workers
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.tools.atomic_replace import FileEditor
from holdfast.tools.terminal import TerminalTool
from holdfast.tools.write_file import WriteFileTool
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed
from tests.fakes.crashing import Crash, CrashingDatabase

RISK = (Finding("deletes directories recursively", "rm -r x"),)
OWN = (Finding(OWN_FILES, "~/.holdfast/config.toml"),)
STORE = (Finding(OWN_STORE, "holdfast sessions list"),)
N, R = (), RISK
ACTIONS: dict[tuple[Mode, Policy], str] = {
    # effect none, none + risk, edit, edit + risk, act, act + risk: r(un), a(sk), d(eny)
    ("plan", "ask"): "radddd",
    ("plan", "allow"): "rrdddd",
    ("plan", "deny"): "rddddd",
    ("ask", "ask"): "raaaaa",
    ("ask", "allow"): "rraaaa",
    ("ask", "deny"): "rddddd",
    ("edits", "ask"): "rarara",
    ("edits", "allow"): "rrrrrr",
    ("edits", "deny"): "rdrdrd",
    ("trusted", "ask"): "rrrrrr",
    ("trusted", "allow"): "rrrrrr",
    ("trusted", "deny"): "rrrrrr",
}
EFFECTS: tuple[Effect, ...] = ("none", "edit", "act")
MAIL = ScriptStep(call=(ScriptedCall(name="mail", arguments={"to": "bo"}),))
MAIL_ALL = ScriptStep(call=(ScriptedCall(name="mail", arguments={"to": "all"}),))
LOOK = ScriptStep(call=(ScriptedCall(name="look", arguments={}),))
WRITE = ScriptStep(call=(ScriptedCall(name="write_file", arguments={"path": "a.txt", "content": "new"}),))
END = ScriptStep(say="So be it.")


@pytest.mark.parametrize(("mode", "policy"), ACTIONS)
def test_the_stricter_of_mode_and_policy_wins(mode: Mode, policy: Policy) -> None:
    cases = itertools.product(EFFECTS, (N, R))

    assert "".join(decide(mode, policy, *case).action[0] for case in cases) == ACTIONS[mode, policy]


@pytest.mark.parametrize("findings", [OWN, STORE])
def test_trusted_asks_about_holdfasts_own_files_and_commands(findings: tuple[Finding, ...]) -> None:
    assert decide("trusted", "ask", "act", (*RISK, *findings)).findings == findings
    assert decide("trusted", "deny", "act", findings).action == "deny"


def outcomes(events: list[object]) -> list[str]:
    return [event.outcome for event in events if isinstance(event, ToolEnded)]


async def asked(stage: Stage, session_id: str) -> ApprovalAsked:
    async for item in stage.engine.watch(session_id):
        if isinstance(item, Entry) and isinstance(item.event, ApprovalAsked):
            return item.event
    raise AssertionError("nobody asked")


async def set_mode(stage: Stage, session_id: str, mode: Mode) -> None:
    await stage.engine.actions.set_mode(session_id, mode, by="ann")


@pytest.mark.process
async def test_in_plan_mode_nothing_is_changed_whatever_the_policy_and_the_rules_say(
    tmp_path: Path, stages: list[Stage]
) -> None:
    tools = [WriteFileTool(FileEditor()), TerminalTool({"PATH": "/usr/bin:/bin"})]
    touch = ScriptStep(call=(ScriptedCall(name="terminal", arguments={"command": "touch b.txt"}),))
    reads = ScriptStep(call=(ScriptedCall(name="terminal", arguments={"command": "ls"}),))
    steps = (WRITE, touch, MAIL, LOOK, reads, END)
    stages.append(stage := await set_up(tmp_path, *steps, approvals="allow", tools=tools))
    session = await stage.session(mode="plan")

    events = await stage.play(session.id, "Do it")

    assert outcomes(list(events)) == ["denied", "denied", "denied", "ok", "ok"]
    assert not (tmp_path / "a.txt").exists() and not (tmp_path / "b.txt").exists()
    assert not stage.mailer.outbox.exists()
    denied = [text_of(event.parts) for event in events if isinstance(event, ToolEnded) and event.outcome == "denied"]
    assert denied == [PLAN_MODE] * 3


async def test_the_mode_ask_asks_before_an_edit_that_edits_makes_without_asking(
    tmp_path: Path, stages: list[Stage]
) -> None:
    tools = [WriteFileTool(FileEditor())]
    stages.append(stage := await set_up(tmp_path, WRITE, END, approval_seconds=None, tools=tools))
    session = await stage.session(mode="ask")
    turn = asyncio.create_task(stage.play(session.id, "Write"))
    question = await asked(stage, session.id)
    assert not (tmp_path / "a.txt").exists()
    assert "+new" in question.proposal.preview

    await stage.approve(session.id, question.turn_id, question.call_id, allowed=True, by="ann")

    assert outcomes(list(await turn)) == ["ok"]
    assert (tmp_path / "a.txt").read_text() == "new"


async def test_trusted_runs_what_would_ask(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, MAIL_ALL, END, approval_seconds=None))
    session = await stage.session(mode="trusted")

    assert outcomes(list(await stage.play(session.id, "Mail"))) == ["ok"]


async def test_each_change_is_one_event_and_a_repeat_is_none(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    session = await stage.session()
    for mode in ("plan", "plan", "trusted"):
        await set_mode(stage, session.id, mode)  # type: ignore[arg-type]

    changes = [event for event in await stage.log(session.id) if isinstance(event, ModeChanged)]
    assert changes == [
        ModeChanged(mode="plan", previous="edits", by="ann"),
        ModeChanged(mode="trusted", previous="plan", by="ann"),
    ]
    assert (await stage.database.read(sessions.get, session.id)).summary.mode == "trusted"


async def test_the_model_is_told_the_mode_in_a_note_and_the_requests_before_stay_a_prefix(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    session = await stage.session(mode="plan")
    await stage.play(session.id, "one")
    await set_mode(stage, session.id, "edits")
    await stage.play(session.id, "two")

    first, second = ([message.text for message in request.messages] for request in stage.requests)
    assert "plan mode, which is read-only" in first[0]
    assert second[: len(first)] == first
    assert "Plan mode has ended" in second[len(first) + 1]
    assert stage.requests[0].system == stage.requests[1].system


def test_the_model_is_told_again_after_a_compaction() -> None:
    from holdfast.engine.context.context import Context

    compacted = Compacted(epoch=1, upto_seq=1, summary="s", how="model", mode="plan")
    context = Context([Entry(1, 1, SessionOpened(source="run")), Entry(2, 2, compacted)])

    assert "plan mode" in context.view[-1].text


async def test_a_mode_lowered_while_a_call_waits_denies_it_at_once(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, MAIL_ALL, END, approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail"))
    await asked(stage, session.id)

    await set_mode(stage, session.id, "plan")

    events = await turn
    assert outcomes(list(events)) == ["denied"]
    answer = next(event for event in events if isinstance(event, ApprovalAnswered))
    assert (answer.allowed, answer.by, answer.reason) == (False, "permission mode", "the permission mode is now plan")
    assert not stage.mailer.outbox.exists()


async def test_a_mode_raised_while_a_call_waits_lets_it_run(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, MAIL_ALL, END, approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail"))
    await asked(stage, session.id)

    await set_mode(stage, session.id, "trusted")

    assert outcomes(list(await turn)) == ["ok"]


async def test_a_mode_lowered_between_the_answer_and_the_start_holds(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, MAIL_ALL, END, approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail"))
    question = await asked(stage, session.id)

    def allow_and_lower(tx: object) -> None:
        place = (session.id, question.turn_id, question.call_id)
        approvals.answer(tx, *place, answer=Answer(allowed=True), by="ann", at=1)  # type: ignore[arg-type]
        sessions.set_mode(tx, session.id, "plan", by="ann", at=2)  # type: ignore[arg-type]

    await stage.database.write(allow_and_lower)

    assert outcomes(list(await turn)) == ["denied"]
    assert not stage.mailer.outbox.exists()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(3, 8))
async def test_the_mode_holds_for_a_call_whose_worker_died_before_it_started(
    tmp_path: Path, nth: int, when: str
) -> None:
    inner = await open_sqlite(tmp_path / "holdfast.db")
    stage = await set_up(tmp_path, MAIL, END, database=inner)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    session = await stage.session()
    object.__setattr__(stage.engine.services, "database", CrashingDatabase(inner, nth - 2, when))  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(20):
            await stage.play(session.id, "Mail")
    except Crash:
        pass
    dead = stage.worker_id
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    sent_before = stage.mailer.outbox.exists()
    await inner.write(sessions.set_mode, session.id, "plan", by="ann", at=1)
    await inner.close()

    other = await set_up(tmp_path, *[ScriptStep(say="All good.")] * 3)
    await other.database.write(workers.mark_dead, dead, "killed", at=1)
    await other.play(session.id, "Are you there?")
    log = await other.log(session.id)
    await other.engine.close()
    await other.database.close()

    assert_well_formed(log)
    assert other.mailer.outbox.exists() == sent_before, "nothing is sent after the mode was lowered"


async def test_a_denied_call_stays_denied_when_the_mode_is_raised_after_a_crash(
    tmp_path: Path, stages: list[Stage]
) -> None:
    inner = await open_sqlite(tmp_path / "holdfast.db")
    stage = await set_up(tmp_path, MAIL_ALL, END, database=inner, approval_seconds=None)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail"))
    question = await asked(stage, session.id)
    object.__setattr__(stage.engine.services, "database", CrashingDatabase(inner, 1, "before"))

    def deny_and_raise(tx: object) -> None:
        place = (session.id, question.turn_id, question.call_id)
        approvals.answer(tx, *place, answer=Answer(allowed=False), by="ann", at=1)  # type: ignore[arg-type]

    await inner.write(deny_and_raise)
    await asyncio.wait({turn})
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await inner.write(sessions.set_mode, session.id, "trusted", by="ann", at=2)

    stages.append(other := await set_up(tmp_path, *[END] * 3, database=inner))
    await inner.write(workers.mark_dead, stage.worker_id, "killed", at=3)
    await other.play(session.id, "Are you there?")

    assert outcomes(list(await other.log(session.id))) == ["denied"]
    assert not other.mailer.outbox.exists()


async def test_a_fork_from_a_permissive_time_gets_the_present_mode(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    session = await stage.session(mode="trusted")
    await set_mode(stage, session.id, "plan")

    forked = await stage.engine.actions.fork(session.id, at_seq=1)
    await set_mode(stage, session.id, "trusted")
    again = await stage.engine.actions.fork(session.id, at_seq=2)

    assert (forked.summary.mode, again.summary.mode) == ("plan", "plan")


@pytest.mark.parametrize("configured", MODES)
async def test_a_new_session_has_the_configured_mode(tmp_path: Path, stages: list[Stage], configured: Mode) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    object.__setattr__(stage.engine.services, "mode", configured)

    assert (await stage.session()).summary.mode == configured
    replaced = await stage.engine.resets.replace((await stage.session(mode="ask", source="chat")).id)
    assert replaced.summary.mode == ("plan" if configured == "plan" else "ask")
