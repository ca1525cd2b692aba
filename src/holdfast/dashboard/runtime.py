"""Pages of background processes, workers and other servers."""

from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import templating
from holdfast.dashboard.context import DashboardContext, get_context
from holdfast.dashboard.forms import action_response
from holdfast.engine.liveness.janitor import Janitor, JanitorSettings, assess_worker
from holdfast.model.errors import NotFound
from holdfast.model.text import counted
from holdfast.processes.registry import ProcessRegistry
from holdfast.store.repos import workers as stored
from holdfast.supervisor import decode_statuses

MAX_RECENT = 60
OUTPUT_BYTES = 64_000


def _get_registry(context: DashboardContext) -> ProcessRegistry:
    """Raises NotFound if this engine has no process registry."""
    if context.registry is None:
        raise NotFound("background processes are not available here")
    return context.registry


async def show_processes(request: Request) -> Response:
    context = get_context(request)
    registry = _get_registry(context)
    listed = (await registry.list(ended=True))[::-1]
    shown = [one for one in listed if one.ended_at is None] + [one for one in listed if one.ended_at is not None][
        :MAX_RECENT
    ]
    classified = [(one, registry.classify(one)) for one in shown]
    return templating.page_response(request, "processes.html", processes=classified, now=context.now)


async def show_output(request: Request) -> Response:
    """A process and the last part of its output."""
    context = get_context(request)
    registry = _get_registry(context)
    process = await registry.get(request.path_params["id"])
    output = await registry.read_output(process, None, OUTPUT_BYTES)
    return templating.page_response(
        request, "process.html", process=process, verdict=registry.classify(process), output=output, now=context.now
    )


async def stop_process(request: Request) -> Response:
    context = get_context(request)
    registry = _get_registry(context)
    process = await registry.stop(await registry.get(request.path_params["id"]), "stopped in the dashboard")
    return action_response(request, f"{process.id}: {registry.classify(process).evidence}", "/ui/processes")


async def show_workers(request: Request) -> Response:
    context = get_context(request)
    found = await context.database.read(stored.list_recent, MAX_RECENT)
    classified = [(one, assess_worker(one, context.identity)) for one in found]
    classified.sort(key=lambda pair: pair[0].ended_at is not None)
    this_worker = context.engine.services.worker_id
    tasks = {one.id: decode_statuses(one.tasks) for one in found if one.ended_at is None}
    tasks[this_worker] = context.engine.supervisor.statuses()
    return templating.page_response(
        request, "workers.html", workers=classified, tasks=tasks, this_worker=this_worker, now=context.now
    )


async def sweep_workers(request: Request) -> Response:
    """Run the janitor now."""
    context = get_context(request)
    liveness = context.settings.liveness
    settings = JanitorSettings(liveness.stale_seconds, liveness.sweep_seconds, context.settings.api.idle_minutes)
    janitor = Janitor(
        context.engine.services, context.identity, settings, context.engine.take_up, context.engine.sweep_steps
    )
    found = await janitor.sweep()
    text = f"{counted(len(found.workers), 'worker')} checked, {counted(len(found.actions), 'action')} taken"
    return action_response(request, text, "/ui/workers")


async def show_fleet(request: Request) -> Response:
    context = get_context(request)
    return templating.page_response(request, "fleet.html", peers=list(context.peers.peers.values()), now=context.now)
