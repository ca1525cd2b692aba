"""Tasks: a call that the server runs in the background. Its id is committed before anybody waits for it.

A worker that continues the call asks the server for the task again, so a crash does not make the outcome unknown. This is
the extension of 2026, in which the server decides what becomes a task. The experimental tasks of 2025-11-25 are not
supported, because the MCP library rejects them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import mcp_types as types
from mcp import Client, MCPError
from mcp.client import ClientExtension, ResultClaim
from mcp.client.extension import ClaimContext

EXTENSION = "io.modelcontextprotocol/tasks"
POLL_SECONDS = 1.0
LONGEST_POLL_SECONDS = 60.0
ENDED = ("completed", "failed", "cancelled")


class RemoteTask(types.Result):
    """A task of the extension, as the server creates it and as it reports it."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str = "working"
    status_message: str | None = None
    poll_interval_ms: int | None = None


class RemoteTaskReport(types.Result):
    """The answer to tasks/get of the extension; the input requests are parsed separately."""

    task_id: str
    status: str
    status_message: str | None = None
    poll_interval_ms: int | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, types.InputRequest] | None = None


class TaskParams(types.RequestParams):
    task_id: str


class TaskUpdateParams(TaskParams):
    input_responses: dict[str, Any]


class GetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    name_param = "taskId"
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class UpdateTask(types.Request[TaskUpdateParams, Literal["tasks/update"]]):
    name_param = "taskId"
    method: Literal["tasks/update"] = "tasks/update"
    params: TaskUpdateParams


class CancelTask(types.Request[TaskParams, Literal["tasks/cancel"]]):
    name_param = "taskId"
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams


class TasksExtension(ClientExtension):
    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=RemoteTask, resolve=_unresolved)]


async def _unresolved(task: RemoteTask, context: ClaimContext) -> types.CallToolResult:
    raise AssertionError("calls resolve their tasks themselves")


async def get_task(client: Client, task_id: str) -> RemoteTaskReport:
    return await client.session.send_request(GetTask(params=TaskParams(task_id=task_id)), RemoteTaskReport)


async def update_task(client: Client, task_id: str, responses: Mapping[str, Any]) -> None:
    given = {key: one.model_dump(by_alias=True, mode="json", exclude_none=True) for key, one in responses.items()}
    params = TaskUpdateParams(task_id=task_id, input_responses=given)
    await client.session.send_request(UpdateTask(params=params), types.Result)


async def cancel_task(client: Client, task_id: str) -> None:
    await client.session.send_request(CancelTask(params=TaskParams(task_id=task_id)), types.Result)


async def wait_for_poll(millis: int | None) -> None:
    """Wait as long as the server asks for, within limits."""
    seconds = POLL_SECONDS if millis is None else millis / 1000
    await asyncio.sleep(min(max(seconds, 0.01), LONGEST_POLL_SECONDS))


def result_of(report: RemoteTaskReport) -> types.CallToolResult:
    """The result of a task that has ended. Raises MCPError if it failed."""
    if report.status == "completed" and report.result is not None:
        return types.CallToolResult.model_validate(report.result)
    error = report.error or {}
    message = str(error.get("message") or report.status_message or f"the task was {report.status}")
    code = error.get("code")
    raise MCPError(code=code if isinstance(code, int) else types.INVALID_REQUEST, message=message)
