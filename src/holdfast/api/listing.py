"""The models that can be asked for by name."""

from holdfast.api.errors import Refusal
from holdfast.model.errors import Invalid
from holdfast.providers import choose
from holdfast.settings import Settings

OURS = "holdfast"
"""The session's own model, whichever that is."""


class Listing:
    def __init__(self, settings: Settings) -> None:
        self.default = settings.model
        self._configured = tuple(dict.fromkeys((settings.model, *settings.fallback_models)))
        self._providers = {choose.parse(name).provider for name in self._configured} | set(settings.models)

    def names(self) -> list[str]:
        return [OURS, *self._configured]

    def resolve(self, asked: str) -> str | None:
        """`provider:name` for what a client asked for; None for the session's own. Raises a Refusal for what is not there."""
        if asked == OURS:
            return None
        for name in self._configured:
            if asked in (name, choose.parse(name).model):
                return name
        try:
            chosen = choose.parse(asked)
        except Invalid:
            chosen = None
        if chosen is not None and chosen.provider in self._providers and chosen.provider != "scripted":
            return f"{chosen.provider}:{chosen.model}"
        known = ", ".join(self.names())
        raise Refusal(404, "model_not_found", f"there is no model {asked!r} here; there are {known}", "model")


def document(listing: Listing) -> dict[str, object]:
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "holdfast"} for name in listing.names()]
    return {"object": "list", "data": models}
