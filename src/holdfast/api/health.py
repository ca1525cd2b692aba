"""`/health`: the process responds. `/ready`: it can also do its work."""

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

import holdfast
from holdfast.api.context import ApiContext, get_context
from holdfast.interop.documents.tasks import TaskItem
from holdfast.providers import registry
from holdfast.supervisor import TaskStatus, describe_failure, list_down


async def health(request: Request) -> Response:
    """Report that the process responds. Needs no key."""
    return _document({"status": "ok"}, 200)


async def ready(request: Request) -> Response:
    """Report whether the store is writable, the model is configured and all background tasks work; 503 with the reasons if not."""
    context = get_context(request)
    tasks = context.engine.supervisor.statuses()
    checks = {
        "store": await context.probe.ask(context.engine.services),
        "tasks": _tasks(tasks),
        "provider": _provider(context),
        "accepting": "leaving" if context.engine.is_leaving else "ok",
    }
    good = all(value == "ok" for value in checks.values())
    document = {
        "status": "ok" if good else "unavailable",
        "version": holdfast.__version__,
        "checks": checks,
        "tasks": [TaskItem.from_status(task) for task in tasks],
    }
    return _document(document, 200 if good else 503)


def _tasks(statuses: list[TaskStatus]) -> str:
    return "; ".join(map(describe_failure, list_down(statuses))) or "ok"


def _provider(context: ApiContext) -> str:
    provider = registry.parse(context.settings.model).provider
    access = context.settings.access(provider)  # type: ignore[arg-type] # parse has checked the name
    if provider in ("openai", "anthropic") and access.api_key is None and access.base_url is None:
        return f"no API key is set for {provider}"
    return "ok"


def _document(document: Mapping[str, object], status: int) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")
