"""Background processes: list, read output, stop."""

from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall, load_session
from holdfast.api.native.response_models import ProcessOutputResponse
from holdfast.interop.documents.processes import ProcessItem, ProcessListResponse
from holdfast.model.process import Process


async def list_processes(call: EndpointCall) -> ProcessListResponse:
    """List background processes and their current state."""
    query: request_models.ListProcessesRequest = call.query
    found = await call.context.processes.list(ended=query.ended)
    return ProcessListResponse([_process(call, one) for one in found])


async def list_session_processes(call: EndpointCall) -> ProcessListResponse:
    """List the background processes of the session."""
    query: request_models.ListProcessesRequest = call.query
    session = await load_session(call)
    found = await call.context.processes.list(session_id=session.id, ended=query.ended)
    return ProcessListResponse([_process(call, one) for one in found])


async def get_process(call: EndpointCall) -> ProcessItem:
    """Get a background process."""
    return _process(call, await call.context.processes.get(call.path_param("id")))


async def read_output(call: EndpointCall) -> ProcessOutputResponse:
    """Read the output of a process: its tail, or a range of bytes."""
    query: request_models.ProcessOutputRequest = call.query
    process = await call.context.processes.get(call.path_param("id"))
    page = await call.context.processes.read_output(process, query.start, query.limit)
    return ProcessOutputResponse(
        process=_process(call, process),
        output=page.text,
        start=page.start,
        end=page.end,
        bytes=page.total,
        bytes_dropped=page.gone,
    )


async def stop_process(call: EndpointCall) -> ProcessItem:
    """Stop a process and its children: SIGTERM first, SIGKILL after some seconds."""
    process = await call.context.processes.get(call.path_param("id"))
    return _process(call, await call.context.processes.stop(process, "stopped through the API"))


def _process(call: EndpointCall, process: Process) -> ProcessItem:
    return ProcessItem.from_process(process, call.context.processes.classify(process))
