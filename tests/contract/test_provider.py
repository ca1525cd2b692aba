"""The contract of every provider: each sentence of the port has a test here."""

from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from holdfast.model.errors import ProviderFailed, RateLimited
from holdfast.model.message import Message, Text, ToolCall
from holdfast.model.provider import ModelReply, ModelRequest, TextDelta
from holdfast.providers.timeouts import DEFAULT_TIMEOUTS
from tests.contract.provider_subjects import SHORT, SUBJECTS, Bench
from tests.providers.messages import TERMINAL, called, model, result, user


@pytest.fixture(params=SUBJECTS)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with SUBJECTS[request.param](DEFAULT_TIMEOUTS) as opened:
        yield opened


@pytest.fixture(params=SUBJECTS)
async def hasty(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """A bench whose provider has short timeouts."""
    async with SUBJECTS[request.param](SHORT) as opened:
        yield opened


def question(bench: Bench, *said: Message) -> ModelRequest:
    return ModelRequest(model=bench.model, system="Be kind.", messages=(user("hi"), *said), tools=(TERMINAL,))


async def test_any_number_of_deltas_is_followed_by_one_complete_reply(bench: Bench) -> None:
    bench.will_say("Hello, you there.")

    *deltas, reply = [item async for item in bench.provider.ask(question(bench))]

    assert all(isinstance(delta, TextDelta) for delta in deltas)
    assert isinstance(reply, ModelReply)
    assert reply.parts == (Text("Hello, you there."),)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Hello, you there."
    assert reply.finish == "stop"
    assert reply.usage.tokens_in > 0
    assert reply.usage.tokens_out > 0


async def test_calls_are_part_of_the_reply_as_the_model_wrote_them(bench: Bench) -> None:
    bench.will_call("terminal", '{"command": "ls"}')

    *_, reply = [item async for item in bench.provider.ask(question(bench))]

    assert isinstance(reply, ModelReply)
    (call,) = reply.parts
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments, reply.finish) == ("terminal", '{"command": "ls"}', "tool_calls")
    assert call.id


async def test_a_call_and_its_result_can_be_sent(bench: Bench) -> None:
    bench.will_say("Three files.")

    *_, reply = [item async for item in bench.provider.ask(question(bench, model(called()), result()))]

    assert isinstance(reply, ModelReply)


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [
        (model("half a rep", partial=True),),
        (model(called("c1"), called("c2")), result("c1")),
        (result("orphan"), user("")),
        (model(called(arguments='{"comm')), result()),
        (model("lone \ud800 and \0"), user("\udc00")),
    ],
    ids=["a partial reply", "a call without a result", "a result without a call", "half a call", "odd text"],
)
async def test_any_log_can_be_sent(bench: Bench, said: tuple[Message, ...]) -> None:
    bench.will_say("All right.")

    *_, reply = [item async for item in bench.provider.ask(question(bench, *said))]

    assert isinstance(reply, ModelReply)


async def test_a_stream_that_ends_early_is_a_transient_failure(bench: Bench) -> None:
    bench.will_break_off("Hello")
    seen = []

    with pytest.raises(ProviderFailed) as raised:
        async for item in bench.provider.ask(question(bench)):
            seen.append(item)

    assert seen == [TextDelta("Hello")]
    assert raised.value.retryable


async def test_a_provider_that_stops_sending_is_a_transient_failure(hasty: Bench) -> None:
    hasty.will_hang("Hello")

    with pytest.raises(ProviderFailed) as raised:
        _ = [item async for item in hasty.provider.ask(question(hasty))]

    assert raised.value.retryable
    await hasty.stopped()


async def test_a_rate_limit_is_raised_with_its_delay_and_never_retried(bench: Bench) -> None:
    bench.will_limit(retry_after=4)

    with pytest.raises(RateLimited) as raised:
        _ = [item async for item in bench.provider.ask(question(bench))]

    assert raised.value.retry_after == 4
    assert bench.asked == 1


async def test_closing_the_iterator_stops_the_request(bench: Bench) -> None:
    bench.will_hang("Hello")
    answer = bench.provider.ask(question(bench))
    assert isinstance(answer, AsyncGenerator)

    assert await anext(answer) == TextDelta("Hello")
    await answer.aclose()

    await bench.stopped()


async def test_a_failure_leaves_the_provider_usable(bench: Bench) -> None:
    bench.will_break_off("Hello")
    with pytest.raises(ProviderFailed):
        _ = [item async for item in bench.provider.ask(question(bench))]
    bench.will_say("Hello again.")

    *_, reply = [item async for item in bench.provider.ask(question(bench))]

    assert isinstance(reply, ModelReply)
    assert reply.parts == (Text("Hello again."),)


async def test_a_window_is_a_number_of_tokens_or_unknown(bench: Bench) -> None:
    window = bench.provider.window(bench.model)

    assert window is None or window > 0


async def test_closing_twice_is_harmless(bench: Bench) -> None:
    await bench.provider.close()
    await bench.provider.close()
