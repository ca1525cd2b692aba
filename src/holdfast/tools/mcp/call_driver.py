"""Runs one call of an MCP tool to its result: rounds of questions, and tasks that the server runs in the background.

Between two requests to the server, the way to continue is committed before anybody waits: the server's questions with
its opaque state, or the id of the task. A worker that finds it continues there. Before answers are sent, the way is
withdrawn, because from then on the server may act; a task stays until it has ended.
"""

import asyncio
import hashlib
from typing import Any, Literal

import mcp_types as types
import msgspec
from mcp import Client, MCPError
from mcp.client import ClientRequestContext
from pydantic import TypeAdapter

from holdfast.model.errors import HoldfastError, LoginFailed, Unavailable
from holdfast.tools.mcp import tasks
from holdfast.tools.mcp.connection import McpConnection
from holdfast.tools.mcp.running_call import RunningCall
from holdfast.tools.mcp.server_requests import ServerRequests

MAX_ROUNDS = 20
"""Rounds of questions in one call."""
NO_LIMIT_SECONDS = 10 * 365 * 86_400.0
"""For the MCP library; the call has its own limit, which stops while a person is asked."""
RETRY_MILLIS = 250
"""How long to wait if the server asks for nothing but another attempt, or does not report a task; then longer."""
CANCEL_SECONDS = 5.0
MAX_CHECKPOINT_BYTES = 1_000_000
"""Of the questions and the state of a server, which are stored at each round."""
InputRequests = dict[str, types.InputRequest]
REQUESTS: TypeAdapter[InputRequests] = TypeAdapter(InputRequests)


