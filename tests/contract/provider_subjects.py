"""The providers that must fulfil the contract of the port.

A subject opens a bench: a provider, and ways to define what its model does at the next request. To have a further
provider tested, append its subject to `SUBJECTS`.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from holdfast.model.provider import Provider
from holdfast.providers.anthropic.provider import AnthropicProvider
from holdfast.providers.openai.provider import OpenAiProvider
from holdfast.providers.timeouts import RequestTimeouts
from tests.fakes import anthropic_server, openai_server
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.openai_server import OpenAiServer

SHORT = RequestTimeouts(first_seconds=1.0, idle_seconds=0.3)


class Bench(Protocol):
    provider: Provider
    model: str

    def will_say(self, text: str) -> None: ...

    def will_call(self, name: str, arguments: str) -> None: ...

    def will_break_off(self, text: str) -> None:
        """Send this much and then close the connection."""

    def will_hang(self, text: str) -> None:
        """Send this much and then hang."""

    def will_limit(self, retry_after: float) -> None:
        """Refuse with a rate limit."""

    async def stopped(self) -> None:
        """Return once the hanging model has noticed that the client disconnected."""

    @property
    def asked(self) -> int:
        """How often the model was called."""


Subject = Callable[[RequestTimeouts], AbstractAsyncContextManager[Bench]]


class OpenAiBench:
    model = "gpt-fake"

    def __init__(self, server: OpenAiServer, provider: Provider) -> None:
        self._server = server
        self.provider = provider

    def will_say(self, text: str) -> None:
        self._server.acts.append(openai_server.say(text))

    def will_call(self, name: str, arguments: str) -> None:
        self._server.acts.append(openai_server.call(("call_1", name, arguments)))

    def will_break_off(self, text: str) -> None:
        self._server.acts.append(openai_server.break_off(openai_server.chunk({"content": text})))

    def will_hang(self, text: str) -> None:
        self._server.acts.append(openai_server.hang(self._server, openai_server.chunk({"content": text})))

    def will_limit(self, retry_after: float) -> None:
        body = openai_server.error("slow down", "requests", "rate_limit_exceeded")
        self._server.acts.append(openai_server.fail(429, body, {"retry-after": str(retry_after)}))

    async def stopped(self) -> None:
        await self._server.left.wait()

    @property
    def asked(self) -> int:
        return len(self._server.requests)


class AnthropicBench:
    model = "claude-fake"

    def __init__(self, server: AnthropicServer, provider: Provider) -> None:
        self._server = server
        self.provider = provider

    def will_say(self, text: str) -> None:
        self._server.acts.append(anthropic_server.say(text))

    def will_call(self, name: str, arguments: str) -> None:
        self._server.acts.append(anthropic_server.call(("toolu_1", name, arguments)))

    def will_break_off(self, text: str) -> None:
        said = anthropic_server.text_block(0, text)
        self._server.acts.append(anthropic_server.break_off(anthropic_server.start(), *said))

    def will_hang(self, text: str) -> None:
        said = anthropic_server.text_block(0, text)
        self._server.acts.append(anthropic_server.hang(self._server, anthropic_server.start(), *said))

    def will_limit(self, retry_after: float) -> None:
        body = anthropic_server.error("rate_limit_error", "slow down")
        self._server.acts.append(openai_server.fail(429, body, {"retry-after": str(retry_after)}))

    async def stopped(self) -> None:
        await self._server.left.wait()

    @property
    def asked(self) -> int:
        return len(self._server.requests)


@asynccontextmanager
async def openai(limits: RequestTimeouts) -> AsyncIterator[Bench]:
    async with OpenAiServer() as server:
        provider = OpenAiProvider("key", server.url, limits=limits)
        yield OpenAiBench(server, provider)
        await provider.close()


@asynccontextmanager
async def anthropic(limits: RequestTimeouts) -> AsyncIterator[Bench]:
    async with AnthropicServer() as server:
        provider = AnthropicProvider("key", server.url, limits=limits)
        yield AnthropicBench(server, provider)
        await provider.close()


SUBJECTS: dict[str, Subject] = {"openai": openai, "anthropic": anthropic}
