"""Routes a model request to the provider of its model, with retries and fallbacks."""

import asyncio
import random
from collections.abc import AsyncIterator
from functools import lru_cache

from holdfast.model.errors import Invalid
from holdfast.model.price import FindPrice
from holdfast.model.provider import ModelRequest, Provider, ReplyItem
from holdfast.providers import registry
from holdfast.providers.prices import shipped_price
from holdfast.providers.retry import Candidate, ask_with_retries
from holdfast.settings import Settings

KNOWN_PRICES = 256
"""Models whose prices are kept: clients may name any."""


class ModelRouter:
    """The providers in use, each created when it is first called."""

    def __init__(self, settings: Settings, find_price: FindPrice = shipped_price) -> None:
        self._settings = settings
        self._find_price = lru_cache(KNOWN_PRICES)(find_price)
        self._providers: dict[str, Provider] = {}

    def candidate(self, setting: str) -> Candidate:
        provider, model = self._provider(setting)
        return Candidate(provider, model, self._find_price(setting))

    def _provider(self, setting: str) -> tuple[Provider, str]:
        """The provider and the name of the model there."""
        name, model = registry.parse(setting)
        provider = self._providers.get(name)
        if provider is None:
            access = self._settings.access(name)  # type: ignore[arg-type] # parse has checked the name
            key = access.api_key.reveal() if access.api_key else ""
            folder = self._settings.home / "models"
            provider = registry.create_provider(name, api_key=key, base_url=access.base_url, models_dir=folder)
            self._providers[name] = provider
        return provider, model

    def ask(self, request: ModelRequest) -> AsyncIterator[ReplyItem]:
        """Call the request's model, written as `provider:name`, and its fallbacks."""
        return self._ask(request, *self._settings.fallback_models)

    def ask_alone(self, request: ModelRequest) -> AsyncIterator[ReplyItem]:
        """As `ask`, without fallbacks."""
        return self._ask(request)

    def _ask(self, request: ModelRequest, *others: str) -> AsyncIterator[ReplyItem]:
        candidates = [self.candidate(name) for name in dict.fromkeys((request.model, *others))]
        return ask_with_retries(candidates, request, sleep=asyncio.sleep, chance=random.random)

    def window(self, setting: str) -> int | None:
        """How many tokens the model's context holds; None if unknown."""
        try:
            provider, model = self._provider(setting)
        except Invalid:  # a session may name a model that this release does not know; `ask` reports it
            return None
        return provider.window(model)

    async def close(self) -> None:
        for provider in self._providers.values():
            await provider.close()
