from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.asking import Delta, Reply, Request, Restarted, TextDelta
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
from holdfast.providers.retry import Candidate, Policy, ask_with_retries, delay
from tests.providers.said import asking, user

DONE = Reply(parts=(Text("Done."),), model="m", finish="stop")


class Playing:
    """A provider that plays one list of items for each time it is asked."""

    def __init__(self, *steps: Sequence[Delta | Reply | ProviderFailed], name: str = "fake") -> None:
        self.name = name
        self.steps = deque(steps)
        self.asked: list[str] = []
        self.closed = 0

    async def ask(self, request: Request) -> AsyncIterator[Delta | Reply]:
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
    """Notes how long was slept."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


def asked_on(providers: Sequence[Playing], sleep: Sleeping | None) -> AsyncGenerator[Delta | Reply | Restarted, None]:
    candidates = [Candidate(provider, f"m{n}") for n, provider in enumerate(providers)]
    sleep = sleep or Sleeping()
    return ask_with_retries(candidates, asking(user("hi")), sleep=sleep, chance=lambda: 0.0, policy=Policy(tries=3))


async def stream(providers: Sequence[Playing], sleep: Sleeping | None = None) -> list[Delta | Reply | Restarted]:
    return [item async for item in asked_on(providers, sleep)]


async def test_a_reply_at_once_passes_through() -> None:
    provider = Playing([TextDelta("Done."), DONE])

    assert await stream([provider]) == [TextDelta("Done."), DONE]
    assert provider.asked == ["m0"]


@pytest.mark.parametrize("failed", [Unreachable("away"), RateLimited("slow"), BadReply("cut")])
async def test_a_failure_that_may_pass_is_tried_again_later_each_time(failed: ProviderFailed) -> None:
    provider, sleep = Playing([failed], [failed], [DONE]), Sleeping()

    assert await stream([provider], sleep) == [DONE]
    assert sleep.slept == [1.0, 2.0]


async def test_what_was_streamed_before_a_failure_is_declared_void() -> None:
    provider = Playing([TextDelta("Do"), Unreachable("away")], [TextDelta("Done."), DONE])

    assert await stream([provider]) == [TextDelta("Do"), Restarted("away"), TextDelta("Done."), DONE]


async def test_the_wait_is_at_least_what_the_provider_asks_for() -> None:
    provider, sleep = Playing([RateLimited("slow", 7.0)], [DONE]), Sleeping()

    await stream([provider], sleep)

    assert sleep.slept == [7.0]


async def test_a_provider_that_asks_for_too_long_a_wait_is_not_waited_for() -> None:
    chosen, other, sleep = Playing([RateLimited("slow", 3600.0)]), Playing([DONE]), Sleeping()

    assert await stream([chosen, other], sleep) == [DONE]
    assert sleep.slept == []


async def test_when_the_tries_are_used_up_the_failure_is_raised_and_the_draft_stays() -> None:
    half = TextDelta("Do")
    provider = Playing([half, Unreachable("away 1")], [half, Unreachable("away 2")], [half, Unreachable("away 3")])
    seen: list[object] = []

    with pytest.raises(Unreachable, match="away 3"):
        async for item in asked_on([provider], None):
            seen.append(item)

    assert seen == [half, Restarted("away 1"), half, Restarted("away 2"), half]


@pytest.mark.parametrize("failed", [AuthFailed("key"), Refused("no")])
async def test_a_failure_that_will_not_pass_moves_on_to_the_next_model_at_once(failed: ProviderFailed) -> None:
    chosen, other, sleep = Playing([TextDelta("I"), failed]), Playing([DONE]), Sleeping()

    assert await stream([chosen, other], sleep) == [TextDelta("I"), Restarted(str(failed)), DONE]
    assert (chosen.asked, other.asked, sleep.slept) == (["m0"], ["m1"], [])


@pytest.mark.parametrize("failed", [Unreachable("away"), RateLimited("slow"), BadReply("cut")])
async def test_when_the_tries_are_used_up_the_next_model_stands_in(failed: ProviderFailed) -> None:
    chosen, other = Playing([failed], [failed], [failed]), Playing([DONE])

    assert await stream([chosen, other]) == [DONE]
    assert len(chosen.asked) == 3


async def test_a_context_that_is_too_long_is_raised_at_once() -> None:
    chosen, other = Playing([ContextTooLong("long")]), Playing([DONE])

    with pytest.raises(ContextTooLong):
        await stream([chosen, other])

    assert other.asked == []


async def test_when_all_models_fail_the_failure_of_the_chosen_one_is_raised_with_notes_of_the_others() -> None:
    chosen, other = Playing([Refused("the chosen one")]), Playing([AuthFailed("no key")], name="other")

    with pytest.raises(Refused, match="the chosen one") as raised:
        await stream([chosen, other])

    assert raised.value.__notes__ == ["other:m1 stood in and failed too: no key"]


async def test_what_is_no_failure_of_a_provider_escapes() -> None:
    class Broken(Playing):
        async def ask(self, request: Request) -> AsyncIterator[Delta | Reply]:
            raise ZeroDivisionError
            yield

    with pytest.raises(ZeroDivisionError):
        await stream([Broken(), Playing([DONE])])


async def test_closing_the_iterator_closes_the_request_in_hand() -> None:
    provider = Playing([TextDelta("Do"), DONE])

    async with aclosing(asked_on([provider], None)) as asked:
        assert await anext(asked) == TextDelta("Do")

    assert provider.closed == 1


@given(
    tried=st.integers(1, 100),
    chance=st.floats(0, 1),
    asked=st.none() | st.floats(0, 1000),
    policy=st.builds(Policy, tries=st.integers(1, 50)),
)
def test_every_wait_is_within_bounds(tried: int, chance: float, asked: float | None, policy: Policy) -> None:
    wait = delay(policy, tried, chance, asked)

    if wait is None:
        assert tried >= policy.tries or (asked or 0) > policy.longest_seconds
    else:
        assert (asked or 0) <= wait <= policy.longest_seconds
        assert wait >= policy.first_seconds / 2


def test_chance_takes_off_up_to_a_half() -> None:
    policy = Policy(first_seconds=8, longest_seconds=100)

    assert [delay(policy, 2, chance) for chance in (0.0, 0.5, 1.0)] == [16.0, 12.0, 8.0]
