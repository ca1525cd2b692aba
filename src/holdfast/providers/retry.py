"""Retries failed requests on the same model with backoff, then falls back to the next model.

Providers never retry; this module does, for all of them. A transient failure (rate limit, no connection, broken reply)
is retried on the same model after a growing delay. When the attempts are used up, and at once for a permanent failure
(invalid key, refusal), the next model is used. A context that is too long is never retried: the failure is raised at
once, so that the session is compacted.

Output streamed before a failure is void. If any of it was passed on, `StreamRestarted` comes before the output of the
next attempt, so that the consumer discards its draft. `Retrying` comes before each wait, so that the user can be told.
`FallbackAsked` comes before the first attempt of each fallback, so that a call that breaks off is attributed to it.
When nothing is left to try, the failure of the configured model is raised, with a note about each fallback; the
consumer keeps its draft.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

import msgspec

from holdfast.model.errors import ContextTooLong, ProviderFailed
from holdfast.model.price import Price, call_cost, is_plausible
from holdfast.model.provider import (
    FallbackAsked,
    ModelReply,
    ModelRequest,
    Provider,
    ReplyItem,
    Retrying,
    StreamRestarted,
)
from holdfast.providers.well_formed import join_surrogates


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and after which delays one model is retried. The numbers are arbitrary: about a minute in total."""

    tries: int = 5
    first_seconds: float = 1.0
    longest_seconds: float = 60.0
    """The maximum delay. A provider that asks for a longer one is not retried."""


POLICY = RetryPolicy()


class Candidate(msgspec.Struct, frozen=True):
    """A model that may be used."""

    provider: Provider
    model: str
    price: Price | None = None
    """Its listed price, if it has one."""

    @property
    def name(self) -> str:
        return f"{self.provider.name}:{self.model}"


def priced(called: str, price: Price | None, reply: ModelReply) -> ModelReply:
    """The reply with the called model and its cost: the one that the provider sent, else that of the price table, else none."""
    usage = reply.usage
    if usage.cost is None or not is_plausible(usage.cost):
        cost = None if price is None else call_cost(price, usage)
        usage = usage if usage.cost is cost is None else msgspec.structs.replace(usage, cost=cost)
    return msgspec.structs.replace(reply, usage=usage, called=called)


Sleep = Callable[[float], Awaitable[object]]
Chance = Callable[[], float]


def retry_delay(policy: RetryPolicy, tried: int, chance: float, retry_after: float | None = None) -> float | None:
    """The delay in seconds after attempt number `tried`; None if there is no further attempt.

    Doubles with each attempt. `chance`, from 0 to 1, subtracts up to a half (jitter), so that clients that failed
    together do not retry together. Never shorter than the provider's retry-after.
    """
    if tried >= policy.tries or (retry_after is not None and retry_after > policy.longest_seconds):
        return None
    grown = policy.first_seconds * 2.0 ** min(tried - 1, 32)
    backed_off = min(grown, policy.longest_seconds) * (1 - chance / 2)
    return max(backed_off, retry_after or 0.0)


async def ask_with_retries(
    candidates: Sequence[Candidate],
    request: ModelRequest,
    *,
    sleep: Sleep,
    chance: Chance,
    policy: RetryPolicy = POLICY,
) -> AsyncGenerator[ReplyItem, None]:
    """Stream the first complete reply of a candidate; the first is the configured model, the others are fallbacks.

    Raises ContextTooLong at once, and any other failure when nothing is left to try. Closing the iterator cancels the
    current request.
    """
    assert candidates, "there is no model to ask"
    failures: list[tuple[Candidate, ProviderFailed]] = []
    tried = 1
    while len(failures) < len(candidates):
        candidate = candidates[len(failures)]
        sent = msgspec.structs.replace(request, model=candidate.model)
        if failures and tried == 1:
            yield FallbackAsked(candidate.name)
        has_output = False
        try:
            async with aclosing(join_surrogates(candidate.provider.ask(sent))) as stream:
                async for item in stream:
                    has_output = True
                    yield priced(candidate.name, candidate.price, item) if isinstance(item, ModelReply) else item
                return
        except ContextTooLong:
            raise
        except ProviderFailed as e:
            failed = e
        wait = retry_delay(policy, tried, chance(), failed.retry_after) if failed.retryable else None
        tried += 1
        if wait is None:
            failures.append((candidate, failed))
            tried = 1
        if has_output and len(failures) < len(candidates):
            yield StreamRestarted(str(failed))
        if wait is not None:
            yield Retrying(reason=str(failed), seconds=wait, attempt=tried, attempts=policy.tries)
            await sleep(wait)
    raise _final_failure(failures)


def _final_failure(failures: list[tuple[Candidate, ProviderFailed]]) -> ProviderFailed:
    (_, chosen), *others = failures
    for candidate, failed in others:
        chosen.add_note(f"fallback {candidate.name} failed too: {failed}")
    return chosen
