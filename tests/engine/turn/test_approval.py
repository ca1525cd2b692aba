"""Calls that need approval."""

import asyncio
from pathlib import Path

import pytest

from holdfast.model.answer import Answer
from holdfast.model.entry import Entry
from holdfast.model.errors import Conflict, Invalid, NotFound
from holdfast.model.event import ApprovalAnswered, ApprovalAsked, ApprovalRuleApplied, ToolEnded
from holdfast.model.message import text_of
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import approval_rules, session_list, sessions
from holdfast.tools.atomic_replace import FileEditor
from holdfast.tools.terminal import TerminalTool
from holdfast.tools.write_file import WriteFileTool
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed

ASK = ScriptStep(call=(ScriptedCall(name="mail", arguments={"to": "all"}),))


async def asked(stage: Stage, session_id: str) -> ApprovalAsked:
    async for item in stage.engine.watch(session_id):
        if isinstance(item, Entry) and isinstance(item.event, ApprovalAsked):
            return item.event
    raise AssertionError("nobody asked")


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_answer_decides_whether_the_call_runs(tmp_path: Path, stages: list[Stage], allowed: bool) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, ScriptStep(say="So be it."), approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail all"))
    question = await asked(stage, session.id)

    await stage.approve(session.id, question.turn_id, question.call_id, allowed=allowed, by="bo")

    events = await turn
    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == ["ok" if allowed else "denied"]
    assert stage.mailer.outbox.exists() == allowed
    assert_well_formed(await stage.log(session.id))


async def test_an_answer_through_another_worker_counts(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, ScriptStep(say="So be it."), approval_seconds=None))
    stages.append(other := await set_up(tmp_path, database=stage.database))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail all"))
    question = await asked(other, session.id)

    await other.approve(session.id, question.turn_id, question.call_id, allowed=True, by="bo")

    assert [event.outcome for event in await turn if isinstance(event, ToolEnded)] == ["ok"]


async def test_promise_28_a_question_is_answered_once(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, ScriptStep(say="So be it."), approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail all"))
    question = await asked(stage, session.id)
    place = (session.id, question.turn_id, question.call_id)

    await stage.approve(*place, allowed=False, by="bo")
    with pytest.raises(Conflict, match="bo"):
        await stage.approve(*place, allowed=True, by="mo")
    with pytest.raises(NotFound):
        await stage.approve(session.id, question.turn_id, "other", allowed=True, by="mo")

    await turn
    answers = [event for event in await stage.log(session.id) if isinstance(event, ApprovalAnswered)]
    assert [(answer.allowed, answer.by) for answer in answers] == [(False, "bo")]


async def test_without_an_answer_in_time_the_call_is_denied_and_the_model_gets_the_reason(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, ScriptStep(say="Then not."), approval_seconds=0.05))
    session = await stage.session()

    events = await stage.play(session.id, "Mail all")

    denied = [event for event in events if isinstance(event, ToolEnded)]
    assert [event.outcome for event in denied] == ["denied"]
    assert "nobody answered in time" in text_of(denied[0].parts)
    assert await stage.questions(session.id) == []


@pytest.mark.parametrize(("policy", "outcome"), [("allow", "ok"), ("deny", "denied")])
async def test_a_policy_can_answer_for_the_person(
    tmp_path: Path, stages: list[Stage], policy: str, outcome: str
) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, ScriptStep(say="Done."), approvals=policy))
    session = await stage.session()

    events = await stage.play(session.id, "Mail all")

    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == [outcome]
    assert not any(isinstance(event, ApprovalAsked) for event in events)


