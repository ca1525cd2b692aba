import asyncio
import json

import msgspec
import pytest

from holdfast.model.asking import ReasoningDelta, Reply, Request, TextDelta
from holdfast.model.errors import BadReply, Invalid, NotFound, RateLimited, Refused
from holdfast.model.message import Message, Reasoning, Text, ToolCall, ToolResult
from holdfast.providers.scripted import FAILURES, Call, Script, ScriptedProvider, Step, load


def user(text, seq=1):
    return Message(seq, "user", (Text(text),), at=seq)


def model(*parts, seq=2, partial=False):
    return Message(seq, "assistant", parts, at=seq, partial=partial)


def asking(*messages, name="echo", system=""):
    return Request(model=name, system=system, messages=messages)


async def heard(provider, request):
    """Everything that was streamed, and the reply."""
    *deltas, reply = [item async for item in provider.ask(request)]
    assert isinstance(reply, Reply)
    assert not any(isinstance(item, Reply) for item in deltas)
    return deltas, reply


def playing(*steps, **more):
    return ScriptedProvider({"play": Script(steps=steps, **more)})


async def said(provider, *messages):
    _, reply = await heard(provider, asking(*messages, name="play"))
    return "".join(part.text for part in reply.parts if isinstance(part, Text))


async def test_echo_repeats_the_newest_words_of_the_user_in_pieces():
    request = asking(user("first"), model(Text("You said: first")), user("two  more\nwords", seq=3))

    deltas, reply = await heard(ScriptedProvider(), request)

    assert len(deltas) > 1
    assert "".join(delta.text for delta in deltas) == "You said: two  more\nwords"
    assert reply.parts == (Text("You said: two  more\nwords"),)
    assert reply.finish == "stop"


async def test_the_empty_name_is_the_echo():
    _, reply = await heard(ScriptedProvider(), asking(user("hi"), name=""))

    assert (reply.model, reply.parts) == ("echo", (Text("You said: hi"),))


async def test_a_word_is_a_token():
    _, reply = await heard(ScriptedProvider(), asking(user("one two three"), system="be brief"))

    assert (reply.usage.tokens_in, reply.usage.tokens_out) == (5, 5)


async def test_a_step_thinks_speaks_and_calls_in_this_order():
    step = Step(think="let me see", say="I look.", call=(Call("read_file", {"path": "a"}), Call("broken", "{not json")))

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


async def test_an_empty_step_says_nothing():
    deltas, reply = await heard(playing(Step()), asking(user("go"), name="play"))

    assert (deltas, reply.parts, reply.finish) == ([], (), "stop")


async def test_the_place_in_the_script_is_read_off_the_request_by_whoever_plays_it():
    steps = [Step(say="one"), Step(call=(Call("t"),)), Step(say="three")]
    so_far = [user("go")]
    replies = []

    for seq in (2, 4, 6):
        _, reply = await heard(playing(*steps), asking(*so_far, name="play"))
        replies.append(reply.parts[0])
        so_far += [model(*reply.parts, seq=seq), user("next", seq=seq + 1)]

    assert replies == [Text("one"), ToolCall("call-3-1", "t", "{}"), Text("three")]


async def test_a_reply_that_was_cut_by_a_crash_is_given_again():
    steps = [Step(say="one"), Step(say="two")]

    assert await said(playing(*steps), user("go"), model(Text("on"), partial=True)) == "one"


async def test_a_script_that_is_over_refuses():
    with pytest.raises(Refused, match="no answer number 2"):
        await said(playing(Step(say="one")), user("go"), model(Text("one")))


async def test_a_script_with_loop_begins_again():
    provider = playing(Step(say="one"), Step(say="two"), loop=True)

    assert await said(provider, user("go"), model(Text("one")), model(Text("two"), seq=3)) == "one"


async def test_a_loop_of_upsets_alone_ends():
    provider = playing(Step(fail="unreachable"), loop=True)
    with pytest.raises(FAILURES["unreachable"]):
        await said(provider, user("go"))

    with pytest.raises(Refused):
        await said(provider, user("go"))


@pytest.mark.parametrize("code", FAILURES)
async def test_every_failure_can_be_played(code):
    with pytest.raises(FAILURES[code], match="sorry") as caught:
        await said(playing(Step(fail=code, message="sorry")), user("go"))

    assert caught.value.code == code


async def test_a_rate_limit_says_when_to_come_back():
    with pytest.raises(RateLimited) as caught:
        await said(playing(Step(fail="rate_limited", retry_after=1.5)), user("go"))

    assert caught.value.retry_after == 1.5


