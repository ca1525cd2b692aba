import asyncio
import json

import msgspec
import pytest

from holdfast.model.errors import BadReply, Invalid, NotFound, RateLimited, Refused
from holdfast.model.message import Message, Reasoning, Text, ToolCall, ToolResult
from holdfast.model.provider import ModelReply, ModelRequest, ReasoningDelta, TextDelta
from holdfast.providers.scripted import FAILURES, Script, ScriptedCall, ScriptedProvider, ScriptStep, load_script


def user(text, seq=1):
    return Message(seq, "user", (Text(text),), at=seq)


def model(*parts, seq=2, partial=False):
    return Message(seq, "assistant", parts, at=seq, partial=partial)


def asking(*messages, name="echo", system=""):
    return ModelRequest(model=name, system=system, messages=messages)


async def heard(provider, request):
    """Everything that was streamed, and the reply."""
    *deltas, reply = [item async for item in provider.ask(request)]
    assert isinstance(reply, ModelReply)
    assert not any(isinstance(item, ModelReply) for item in deltas)
    return deltas, reply


def playing(*steps, **more):
    return ScriptedProvider({"play": Script(steps=steps, **more)})


async def said(provider, *messages):
    _, reply = await heard(provider, asking(*messages, name="play"))
    return "".join(part.text for part in reply.parts if isinstance(part, Text))


async def test_echo_repeats_the_newest_user_message_in_chunks():
    request = asking(user("first"), model(Text("You said: first")), user("two  more\nwords", seq=3))

    deltas, reply = await heard(ScriptedProvider(), request)

    assert len(deltas) > 1
    assert "".join(delta.text for delta in deltas) == "You said: two  more\nwords"
    assert reply.parts == (Text("You said: two  more\nwords"),)
    assert reply.finish == "stop"


async def test_the_empty_name_means_echo():
    _, reply = await heard(ScriptedProvider(), asking(user("hi"), name=""))

    assert (reply.model, reply.parts) == ("echo", (Text("You said: hi"),))


async def test_one_word_counts_as_one_token():
    _, reply = await heard(ScriptedProvider(), asking(user("one two three"), system="be brief"))

    assert (reply.usage.tokens_in, reply.usage.tokens_out) == (5, 5)


async def test_a_step_reasons_answers_and_calls_in_this_order():
    step = ScriptStep(
        think="let me see",
        say="I look.",
        call=(ScriptedCall("read_file", {"path": "a"}), ScriptedCall("broken", "{not json")),
    )

    deltas, reply = await heard(playing(step), asking(user("go", seq=7), name="play"))

    assert [type(delta) for delta in deltas] == [ReasoningDelta] * 3 + [TextDelta] * 2
    assert reply.parts == (
        Reasoning("let me see", provider="scripted"),
        Text("I look."),
        ToolCall("call-7-1", "read_file", '{"path": "a"}'),
        ToolCall("call-7-2", "broken", "{not json"),
    )
    assert reply.finish == "tool_calls"
    assert reply.usage.reasoning == 3


async def test_an_empty_step_is_an_empty_reply():
    deltas, reply = await heard(playing(ScriptStep()), asking(user("go"), name="play"))

    assert (deltas, reply.parts, reply.finish) == ([], (), "stop")


async def test_the_request_determines_the_step_of_the_script():
    steps = [ScriptStep(say="one"), ScriptStep(call=(ScriptedCall("t"),)), ScriptStep(say="three")]
    so_far = [user("go")]
    replies = []

    for seq in (2, 4, 6):
        _, reply = await heard(playing(*steps), asking(*so_far, name="play"))
        replies.append(reply.parts[0])
        so_far += [model(*reply.parts, seq=seq), user("next", seq=seq + 1)]

    assert replies == [Text("one"), ToolCall("call-3-1", "t", "{}"), Text("three")]


async def test_a_reply_that_a_crash_interrupted_is_played_again():
    steps = [ScriptStep(say="one"), ScriptStep(say="two")]

    assert await said(playing(*steps), user("go"), model(Text("on"), partial=True)) == "one"


async def test_a_finished_script_refuses_requests():
    with pytest.raises(Refused, match="no answer number 2"):
        await said(playing(ScriptStep(say="one")), user("go"), model(Text("one")))


async def test_a_script_with_loop_starts_again():
    provider = playing(ScriptStep(say="one"), ScriptStep(say="two"), loop=True)

    assert await said(provider, user("go"), model(Text("one")), model(Text("two"), seq=3)) == "one"


async def test_a_loop_of_failures_only_ends():
    provider = playing(ScriptStep(fail="unreachable"), loop=True)
    with pytest.raises(FAILURES["unreachable"]):
        await said(provider, user("go"))

    with pytest.raises(Refused):
        await said(provider, user("go"))


@pytest.mark.parametrize("code", FAILURES)
async def test_every_failure_can_be_played(code):
    with pytest.raises(FAILURES[code], match="sorry") as caught:
        await said(playing(ScriptStep(fail=code, message="sorry")), user("go"))

    assert caught.value.code == code


async def test_a_rate_limit_includes_the_retry_time():
    with pytest.raises(RateLimited) as caught:
        await said(playing(ScriptStep(fail="rate_limited", retry_after=1.5)), user("go"))

    assert caught.value.retry_after == 1.5