class CallState(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to continue a call."""

    kind: Literal["input", "task"]
    task_id: str = ""
    round: int = 0
    state: str | None = None
    requests: msgspec.Raw = msgspec.Raw(b"{}")


class CallDriver:
    def __init__(
        self,
        connection: McpConnection,
        requests: ServerRequests,
        tool: types.Tool,
        arguments: dict[str, object],
        *,
        may_repeat: bool,
    ) -> None:
        self._connection = connection
        self._requests = requests
        self._tool = tool
        self._arguments = arguments
        self._may_repeat = may_repeat

    async def run(self, call: RunningCall) -> types.CallToolResult:
        """The result of the call. Raises what `McpConnection.request` raises, and TimeoutError."""
        found = call.context.checkpoint
        with self._requests.calls.running(call):
            async with call.limited():
                first = None if found else await self._send(call, None, None)
                try:
                    if first is None:
                        return await self._continue(call, msgspec.json.decode(found, type=CallState))
                    return await self._finish(call, first, 1)
                except (Unavailable, LoginFailed) as e:
                    # The server has received an earlier request of this call, and may have acted.
                    raise ConnectionError(str(e)) from e

    async def _continue(self, call: RunningCall, state: CallState) -> types.CallToolResult:
        match state.kind:
            case "task":
                return await self._follow(call, state.task_id)
            case "input":
                asked = REQUESTS.validate_json(bytes(state.requests))
                result = types.InputRequiredResult(input_requests=asked, request_state=state.state)
                return await self._finish(call, result, state.round)

    async def _finish(self, call: RunningCall, result: types.Result, number: int) -> types.CallToolResult:
        """Answer the server's questions until it has a result."""
        while isinstance(result, types.InputRequiredResult):
            if number > MAX_ROUNDS:
                raise MCPError(code=types.INVALID_REQUEST, message=f"it asked for input more than {MAX_ROUNDS} times")
            if not result.input_requests:
                await asyncio.sleep(RETRY_MILLIS / 1000)
                result = await self._send(call, None, result.request_state)
            else:
                raw = REQUESTS.dump_json(result.input_requests, by_alias=True, exclude_none=True)
                state = CallState("input", round=number, state=result.request_state, requests=msgspec.Raw(raw))
                await _checkpoint(call, state)
                answers = await self._answer(call, result.input_requests, f"{number}.")
                if not self._may_repeat:
                    await call.checkpoint("")
                result = await self._send(call, answers, result.request_state)
            number += 1
        if isinstance(result, tasks.RemoteTask):
            await _checkpoint(call, CallState("task", result.task_id))
            return await self._follow(call, result.task_id)
        assert isinstance(result, types.CallToolResult), "the library accepts no other result"
        return result

    async def _send(self, call: RunningCall, answers: dict[str, Any] | None, state: str | None) -> types.Result:
        async def show(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            call.report(f"{message} ({share})" if message else share)

        async def send(client: Client) -> types.Result:
            return await client.session.call_tool(
                self._tool.name,
                self._arguments,
                NO_LIMIT_SECONDS,
                show,
                input_responses=answers,
                request_state=state,
                allow_input_required=True,
                allow_claimed=True,
            )

        try:
            return await self._connection.request(send, may_repeat=self._may_repeat)
        except MCPError as e:
            if e.code != types.HEADER_MISMATCH:
                raise
        # The server's schema of the tool has changed, and with it the headers that a call needs.
        await self._connection.request(_list_again, may_repeat=True)
        return await self._connection.request(send, may_repeat=self._may_repeat)

    async def _answer(self, call: RunningCall, requests: InputRequests, name: str) -> dict[str, Any]:
        """The answers to the server's questions. Raises MCPError if one cannot be answered."""
        client = await self._connection.open()
        answers: dict[str, Any] = {}
        for key, request in requests.items():
            # The name becomes part of a stored id, and the server's key may be of any length.
            digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
            call.begin_round(f"{name}{digest[:16]}.")
            context = ClientRequestContext(session=client.session, request_id=key, meta=None)
            answer = await client.session.dispatch_input_request(context, request)
            if isinstance(answer, types.ErrorData):
                raise MCPError.from_error_data(answer)
            answers[key] = answer
        return answers

    async def _follow(self, call: RunningCall, task_id: str) -> types.CallToolResult:
        """Wait for a task of the extension, and answer its questions."""
        answered: set[str] = set()
        failures = 0
        try:
            while True:
                try:
                    report = await self._poll(call, task_id, answered)
                    if report.status in tasks.ENDED:
                        return tasks.result_of(report)
                    failures, text, pause = 0, report.status_message or "the task is running", report.poll_interval_ms
                except (Unavailable, LoginFailed, ConnectionError) as e:
                    # The server may return, or somebody may log in, before the call's time limit.
                    text, pause = f"the server does not report the task: {e}", RETRY_MILLIS << min(failures, 8)
                    failures += 1
                call.report(text)
                await tasks.wait_for_poll(pause)
        except asyncio.CancelledError:
            await self._cancel(call, task_id)
            raise

    async def _poll(self, call: RunningCall, task_id: str, answered: set[str]) -> tasks.RemoteTaskReport:
        """The report of a task that has ended or asks nothing new; answers what it asks before."""
        while True:
            report = await self._connection.request(lambda client: tasks.get_task(client, task_id), may_repeat=True)
            asked = {key: one for key, one in (report.input_requests or {}).items() if key not in answered}
            if report.status in tasks.ENDED or not asked:
                return report
            answers = await self._answer(call, asked, "task.")
            await self._connection.request(
                lambda client, answers=answers: tasks.update_task(client, task_id, answers),  # type: ignore[misc] # bound now
                may_repeat=True,
            )
            answered |= set(asked)

    async def _cancel(self, call: RunningCall, task_id: str) -> None:
        """Cancel the task if a person stopped the turn. Otherwise another worker continues to wait for it."""
        if call.context.host is None or not call.context.host.is_stopped():
            return
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                client = await self._connection.open()
                await tasks.cancel_task(client, task_id)
        except (TimeoutError, MCPError, HoldfastError, ConnectionError):
            return  # it may not support this, or not be available; the task then ends by itself


async def _checkpoint(call: RunningCall, state: CallState) -> None:
    """Commit how to continue the call. Raises MCPError if the server sent too much."""
    encoded = msgspec.json.encode(state)
    if len(encoded) > MAX_CHECKPOINT_BYTES:
        message = f"its questions and state are longer than {MAX_CHECKPOINT_BYTES:,} bytes"
        raise MCPError(code=types.INVALID_REQUEST, message=message)
    await call.checkpoint(encoded.decode())


async def _list_again(client: Client) -> None:
    await client.list_tools(cache_mode="refresh")