async def test_failures_are_met_as_often_as_written_and_then_the_script_goes_on():
    provider = playing(Step(fail="rate_limited", times=2), Step(fail="unreachable"), Step(say="at last"))

    for expected in ("rate_limited", "rate_limited", "unreachable"):
        with pytest.raises(FAILURES[expected]):
            await said(provider, user("go"))

    assert await said(provider, user("go")) == "at last"
    assert await said(provider, user("go")) == "at last", "a reply that was lost is given again, without the failures"


async def test_two_sessions_do_not_share_their_failures():
    provider = playing(Step(fail="unreachable"), Step(say="fine"))
    with pytest.raises(FAILURES["unreachable"]):
        await said(provider, user("go", seq=1))

    with pytest.raises(FAILURES["unreachable"]):
        await said(provider, user("go", seq=5))


async def test_a_cut_shows_its_pieces_and_then_breaks_off():
    shown = []

    with pytest.raises(BadReply, match="after 2 pieces"):
        async for item in playing(Step(say="a b c d", cut_after=2)).ask(asking(user("go"), name="play")):
            shown.append(item)

    assert shown == [TextDelta("a "), TextDelta("b ")]


async def test_a_restarted_provider_sees_from_the_partial_reply_that_a_hang_is_over():
    steps = [Step(say="wait for", hang=True), Step(say="done")]

    assert await said(playing(*steps), user("go"), model(Text("wait for"), partial=True)) == "done"


async def test_a_hang_ends_when_it_is_cancelled():
    provider = playing(Step(say="so", hang=True))
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


async def test_delays_pass_in_the_sleep_that_was_handed_in():
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    provider = ScriptedProvider({"play": Script(steps=(Step(say="a b c", delay_seconds=0.5),))}, sleep=sleep)

    await said(provider, user("go"))
    assert slept == [0.5, 0.5, 0.5]


async def test_a_script_is_read_from_a_file(tmp_path):
    path = tmp_path / "play.json"
    path.write_text(json.dumps({"window": 500, "steps": [{"say": "from a file"}]}))
    provider = ScriptedProvider()

    _, reply = await heard(provider, asking(user("go"), name=str(path)))

    assert reply.parts == (Text("from a file"),)
    assert provider.window(str(path)) == 500


def test_the_window_is_that_of_the_script_or_a_usual_one():
    provider = playing(Step(), window=1000)

    assert provider.window("play") == 1000
    assert provider.window("echo") == 128_000
    assert provider.window("tools") == 128_000
    assert provider.window("nobody") is None


@pytest.mark.parametrize(
    "text", ["", "{}", '{"steps": [{"sya": "typo"}]}', '{"steps": [{"fail": "tired"}]}', '{"steps": [{"times": 0}]}']
)
def test_a_file_that_is_no_script_is_named(tmp_path, text):
    path = tmp_path / "play.json"
    path.write_text(text)

    with pytest.raises(Invalid, match=r"play\.json"):
        load(path)


def test_a_step_has_one_upset():
    with pytest.raises(msgspec.ValidationError, match="one of fail, hang and cut_after"):
        msgspec.convert({"fail": "refused", "hang": True}, Step)


def test_a_missing_script_file_is_not_found(tmp_path):
    with pytest.raises(NotFound):
        load(tmp_path / "none.json")


@pytest.mark.parametrize("name", ["nobody", "none.json"])
async def test_asking_for_a_script_that_is_not_there_is_refused(name):
    with pytest.raises(Refused, match=name):
        await heard(ScriptedProvider(), asking(user("go"), name=name))


async def test_tools_calls_all_that_the_user_names_in_one_reply():
    words = 'please\nuse tool terminal {"command": "ls"}\nuse tool recall\nuse tool broken {oops'

    _, reply = await heard(ScriptedProvider(), asking(user(words, seq=4), name="tools"))

    assert reply.parts == (
        ToolCall("call-4-1", "terminal", '{"command": "ls"}'),
        ToolCall("call-4-2", "recall", "{}"),
        ToolCall("call-4-3", "broken", "{oops"),
    )


async def test_tools_sums_up_the_results():
    request = asking(
        user("use tool terminal {}"),
        model(ToolCall("c1", "terminal"), ToolCall("c2", "recall")),
        Message(3, "tool", (ToolResult("c1", (Text("two\nlines"),)),), at=3),
        Message(4, "tool", (ToolResult("c2", (Text("x" * 500),), "failed"),), at=4),
        name="tools",
    )

    _, reply = await heard(ScriptedProvider(), request)

    assert reply.parts == (Text(f"done: terminal: two lines; recall failed: {'x' * 60}"),)


async def test_tools_answers_words_without_a_tool_like_the_echo():
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
