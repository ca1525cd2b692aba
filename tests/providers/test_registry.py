import pytest

from holdfast.model.errors import Invalid
from holdfast.providers.registry import PROVIDERS, create_provider, parse


@pytest.mark.parametrize(
    ("setting", "provider", "model"),
    [
        ("openai:gpt-5.4-mini", "openai", "gpt-5.4-mini"),
        ("openai:llama3:8b", "openai", "llama3:8b"),
        ("openai:meta/llama-3", "openai", "meta/llama-3"),
        (" anthropic:claude-sonnet-5 ", "anthropic", "claude-sonnet-5"),
        ("local:smollm2", "local", "smollm2"),
        ("scripted:", "scripted", ""),
    ],
)
def test_a_setting_names_a_provider_and_a_model(setting: str, provider: str, model: str) -> None:
    assert parse(setting) == (provider, model)


@pytest.mark.parametrize("setting", ["", "gpt-5", ":gpt-5", "acme:gpt-5", "OpenAI:gpt-5"])
def test_an_unknown_provider_in_a_setting_lists_the_known_ones(setting: str) -> None:
    with pytest.raises(Invalid, match="openai, anthropic, local, scripted"):
        parse(setting)


@pytest.mark.parametrize("setting", ["openai:", "anthropic: "])
def test_a_setting_needs_a_model_name(setting: str) -> None:
    with pytest.raises(Invalid, match="no model"):
        parse(setting)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_each_provider_can_be_created_and_closed_without_a_key(name: str) -> None:
    provider = create_provider(name)

    assert provider.name == name
    await provider.close()


def test_an_unknown_provider_cannot_be_created() -> None:
    with pytest.raises(Invalid, match="acme"):
        create_provider("acme")
