"""What an editor shows as menus of a session: the model and the permission mode. Pure."""

from acp.schema import SessionConfigOptionSelect, SessionConfigSelectOption, SessionMode, SessionModeState

from holdfast.model.mode import MODE_HELP, MODES, Mode
from holdfast.settings import DEFAULT_MODELS, Settings

MODEL = "model"


def describe_options(model: str, settings: Settings) -> list[SessionConfigOptionSelect]:
    names = list_models(model, settings)
    options = [SessionConfigSelectOption(value=name, name=name) for name in names]
    return [
        SessionConfigOptionSelect(
            id=MODEL, name="Model", category="model", type="select", current_value=model, options=options
        )
    ]


def describe_modes(mode: Mode) -> SessionModeState:
    modes = [SessionMode(id=name, name=name.capitalize(), description=MODE_HELP[name]) for name in MODES]
    return SessionModeState(current_mode_id=mode, available_modes=modes)


def list_models(model: str, settings: Settings) -> list[str]:
    """The session's model, the configured ones, and the usual ones of providers with a key."""
    usual = [name for provider, name in DEFAULT_MODELS.items() if settings.access(provider).api_key is not None]  # type: ignore[arg-type] # the keys are providers
    return list(dict.fromkeys([model, settings.model, *settings.fallback_models, *usual]))
