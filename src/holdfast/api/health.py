"""`/health`: the process answers. `/ready`: it can also work."""

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

import holdfast
from holdfast.api.house import House, of
from holdfast.model.errors import HoldfastError
from holdfast.providers import choose
from holdfast.store import workers


async def health(request: Request) -> Response:
    """Says only that it is there: anybody may ask."""
    return _document({"status": "ok"}, 200)


async def ready(request: Request) -> Response:
    """Whether the store can be written and a model is chosen; 503 if not, with what is wrong."""
    house = of(request)
    checks = {
        "store": await _store(house),
        "provider": _provider(house),
        "accepting": "leaving" if house.engine.is_leaving else "ok",
    }
    good = all(value == "ok" for value in checks.values())
    about = {"status": "ok" if good else "unavailable", "version": holdfast.__version__, "checks": checks}
    return _document(about, 200 if good else 503)


async def _store(house: House) -> str:
    """A real write, which a full disk or a read-only file would refuse: a sign of life, of which one more does no harm."""
    ground = house.engine.ground
    try:
        await house.database.write(workers.beat, ground.worker_id, at=ground.clock.now())
    except HoldfastError as e:
        return f"{e.code}: {e}"
    return "ok"


def _provider(house: House) -> str:
    provider = choose.parse(house.settings.model).provider
    access = house.settings.access(provider)  # type: ignore[arg-type] # parse has checked the name
    if provider in ("openai", "anthropic") and access.api_key is None and access.base_url is None:
        return f"no key is set for {provider}"
    return "ok"


def _document(about: Mapping[str, object], status: int) -> Response:
    return Response(msgspec.json.encode(about), status, media_type="application/json")
