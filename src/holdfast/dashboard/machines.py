"""Pages about what runs: background processes, workers, and other servers."""

from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import pages
from holdfast.dashboard.desk import Desk, of
from holdfast.dashboard.forms import done
from holdfast.engine.janitor import Janitor, Pace, first_look
from holdfast.model.counted import counted
from holdfast.model.errors import NotFound
from holdfast.processes.registry import Registry
from holdfast.store import workers as stored

RECENT = 60
OUTPUT_BYTES = 64_000


def _registry(desk: Desk) -> Registry:
    """Raises NotFound where nobody looks after processes."""
    if desk.registry is None:
        raise NotFound("nobody looks after background processes here")
    return desk.registry


async def processes(request: Request) -> Response:
    desk = of(request)
    registry = _registry(desk)
    every = (await registry.list(ended=True))[::-1]
    shown = [one for one in every if one.ended_at is None] + [one for one in every if one.ended_at is not None][:RECENT]
    judged = [(one, registry.judge(one)) for one in shown]
    return pages.page(request, "processes.html", processes=judged, now=desk.now)


async def output(request: Request) -> Response:
    """A process and the end of what it has put out."""
    desk = of(request)
    registry = _registry(desk)
    process = await registry.get(request.path_params["id"])
    written = await registry.read_output(process, None, OUTPUT_BYTES)
    return pages.page(
        request, "process.html", process=process, verdict=registry.judge(process), output=written, now=desk.now
    )


async def stop(request: Request) -> Response:
    desk = of(request)
    registry = _registry(desk)
    process = await registry.stop(await registry.get(request.path_params["id"]), "ended in the dashboard")
    return done(request, f"{process.id}: {registry.judge(process).evidence}", "/ui/processes")


async def workers(request: Request) -> Response:
    desk = of(request)
    found = await desk.database.read(stored.recent, RECENT)
    judged = [(one, first_look(one, desk.ours)) for one in found]
    judged.sort(key=lambda pair: pair[0].ended_at is not None)
    return pages.page(request, "workers.html", workers=judged, here=desk.engine.ground.worker_id, now=desk.now)


async def sweep(request: Request) -> Response:
    """Look for the dead now, and see to what they left."""
    desk = of(request)
    liveness = desk.settings.liveness
    pace = Pace(liveness.stale_seconds, liveness.sweep_seconds, desk.settings.api.idle_minutes)
    janitor = Janitor(desk.engine.ground, desk.ours, pace, desk.engine.take_up, desk.engine.chores)
    found = await janitor.sweep()
    words = f"{counted(len(found.workers), 'worker')} looked at, {counted(len(found.deeds), 'thing')} done"
    return done(request, words, "/ui/workers")


async def fleet(request: Request) -> Response:
    desk = of(request)
    return pages.page(request, "fleet.html", peers=list(desk.fleet.peers.values()), now=desk.now)
