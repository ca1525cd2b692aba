"""The spans of a turn follow from its events alone."""

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.event import (
    Event,
    ModelCalled,
    ModelSaid,
    Recovered,
    Titled,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    UserSaid,
)
from holdfast.model.message import Text, ToolCall
from holdfast.telemetry.metric_points import histogram_points
from holdfast.telemetry.turn_spans import WORKER_LOST, Span, TraceSubject, turn_spans

T = "t-1"
QUESTION = UserSaid(turn_id=T, parts=(Text("my secret question"),))
CALLS = ModelSaid(
    turn_id=T,
    parts=(ToolCall("c1", "terminal", '{"command": "make"}'),),
    model="gpt-5",
    finish="tool_calls",
    usage=Usage(tokens_in=10, tokens_out=4, cost=0.5),
)
REPLY = ModelSaid(turn_id=T, parts=(Text("a secret answer"),), model="gpt-5", usage=Usage(tokens_in=20, tokens_out=6))


def spans_of(*events: Event, content: bool = False) -> list[Span]:
    entries = [Entry(seq, seq * 1_000_000, event) for seq, event in enumerate((TurnStarted(turn_id=T), *events), 1)]
    subject = TraceSubject(session_id="hf-1", model="openai:gpt-5", source="api", content=content)
    return turn_spans(subject, entries)


def tool(outcome: str = "ok") -> ToolEnded:
    return ToolEnded(turn_id=T, call_id="c1", name="terminal", outcome=outcome, parts=(Text("secret output"),))  # type: ignore[arg-type]


PLAIN = (QUESTION, CALLS, ToolStarted(turn_id=T, call_id="c1", name="terminal"), tool(), REPLY)


def test_a_turn_is_a_trace_of_its_model_and_tool_calls() -> None:
    root, asked, ran, answered = spans_of(*PLAIN, TurnEnded(turn_id=T, outcome="done", usage=Usage(tokens_in=30)))

    assert [one.name for one in (root, asked, ran, answered)] == [
        "invoke_agent holdfast",
        "chat gpt-5",
        "execute_tool terminal",
        "chat gpt-5",
    ]
    assert root.parent_id is None
    assert {one.parent_id for one in (asked, ran, answered)} == {root.span_id}
    assert len({one.trace_id for one in (root, asked, ran, answered)}) == 1
    assert (root.start, root.end) == (1_000_000, 7_000_000)
    assert (asked.start, asked.end) == (2_000_000, 3_000_000), "from the message to the commit of the reply"
    assert (ran.start, ran.end) == (4_000_000, 5_000_000)
    assert answered.start == 5_000_000, "the call could begin when the result was there"
    assert asked.attributes["gen_ai.provider.name"] == "openai"
    assert asked.attributes["gen_ai.usage.output_tokens"] == 4
    assert asked.attributes["holdfast.usage.cost_usd"] == 0.5
    assert root.attributes["gen_ai.usage.input_tokens"] == 30
    assert not any(one.error for one in (root, asked, ran, answered))


def test_content_is_exported_only_on_request() -> None:
    ended = TurnEnded(turn_id=T, outcome="done")

    assert "secret" not in repr(spans_of(*PLAIN, ended))
    with_content = spans_of(*PLAIN, ended, content=True)
    assert "my secret question" in str(with_content[1].attributes["gen_ai.input.messages"])
    assert with_content[2].attributes["gen_ai.tool.call.result"] == "secret output"
    assert "secret output" in str(with_content[3].attributes["gen_ai.input.messages"])
    assert "a secret answer" in str(with_content[3].attributes["gen_ai.output.messages"])