async def test_promise_28_a_question_survives_a_restart_and_is_not_asked_twice(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, ScriptStep(say="Done."), approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail all"))
    question = await asked(stage, session.id)
    await stage.engine.close("restarted")
    turn.cancel()
    stages.append(
        other := await set_up(tmp_path, ASK, ScriptStep(say="Done."), approval_seconds=None, database=stage.database)
    )

    assert [found.call_id for found in await other.questions(session.id)] == [question.call_id]
    await other.approve(session.id, question.turn_id, question.call_id, allowed=True, by="bo")
    async for item in other.engine.watch(session.id):
        if isinstance(item, Entry) and item.kind == "turn_ended":
            break

    events = await other.log(session.id)
    assert_well_formed(events)
    assert sum(isinstance(event, ApprovalAsked) for event in events) == 1
    assert other.mailer.outbox.read_text() == "all\n"


COMMAND = "rm -rf build; touch X; git push --force"
ALWAYS = Answer(allowed=True, scope="always")


def run(command: str) -> ScriptStep:
    return ScriptStep(call=(ScriptedCall(name="terminal", arguments={"command": command}),))


async def with_terminal(folder: Path, *steps: ScriptStep) -> Stage:
    return await set_up(folder, *steps, approval_seconds=None, tools=[TerminalTool({"PATH": "/usr/bin:/bin"})])


async def answer(stage: Stage, session_id: str, given: Answer) -> ApprovalAsked:
    """Answer the next question; returns it."""
    question = await asked(stage, session_id)
    await stage.engine.answer((session_id, question.turn_id, question.call_id), given, by="bo")
    return question


async def test_promise_28_the_question_contains_the_whole_command_every_risk_the_directory_and_the_requester(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await with_terminal(tmp_path, run(COMMAND), ScriptStep(say="Done.")))
    session = await stage.session(source="chat")
    turn = asyncio.create_task(stage.play(session.id, "Clean up"))
    question = await answer(stage, session.id, Answer(allowed=False, reason="not today"))

    events = await turn
    assert COMMAND in question.question
    assert question.proposal.command == COMMAND
    assert [finding.part for finding in question.proposal.findings] == ["rm -rf build", "git push --force"]
    assert (question.proposal.workdir, question.proposal.requester) == (str(tmp_path), "local user")
    assert session.id in question.question
    [ended] = [event for event in events if isinstance(event, ToolEnded)]
    assert "Approval was denied: not today" in text_of(ended.parts)
    assert not (tmp_path / "X").exists()


async def test_a_session_that_waits_for_approval_is_listed_as_asking(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, ScriptStep(say="Done."), approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail all"))
    await asked(stage, session.id)

    asking = session_list.SessionFilters(state="asking")
    page = await stage.database.read(lambda tx: session_list.list_page(tx, asking, limit=5))
    assert [one.state for one in page.sessions] == ["asking"]
    await answer(stage, session.id, Answer(allowed=False))
    await turn
    assert (await stage.database.read(sessions.get, session.id)).state == "waiting"


@pytest.mark.process
async def test_a_command_that_was_always_allowed_needs_no_approval_and_the_log_says_why(
    tmp_path: Path, stages: list[Stage]
) -> None:
    steps = (run("rm -rf build"), ScriptStep(say="One."), run("rm -rf build"), ScriptStep(say="Two."))
    stages.append(stage := await with_terminal(tmp_path, *steps))
    first = await stage.session(source="chat")
    turn = asyncio.create_task(stage.play(first.id, "Clean up"))
    await answer(stage, first.id, ALWAYS)
    given = [event for event in await turn if isinstance(event, ApprovalAnswered)]

    second = await stage.session(source="chat")
    events = await stage.play(second.id, "Clean up")

    [applied] = [event for event in events if isinstance(event, ApprovalRuleApplied)]
    assert not any(isinstance(event, ApprovalAsked) for event in events)
    assert (applied.by, applied.rule_id, applied.proposal.command) == ("bo", given[0].rule_id, "rm -rf build")
    assert given[0].scope == "always"


@pytest.mark.process
async def test_a_rule_for_a_session_or_of_another_requester_or_that_was_revoked_does_not_apply(
    tmp_path: Path, stages: list[Stage]
) -> None:
    steps = [step for _ in range(4) for step in (run("rm -rf build"), ScriptStep(say="Done."))]
    stages.append(stage := await with_terminal(tmp_path, *steps))
    first = await stage.session(source="chat")
    turn = asyncio.create_task(stage.play(first.id, "Clean up"))
    await answer(stage, first.id, Answer(allowed=True, scope="session"))
    await turn
    second = await stage.session(source="chat")
    turn = asyncio.create_task(stage.play(second.id, "Clean up"))
    await answer(stage, second.id, ALWAYS)
    await turn
    of_api = await stage.session(source="api")
    turn = asyncio.create_task(stage.play(of_api.id, "Clean up"))
    await answer(stage, of_api.id, Answer(allowed=False))
    await turn

    for rule in await stage.database.read(approval_rules.list_all):
        await stage.database.write(lambda tx, rule=rule: approval_rules.revoke(tx, rule.id, by="bo", at=1))
    third = await stage.session(source="chat")
    turn = asyncio.create_task(stage.play(third.id, "Clean up"))
    await answer(stage, third.id, Answer(allowed=False))
    await turn

    assert await stage.database.read(approval_rules.list_all) == []


async def test_an_answer_that_would_create_an_unsafe_rule_leaves_the_question_open(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await with_terminal(tmp_path, run(COMMAND), ScriptStep(say="Done.")))
    session = await stage.session(source="chat")
    turn = asyncio.create_task(stage.play(session.id, "Clean up"))

    for match in ("prefix", "tool"):
        with pytest.raises(Invalid, match="cannot be approved by a rule"):
            await answer(stage, session.id, Answer(allowed=True, scope="always", match=match))  # type: ignore[arg-type]

    assert len(await stage.questions(session.id)) == 1
    await answer(stage, session.id, Answer(allowed=False))
    await turn


def write(path: str) -> ScriptStep:
    return ScriptStep(
        call=(ScriptedCall(name="write_file", arguments={"path": path, "content": "export PATH=/evil\n"}),)
    )


async def test_a_write_is_shown_as_a_diff_and_only_what_was_shown_is_written(
    tmp_path: Path, stages: list[Stage]
) -> None:
    profile = tmp_path / ".bashrc"
    profile.write_text("export PATH=/bin\n")
    stages.append(
        stage := await set_up(
            tmp_path,
            write(".bashrc"),
            ScriptStep(say="Done."),
            approval_seconds=None,
            tools=[WriteFileTool(FileEditor())],
        )
    )
    session = await stage.session(source="chat")
    turn = asyncio.create_task(stage.play(session.id, "Set it up"))
    question = await asked(stage, session.id)
    profile.write_text("export PATH=/usr/bin\n")
    await answer(stage, session.id, Answer(allowed=True))

    [ended] = [event for event in await turn if isinstance(event, ToolEnded)]
    assert "-export PATH=/bin\n" in question.proposal.preview
    assert "+export PATH=/evil" in question.question
    assert ended.outcome == "failed"
    assert "was modified after the change was approved" in text_of(ended.parts)
    assert profile.read_text() == "export PATH=/usr/bin\n"


async def test_a_question_whose_file_changed_while_no_worker_ran_is_asked_again(
    tmp_path: Path, stages: list[Stage]
) -> None:
    profile = tmp_path / ".bashrc"
    steps, tools = (write(".bashrc"), ScriptStep(say="Done.")), [WriteFileTool(FileEditor())]
    stages.append(stage := await set_up(tmp_path, *steps, approval_seconds=None, tools=tools))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Set it up"))
    first = await asked(stage, session.id)
    await stage.engine.close("restarted")
    turn.cancel()
    profile.write_text("mine\n")
    stages.append(other := await set_up(tmp_path, *steps, approval_seconds=None, tools=tools, database=stage.database))
    await other.engine.resume(session.id)

    async for item in other.engine.watch(session.id):
        if isinstance(item, Entry) and isinstance(item.event, ApprovalAsked) and "-mine" in item.event.question:
            break
    [open_] = await other.questions(session.id)
    assert open_.id != first.question_id
    await other.engine.answer(open_.call_key, Answer(allowed=True), by="bo")
    async for item in other.engine.watch(session.id):
        if isinstance(item, Entry) and item.kind == "turn_ended":
            break
    assert profile.read_text() == "export PATH=/evil\n"
    assert_well_formed(await other.log(session.id))


async def test_a_call_that_is_certain_to_fail_needs_no_approval(tmp_path: Path, stages: list[Stage]) -> None:
    folder = tmp_path / ".bashrc"
    folder.mkdir()
    stages.append(
        stage := await set_up(
            tmp_path,
            write(".bashrc"),
            ScriptStep(say="Done."),
            approval_seconds=None,
            tools=[WriteFileTool(FileEditor())],
        )
    )
    session = await stage.session()

    events = await stage.play(session.id, "Set it up")

    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == ["failed"]
    assert not any(isinstance(event, ApprovalAsked) for event in events)


async def test_a_worker_that_leaves_does_not_wait_for_the_answer_of_a_person(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, ScriptStep(say="Done."), approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail all"))
    question = await asked(stage, session.id)

    await stage.engine.drain(3600)
    turn.cancel()
    stages.append(
        other := await set_up(tmp_path, ScriptStep(say="Done."), approval_seconds=None, database=stage.database)
    )

    assert [one.call_id for one in await other.questions(session.id)] == [question.call_id]
    assert not stage.mailer.outbox.exists()


async def test_an_answer_continues_a_turn_that_was_left_even_if_its_caller_is_cancelled(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, ScriptStep(say="Done."), approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail all"))
    question = await asked(stage, session.id)
    await stage.engine.close("restarted")
    turn.cancel()
    stages.append(
        other := await set_up(tmp_path, ASK, ScriptStep(say="Done."), approval_seconds=None, database=stage.database)
    )

    answering = asyncio.create_task(
        other.approve(session.id, question.turn_id, question.call_id, allowed=True, by="bo")
    )
    await asyncio.sleep(0)
    answering.cancel()
    async for item in other.engine.watch(session.id):
        if isinstance(item, Entry) and item.kind == "turn_ended":
            break

    assert other.mailer.outbox.read_text() == "all\n"
