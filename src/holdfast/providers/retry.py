"""Asking again: after a failure that may pass, and after one that will not, with the next model.

Who decides what. A provider never asks twice; this does, for all of them. A failure that may pass (too many
requests, no connection, a broken reply) is tried again on the same model, later each time. When the tries are used
up, and at once for a failure that will not pass here (the key, a refusal), the next model is asked. A context that
is too long is nobody's to try: it is raised at once, to be compacted.

What was streamed before a failure is void. If any of it was passed on, `Restarted` comes before the next try's
words, so that the consumer can throw its draft away. When nothing is left to try, the failure of the model that
was chosen is raised, with a note of what became of the others; the draft then stays with the consumer.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

import msgspec

from holdfast.model.asking import Delta, Provider, Reply, Request, Restarted
from holdfast.model.errors import ContextTooLong, ProviderFailed, RateLimited


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how late to ask one model again. The numbers are arbitrary: about a minute in all."""

    tries: int = 5
    first_seconds: float = 1.0
    longest_seconds: float = 60.0
    """No wait is longer; a provider that asks for more is not waited for."""


POLICY = Policy()


class Candidate(msgspec.Struct, frozen=True):
    """A model that may be asked."""

    provider: Provider
    model: str

    @property
    def name(self) -> str:
        return f"{self.provider.name}:{self.model}"


Sleep = Callable[[float], Awaitable[object]]
Chance = Callable[[], float]


def delay(policy: Policy, tried: int, chance: float, retry_after: float | None = None) -> float | None:
    """How long to wait after the `tried`th try, in seconds; None if it is not worth trying again.

    Doubles with each try. `chance`, from 0 to 1, takes off up to a half, so that many who failed together do not
    come back together. Never shorter than what the provider asks for.
    """
    if tried >= policy.tries or (retry_after is not None and retry_after > policy.longest_seconds):
        return None
    grown = policy.first_seconds * 2.0 ** min(tried - 1, 32)
    backed_off = min(grown, policy.longest_seconds) * (1 - chance / 2)
    return max(backed_off, retry_after or 0.0)


async def ask_with_retries(
    candidates: Sequence[Candidate],
    request: Request,
    *,
    sleep: Sleep,
    chance: Chance,
    policy: Policy = POLICY,
) -> AsyncGenerator[Delta | Reply | Restarted, None]:
    """Stream the first whole reply that one of the candidates gives; the first is the chosen model, the rest stand in.

    Raises ContextTooLong at once, and any other failure when nothing is left to try. Closing the iterator stops the
    request in hand.
    """
    assert candidates, "there is no model to ask"
    failures: list[tuple[Candidate, ProviderFailed]] = []
    tried = 1
    while len(failures) < len(candidates):
        candidate = candidates[len(failures)]
        asked = msgspec.structs.replace(request, model=candidate.model)
        spoken = False
        try:
            async with aclosing(_stream(candidate.provider, asked)) as stream:
                async for item in stream:
                    spoken = True
                    yield item
                return
        except ContextTooLong:
            raise
        except ProviderFailed as e:
            failed = e
        wait = delay(policy, tried, chance(), _retry_after(failed)) if failed.retryable else None
        tried += 1
        if wait is None:
            failures.append((candidate, failed))
            tried = 1
        if spoken and len(failures) < len(candidates):
            yield Restarted(str(failed))
        if wait is not None:
            await sleep(wait)
    raise _told(failures)


async def _stream(provider: Provider, request: Request) -> AsyncGenerator[Delta | Reply, None]:
    """The provider's own iterator, in a form that can always be closed."""
    answer = provider.ask(request)
    try:
        async for item in answer:
            yield item
    finally:
        if isinstance(answer, AsyncGenerator):
            await answer.aclose()


def _retry_after(failed: ProviderFailed) -> float | None:
    return failed.retry_after if isinstance(failed, RateLimited) else None


def _told(failures: list[tuple[Candidate, ProviderFailed]]) -> ProviderFailed:
    (_, chosen), *others = failures
    for candidate, failed in others:
        chosen.add_note(f"{candidate.name} stood in and failed too: {failed}")
    return chosen