async def test_failures_occur_as_often_as_scripted_and_then_the_script_continues():
    provider = playing(
        ScriptStep(fail="rate_limited", times=2), ScriptStep(fail="unreachable"), ScriptStep(say="at last")
    )

    for expected in ("rate_limited", "rate_limited", "unreachable"):
        with pytest.raises(FAILURES[expected]):
            await said(provider, user("go"))

    assert await said(provider, user("go")) == "at last"
    assert await said(provider, user("go")) == "at last", "a reply that was lost is given again, without the failures"


async def test_two_sessions_do_not_share_their_failures():
    provider = playing(ScriptStep(fail="unreachable"), ScriptStep(say="fine"))
    with pytest.raises(FAILURES["unreachable"]):
        await said(provider, user("go", seq=1))

    with pytest.raises(FAILURES["unreachable"]):
        await said(provider, user("go", seq=5))


async def test_a_cut_streams_its_deltas_and_then_breaks_off():
    shown = []

    with pytest.raises(BadReply, match="after 2 deltas"):
        async for item in playing(ScriptStep(say="a b c d", cut_after=2)).ask(asking(user("go"), name="play")):
            shown.append(item)

    assert shown == [TextDelta("a "), TextDelta("b ")]


async def test_a_restarted_provider_counts_a_hang_from_the_partial_reply():
    steps = [ScriptStep(say="wait for", hang=True), ScriptStep(say="done")]

    assert await said(playing(*steps), user("go"), model(Text("wait for"), partial=True)) == "done"


async def test_a_hang_ends_when_it_is_cancelled():
    provider = playing(ScriptStep(say="so", hang=True))
    seen = asyncio.Event()

    async def listen():
        async for item in provider.ask(asking(user("go"), name="play")):
            assert item == TextDelta("so")
            seen.set()

    task = asyncio.create_task(listen())
    await seen.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_delays_use_the_given_sleep_function():
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    provider = ScriptedProvider({"play": Script(steps=(ScriptStep(say="a b c", delay_seconds=0.5),))}, sleep=sleep)

    await said(provider, user("go"))
    assert slept == [0.5, 0.5, 0.5]


async def test_a_script_is_read_from_a_file(tmp_path):
    path = tmp_path / "play.json"
    path.write_text(json.dumps({"window": 500, "steps": [{"say": "from a file"}]}))
    provider = ScriptedProvider()

    _, reply = await heard(provider, asking(user("go"), name=str(path)))

    assert reply.parts == (Text("from a file"),)
    assert provider.window(str(path)) == 500


def test_the_window_comes_from_the_script_or_the_default():
    provider = playing(ScriptStep(), window=1000)

    assert provider.window("play") == 1000
    assert provider.window("echo") == 128_000
    assert provider.window("tools") == 128_000
    assert provider.window("nobody") is None


@pytest.mark.parametrize(
    "text", ["", "{}", '{"steps": [{"sya": "typo"}]}', '{"steps": [{"fail": "tired"}]}', '{"steps": [{"times": 0}]}']
)
def test_an_invalid_script_file_is_named(tmp_path, text):
    path = tmp_path / "play.json"
    path.write_text(text)

    with pytest.raises(Invalid, match=r"play\.json"):
        load_script(path)


def test_a_step_has_at_most_one_failure():
    with pytest.raises(msgspec.ValidationError, match="one of fail, hang and cut_after"):
        msgspec.convert({"fail": "refused", "hang": True}, ScriptStep)


def test_a_missing_script_file_is_not_found(tmp_path):
    with pytest.raises(NotFound):
        load_script(tmp_path / "none.json")


@pytest.mark.parametrize("name", ["nobody", "none.json"])
async def test_an_unknown_script_is_refused(name):
    with pytest.raises(Refused, match=name):
        await heard(ScriptedProvider(), asking(user("go"), name=name))


async def test_tools_makes_all_calls_that_the_user_names_in_one_reply():
    words = 'please\nuse tool terminal {"command": "ls"}\nuse tool recall\nuse tool broken {oops'

    _, reply = await heard(ScriptedProvider(), asking(user(words, seq=4), name="tools"))

    assert reply.parts == (
        ToolCall("call-4-1", "terminal", '{"command": "ls"}'),
        ToolCall("call-4-2", "recall", "{}"),
        ToolCall("call-4-3", "broken", "{oops"),
    )


async def test_tools_summarizes_the_results():
    request = asking(
        user("use tool terminal {}"),
        model(ToolCall("c1", "terminal"), ToolCall("c2", "recall")),
        Message(3, "tool", (ToolResult("c1", (Text("two\nlines"),)),), at=3),
        Message(4, "tool", (ToolResult("c2", (Text("x" * 500),), "failed"),), at=4),
        name="tools",
    )

    _, reply = await heard(ScriptedProvider(), request)

    assert reply.parts == (Text(f"done: terminal: two lines; recall failed: {'x' * 60}"),)


async def test_tools_echoes_a_message_without_a_tool():
    request = asking(
        user("use tool t"),
        model(ToolCall("c", "t")),
        Message(3, "tool", (ToolResult("c"),), at=3),
        model(Text("done: t: "), seq=4),
        user("thanks", seq=5),
        name="tools",
    )

    _, reply = await heard(ScriptedProvider(), request)

    assert reply.parts == (Text("You said: thanks"),)


async def test_it_can_be_closed_twice():
    provider = ScriptedProvider()

    await provider.close()
    await provider.close()
