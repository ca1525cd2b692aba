"""Parses model settings and creates providers. Keys and URLs are parameters; the environment is read elsewhere."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from holdfast.model.errors import Invalid
from holdfast.model.provider import Provider
from holdfast.providers.timeouts import DEFAULT_TIMEOUTS, RequestTimeouts

PROVIDERS = ("openai", "anthropic", "local", "scripted")


class ChosenModel(NamedTuple):
    provider: str
    model: str


@lru_cache(maxsize=256)
def parse(setting: str) -> ChosenModel:
    """The two parts of `provider:name`. Raises Invalid for anything else; the name may contain colons."""
    provider, colon, model = setting.strip().partition(":")
    if not colon or provider not in PROVIDERS:
        raise Invalid(
            f"{setting!r} is not a model: write provider:name, where the provider is one of {', '.join(PROVIDERS)}"
        )
    if not model.strip() and provider != "scripted":
        raise Invalid(f"{setting!r} has no model name: write {provider}:name")
    return ChosenModel(provider, model.strip())


def create_provider(
    provider: str,
    *,
    api_key: str = "",
    base_url: str | None = None,
    models_dir: Path | None = None,
    limits: RequestTimeouts = DEFAULT_TIMEOUTS,
) -> Provider:
    """The provider of that name. It opens nothing and imports no HTTP library before the first request."""
    match provider:
        case "openai":
            from holdfast.providers.openai.provider import OpenAiProvider

            return OpenAiProvider(api_key, base_url, limits=limits)
        case "anthropic":
            from holdfast.providers.anthropic.provider import AnthropicProvider

            return AnthropicProvider(api_key, base_url, limits=limits)
        case "local":
            from holdfast.providers.local.provider import LocalProvider

            return LocalProvider(models_dir)
        case "scripted":
            from holdfast.providers.scripted import ScriptedProvider

            return ScriptedProvider()
        case _:
            raise Invalid(f"unknown provider {provider!r}; use one of {', '.join(PROVIDERS)}")