def test_each_attempt_of_a_recovered_turn_is_linked_to_the_one_before() -> None:
    started = ToolStarted(turn_id=T, call_id="c1", name="terminal")
    died = Recovered(turn_id=T, attempt=1, action="continue", evidence="process 7 is gone")
    again = Recovered(turn_id=T, attempt=2, action="continue", evidence="process 9 is gone")
    spans = spans_of(
        QUESTION, CALLS, started, died, tool("unknown"), again, REPLY, TurnEnded(turn_id=T, outcome="done")
    )
    root, *rest = spans
    attempts = {one.name: one for one in rest if one.name.startswith("attempt")}

    assert list(attempts) == ["attempt 1", "attempt 2", "attempt 3"]
    first, second, third = attempts.values()
    assert (first.link, second.link, third.link) == (None, first.span_id, second.span_id)
    assert [one.error for one in attempts.values()] == [WORKER_LOST, WORKER_LOST, ""]
    assert first.end == 4_000_000, "the last sign of the dead worker"
    calls = [one for one in rest if not one.name.startswith("attempt")]
    assert [one.parent_id for one in calls] == [first.span_id, first.span_id, third.span_id]
    assert calls[1].error == "unknown"
    assert [one.name for one in root.events] == ["holdfast.recovered", "holdfast.recovered"]
    assert not root.error


def test_calls_name_the_model_that_was_called_and_those_beside_the_conversation_count() -> None:
    fallback = msgspec.structs.replace(REPLY, called="anthropic:claude-sonnet-5-5")
    summary = ModelCalled(turn_id=T, purpose="summary", model="local:smollm2", usage=Usage(tokens_in=7))
    spans = spans_of(QUESTION, summary, fallback, TurnEnded(turn_id=T, outcome="done"))
    _, summarized, replied = spans

    assert (summarized.name, summarized.attributes["holdfast.call.purpose"]) == ("chat smollm2", "summary")
    assert replied.attributes["gen_ai.provider.name"] == "anthropic"
    assert replied.attributes["gen_ai.request.model"] == "claude-sonnet-5-5"
    points = histogram_points(spans)
    local = [one for one in points if one.attributes.get("gen_ai.provider.name") == "local"]
    assert [one.total for one in local if one.attributes.get("gen_ai.token.type") == "input"] == [7]


def test_the_turn_of_a_sub_agent_is_linked_to_the_turn_that_delegated_it() -> None:
    [parent, *_] = spans_of(QUESTION, REPLY, TurnEnded(turn_id=T, outcome="done"))
    subject = TraceSubject(session_id="hf-2", model="x:y", source="delegate", delegated_by=("hf-1", T))
    [root, *_] = turn_spans(
        subject, [Entry(1, 1, TurnStarted(turn_id="t-9")), Entry(2, 2, TurnEnded(turn_id="t-9", outcome="done"))]
    )

    assert (root.link, root.link_trace) == (parent.span_id, parent.trace_id)
    assert root.trace_id != parent.trace_id


def test_a_failed_turn_has_the_error_code() -> None:
    root, *_ = spans_of(QUESTION, TurnEnded(turn_id=T, outcome="failed", code="rate_limited", reason="429"))

    assert (root.error, root.message) == ("rate_limited", "429")


def test_events_of_other_work_are_left_out() -> None:
    other = UserSaid(turn_id="t-2", parts=(Text("queued"),))
    spans = spans_of(QUESTION, other, Titled(title="x"), REPLY, TurnEnded(turn_id=T, outcome="done"), content=True)

    assert len(spans) == 2
    assert "queued" not in repr(spans)


def test_the_same_events_give_the_same_ids() -> None:
    assert spans_of(*PLAIN) == spans_of(*PLAIN)
    assert len({one.span_id for one in spans_of(*PLAIN)}) == 4


def test_metrics_count_each_model_call_once() -> None:
    points = histogram_points(spans_of(*PLAIN, TurnEnded(turn_id=T, outcome="done")))
    by_name = {(point.instrument.name, point.attributes.get("gen_ai.token.type", "")): point for point in points}

    assert by_name["gen_ai.client.token.usage", "input"].total == 30
    assert by_name["gen_ai.client.token.usage", "output"].total == 10
    assert sum(by_name["gen_ai.client.operation.duration", ""].counts) == 2
    assert by_name["holdfast.tool.duration", ""].total == 1.0
    assert by_name["holdfast.turn.duration", ""].attributes["holdfast.turn.outcome"] == "done"
