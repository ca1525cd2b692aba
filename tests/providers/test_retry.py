from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import (
    AuthFailed,
    BadReply,
    ContextTooLong,
    ProviderFailed,
    RateLimited,
    Refused,
    Unreachable,
)
from holdfast.model.message import Text
from holdfast.model.provider import (
    Delta,
    FallbackAsked,
    ModelReply,
    ModelRequest,
    ReplyItem,
    Retrying,
    StreamRestarted,
    TextDelta,
)
from holdfast.providers.retry import Candidate, RetryPolicy, ask_with_retries, retry_delay
from tests.providers.messages import asking, user

DONE = ModelReply(parts=(Text("Done."),), model="m", finish="stop")


class Playing:
    """A provider that yields one list of items for each call."""

    def __init__(self, *steps: Sequence[Delta | ModelReply | ProviderFailed], name: str = "fake") -> None:
        self.name = name
        self.steps = deque(steps)
        self.asked: list[str] = []
        self.closed = 0

    async def ask(self, request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
        self.asked.append(request.model)
        try:
            for item in self.steps.popleft():
                if isinstance(item, ProviderFailed):
                    raise item
                yield item
        finally:
            self.closed += 1

    def window(self, model: str) -> int | None:
        return None

    async def close(self) -> None:
        pass


class Sleeping:
    """Records the sleeps."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


def asked_on(providers: Sequence[Playing], sleep: Sleeping | None) -> AsyncGenerator[ReplyItem, None]:
    candidates = [Candidate(provider, f"m{n}") for n, provider in enumerate(providers)]
    sleep = sleep or Sleeping()
    return ask_with_retries(
        candidates, asking(user("hi")), sleep=sleep, chance=lambda: 0.0, policy=RetryPolicy(tries=3)
    )


async def stream(providers: Sequence[Playing], sleep: Sleeping | None = None) -> list[ReplyItem]:
    """The items, without the notices of waits, and without the names of the models."""
    items = [item async for item in asked_on(providers, sleep) if not isinstance(item, Retrying | FallbackAsked)]
    return [msgspec.structs.replace(item, called="") if isinstance(item, ModelReply) else item for item in items]


async def test_the_reply_names_the_model_that_was_called_in_the_end() -> None:
    providers = [Playing([AuthFailed("no key")], name="first"), Playing([DONE], name="second")]

    [reply] = [item async for item in asked_on(providers, None) if isinstance(item, ModelReply)]
    assert reply.called == "second:m1"


async def test_an_immediate_reply_passes_through() -> None:
    provider = Playing([TextDelta("Done."), DONE])

    assert await stream([provider]) == [TextDelta("Done."), DONE]
    assert provider.asked == ["m0"]


@pytest.mark.parametrize("failed", [Unreachable("away"), RateLimited("slow"), BadReply("cut")])
async def test_a_transient_failure_is_retried_with_growing_delays(failed: ProviderFailed) -> None:
    provider, sleep = Playing([failed], [failed], [DONE]), Sleeping()

    assert await stream([provider], sleep) == [DONE]
    assert sleep.slept == [1.0, 2.0]


async def test_each_wait_is_announced_with_its_reason_and_the_attempt_number() -> None:
    provider = Playing([RateLimited("slow", 4.0)], [Unreachable("away")], [DONE])

    seen = [item async for item in asked_on([provider], None)]

    assert seen == [
        Retrying(reason="slow", seconds=4.0, attempt=2, attempts=3),
        Retrying(reason="away", seconds=2.0, attempt=3, attempts=3),
        msgspec.structs.replace(DONE, called="fake:m0"),
    ]


async def test_output_streamed_before_a_failure_is_void() -> None:
    provider = Playing([TextDelta("Do"), Unreachable("away")], [TextDelta("Done."), DONE])

    assert await stream([provider]) == [TextDelta("Do"), StreamRestarted("away"), TextDelta("Done."), DONE]


@pytest.mark.parametrize("kind", [RateLimited, Unreachable])
async def test_the_wait_is_at_least_the_retry_after_of_the_provider(kind: type[RateLimited | Unreachable]) -> None:
    provider, sleep = Playing([kind("slow", 7.0)], [DONE]), Sleeping()

    await stream([provider], sleep)

    assert sleep.slept == [7.0]


async def test_a_retry_after_over_the_limit_is_not_waited_for() -> None:
    chosen, other, sleep = Playing([RateLimited("slow", 3600.0)]), Playing([DONE]), Sleeping()

    assert await stream([chosen, other], sleep) == [DONE]
    assert sleep.slept == []


async def test_a_fallback_is_named_once_before_it_is_asked() -> None:
    chosen = Playing([Unreachable("away")], [TextDelta("I"), Unreachable("away")], [Unreachable("away")])
    items = [item async for item in asked_on([chosen, Playing([DONE])], Sleeping())]

    assert items[-2] == FallbackAsked("fake:m1")
    assert isinstance(items[-1], ModelReply)
    assert sum(isinstance(item, FallbackAsked) for item in items) == 1


async def test_after_the_last_attempt_the_failure_is_raised_and_the_draft_stays() -> None:
    half = TextDelta("Do")
    provider = Playing([half, Unreachable("away 1")], [half, Unreachable("away 2")], [half, Unreachable("away 3")])
    seen: list[object] = []

    with pytest.raises(Unreachable, match="away 3"):
        async for item in asked_on([provider], None):
            seen += [] if isinstance(item, Retrying | FallbackAsked) else [item]

    assert seen == [half, StreamRestarted("away 1"), half, StreamRestarted("away 2"), half]


@pytest.mark.parametrize("failed", [AuthFailed("key"), Refused("no")])
async def test_a_permanent_failure_falls_back_to_the_next_model_at_once(failed: ProviderFailed) -> None:
    chosen, other, sleep = Playing([TextDelta("I"), failed]), Playing([DONE]), Sleeping()

    assert await stream([chosen, other], sleep) == [TextDelta("I"), StreamRestarted(str(failed)), DONE]
    assert (chosen.asked, other.asked, sleep.slept) == (["m0"], ["m1"], [])


@pytest.mark.parametrize("failed", [Unreachable("away"), RateLimited("slow"), BadReply("cut")])
async def test_after_the_last_attempt_the_next_model_is_used(failed: ProviderFailed) -> None:
    chosen, other = Playing([failed], [failed], [failed]), Playing([DONE])

    assert await stream([chosen, other]) == [DONE]
    assert len(chosen.asked) == 3


async def test_a_context_that_is_too_long_is_raised_at_once() -> None:
    chosen, other = Playing([ContextTooLong("long")]), Playing([DONE])

    with pytest.raises(ContextTooLong):
        await stream([chosen, other])

    assert other.asked == []


async def test_when_all_models_fail_the_failure_of_the_configured_one_is_raised_with_notes() -> None:
    chosen, other = Playing([Refused("the chosen one")]), Playing([AuthFailed("no key")], name="other")

    with pytest.raises(Refused, match="the chosen one") as raised:
        await stream([chosen, other])

    assert raised.value.__notes__ == ["fallback other:m1 failed too: no key"]


async def test_other_exceptions_escape() -> None:
    class Broken(Playing):
        async def ask(self, request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
            raise ZeroDivisionError
            yield

    with pytest.raises(ZeroDivisionError):
        await stream([Broken(), Playing([DONE])])


async def test_closing_the_iterator_closes_the_current_request() -> None:
    provider = Playing([TextDelta("Do"), DONE])

    async with aclosing(asked_on([provider], None)) as asked:
        assert await anext(asked) == TextDelta("Do")

    assert provider.closed == 1


@given(
    tried=st.integers(1, 100),
    chance=st.floats(0, 1),
    asked=st.none() | st.floats(0, 1000),
    policy=st.builds(RetryPolicy, tries=st.integers(1, 50)),
)
def test_every_wait_is_within_bounds(tried: int, chance: float, asked: float | None, policy: RetryPolicy) -> None:
    wait = retry_delay(policy, tried, chance, asked)

    if wait is None:
        assert tried >= policy.tries or (asked or 0) > policy.longest_seconds
    else:
        assert (asked or 0) <= wait <= policy.longest_seconds
        assert wait >= policy.first_seconds / 2


def test_jitter_subtracts_up_to_a_half() -> None:
    policy = RetryPolicy(first_seconds=8, longest_seconds=100)

    assert [retry_delay(policy, 2, chance) for chance in (0.0, 0.5, 1.0)] == [16.0, 12.0, 8.0]
