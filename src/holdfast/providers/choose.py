"""From a model setting to a provider. Keys and addresses are handed in; the environment is read elsewhere."""

from pathlib import Path
from typing import NamedTuple

from holdfast.model.asking import Provider
from holdfast.model.errors import Invalid
from holdfast.providers.pace import LIMITS, Limits

PROVIDERS = ("openai", "anthropic", "local", "scripted")


class Chosen(NamedTuple):
    provider: str
    model: str


def parse(setting: str) -> Chosen:
    """The two halves of `provider:name`. Raises Invalid for anything else; a name may hold colons of its own."""
    provider, colon, model = setting.strip().partition(":")
    if not colon or provider not in PROVIDERS:
        raise Invalid(f"{setting!r} names no model: write provider:name with one of {', '.join(PROVIDERS)}")
    if not model.strip() and provider != "scripted":
        raise Invalid(f"{setting!r} names a provider but no model of it: write {provider}:name")
    return Chosen(provider, model.strip())


def make(
    provider: str,
    *,
    api_key: str = "",
    base_url: str | None = None,
    models_dir: Path | None = None,
    limits: Limits = LIMITS,
) -> Provider:
    """The provider of that name. Nothing is opened and no SDK imported before the first request."""
    match provider:
        case "openai":
            from holdfast.providers.openai import OpenAiProvider

            return OpenAiProvider(api_key, base_url, limits=limits)
        case "anthropic":
            from holdfast.providers.anthropic import AnthropicProvider

            return AnthropicProvider(api_key, base_url, limits=limits)
        case "local":
            from holdfast.providers.local import LocalProvider

            return LocalProvider(models_dir)
        case "scripted":
            from holdfast.providers.scripted import ScriptedProvider

            return ScriptedProvider()
        case _:
            raise Invalid(f"there is no provider {provider!r}; known are {', '.join(PROVIDERS)}")
