"""What a session may delegate, and what a child session may use, from the settings."""

from collections.abc import Callable
from pathlib import Path

from holdfast.engine.delegation.create import DelegationLimits
from holdfast.engine.turn.delegate_call import DelegationSettings
from holdfast.model.errors import Invalid
from holdfast.model.event import Delegation
from holdfast.providers import registry
from holdfast.settings import Settings
from holdfast.store.repos.delegations import TOOL
from holdfast.tools.toolbox import Toolbox


def session_toolbox(toolbox: Toolbox, link: Delegation, settings: Settings) -> Toolbox:
    """Return the tools of a session: those that its parent allowed, and no delegation where it would be refused."""
    names = [spec.name for spec in toolbox.specs]
    allowed = [name for name in names if link.tools is None or name in link.tools]
    if link.depth >= settings.agent.max_depth:
        allowed = [name for name in allowed if name != TOOL]
    return toolbox if allowed == names else toolbox.only(allowed)


def delegation_settings(
    toolbox: Toolbox, settings: Settings, model: str, workdir: Callable[[], Path], terminal: str
) -> DelegationSettings:
    """Build the settings of delegation for a session with these tools and this model."""
    agent = settings.agent
    return DelegationSettings(
        limits=DelegationLimits(agent.max_depth, agent.max_children, agent.child_seconds),
        tools=lambda: tuple(spec.name for spec in toolbox.specs),
        check_model=lambda name: check_model(settings, model, name),
        workdir=lambda: str(workdir()),
        terminal=terminal,
    )


def check_model(settings: Settings, current: str, asked: str) -> str:
    """Return the full name of a model that a task may use. Raises Invalid with the known ones.

    `current` is the model of the session, which may be of a provider that the settings do not name.
    """
    configured = tuple(dict.fromkeys((current, settings.model, *settings.fallback_models)))
    for name in configured:
        if asked in (name, registry.parse(name).model):
            return name
    providers = {registry.parse(name).provider for name in configured} | set(settings.models)
    try:
        chosen = registry.parse(asked)
    except Invalid:
        chosen = None
    if chosen is None or chosen.provider not in providers:
        usable = ", ".join(sorted(providers))
        raise Invalid(
            f"unknown model {asked!r}. Models: {', '.join(configured)}; others as provider:name of {usable}. "
            "Leave `model` out for the model of this session."
        )
    return f"{chosen.provider}:{chosen.model}"
