"""The models that requests may name."""

from holdfast.api.errors import ApiError
from holdfast.model.errors import Invalid
from holdfast.providers import registry
from holdfast.settings import Settings

SESSION_MODEL = "holdfast"
"""The name for the session's own model."""


class ModelList:
    def __init__(self, settings: Settings) -> None:
        self.default = settings.model
        self._configured = tuple(dict.fromkeys((settings.model, *settings.fallback_models)))
        self.providers = {registry.parse(name).provider for name in self._configured} | set(settings.models)

    @property
    def short_names(self) -> set[str]:
        """The configured models without their providers."""
        return {registry.parse(name).model for name in self._configured}

    def names(self) -> list[str]:
        return [SESSION_MODEL, *self._configured]

    def resolve(self, asked: str) -> str | None:
        """Return `provider:name` for the model a client named; None for the session's own. Raises ApiError for an unknown one."""
        if asked == SESSION_MODEL:
            return None
        for name in self._configured:
            if asked in (name, registry.parse(name).model):
                return name
        try:
            chosen = registry.parse(asked)
        except Invalid:
            chosen = None
        if chosen is not None and chosen.provider in self.providers and chosen.provider != "scripted":
            return f"{chosen.provider}:{chosen.model}"
        known = ", ".join(self.names())
        raise ApiError(404, "model_not_found", f"unknown model {asked!r}; available: {known}", "model")


def model_list_document(listing: ModelList) -> dict[str, object]:
    return {"object": "list", "data": [model_document(name) for name in listing.names()]}


def model_document(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "holdfast"}


def anthropic_model_list(listing: ModelList) -> dict[str, object]:
    """The same list in the format of Anthropic's API."""
    models = [
        {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
        for name in listing.names()
    ]
    return {"data": models, "has_more": False, "first_id": models[0]["id"], "last_id": models[-1]["id"]}
