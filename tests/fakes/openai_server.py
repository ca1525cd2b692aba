"""A fake of the OpenAI API on a loopback port, written from its public reference; it validates requests.

A test defines what happens next by appending to `acts`; without any, `usual` answers. Run by itself it prints its
port and runs until it is stopped: to `use tool NAME {json}` lines of the newest user message it replies
with those calls, and to their results, and to everything else, with a short text. The first reply to a message that
begins with `hang once` never ends.
"""

import argparse
import asyncio
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

Json = dict[str, Any]
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
USE_TOOL = re.compile(r"^use tool (\S+)[ \t]*(.*)$", re.MULTILINE)
HANG_ONCE = "hang once"
USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


class Exchange:
    """Handles one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Json, body: Json) -> None:
        self._reader = reader
        self._writer = writer
        self.headers = headers
        self.body = body

    async def answer(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self._head(status, {"content-type": "application/json", "content-length": str(len(content)), **(headers or {})})
        self._writer.write(content)
        await self._writer.drain()

    def begin(self) -> None:
        self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})

    async def event(self, data: object, name: str = "") -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        await self.raw((f"event: {name}\n" if name else "") + f"data: {text}\n\n")

    async def raw(self, text: str) -> None:
        content = text.encode()
        self._writer.write(b"%x\r\n%s\r\n" % (len(content), content))
        await self._writer.drain()

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def cut(self) -> None:
        """Break the connection in the middle of the body."""
        await self._writer.drain()
        self._writer.close()

    async def until_left(self) -> None:
        """Send nothing until the client disconnects."""
        await self._reader.read()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} X", "connection: close", *(f"{name}: {value}" for name, value in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())


Act = Callable[[Exchange], Awaitable[None]]


class HttpServer:
    """Accepts and records requests, and runs one act for each."""

    path = ""

    def __init__(self) -> None:
        self.acts: deque[Act] = deque()
        self.requests: list[Json] = []
        self.headers: list[Json] = []
        self.left = asyncio.Event()
        """Set when a client disconnected from the silent server."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, limit=2**26)
        return self

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def complaint(self, body: Json) -> str | None:
        """The vendor's error for the request, if any."""
        raise NotImplementedError

    async def refuse(self, exchange: Exchange, complaint: str) -> None:
        raise NotImplementedError

    async def usual(self, exchange: Exchange) -> None:
        raise NotImplementedError

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except ConnectionError:
            # The client disconnected during the response, which some tests do.
            self.left.set()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        body = json.loads(content.decode("utf-8"))
        exchange = Exchange(reader, writer, headers, body)
        self.requests.append(body)
        self.headers.append(headers)
        if head[0].split()[1] != self.path:
            await exchange.answer(404, {"error": {"message": f"no such path: {head[0]}"}})
        elif (complaint := self.complaint(body)) is not None:
            await self.refuse(exchange, complaint)
        else:
            await (self.acts.popleft() if self.acts else self.usual)(exchange)


class OpenAiServer(HttpServer):
    path = "/v1/chat/completions"

    def __init__(
        self, pause_seconds: float = 0.0, record: Path | None = None, refused: str = "", calls: str = ""
    ) -> None:
        super().__init__()
        self._refused = refused
        self._calls = calls
        self._pause_seconds = pause_seconds
        self._record = record
        self._hung: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://{self.host}/v1"

    def complaint(self, body: Json) -> str | None:
        if self._refused and self._refused in json.dumps(body["messages"]):
            return f"The prompt was flagged: {self._refused}"
        return complaint(body)

    async def refuse(self, exchange: Exchange, complaint: str) -> None:
        await exchange.answer(400, error(complaint, "invalid_request_error"))

    async def usual(self, exchange: Exchange) -> None:
        if self._record is not None:
            with self._record.open("a") as out:
                out.write(json.dumps(exchange.body) + "\n")
        messages = exchange.body["messages"]
        newest = max((n for n, message in enumerate(messages) if message["role"] == "user"), default=-1)
        words = _words(messages[newest]["content"]) if newest >= 0 else ""
        results = [_words(message["content"]) for message in messages[newest + 1 :] if message["role"] == "tool"]
        if words.startswith("halves"):
            halves = ("\ud83d", "\ude00 is one sign, ", "\ud83d is none; ", "last \ud83d")
            chunks = [chunk({"content": half}) for half in halves]
            await stream(*chunks, chunk(finish="stop"), usage_chunk(USAGE))(exchange)
            return
        if words.startswith(HANG_ONCE) and words not in self._hung:
            self._hung.add(words)
            await hang(self, chunk({"content": "You "}))(exchange)
            return
        wanted = USE_TOOL.findall(words)
        if self._calls in [tool["function"]["name"] for tool in exchange.body.get("tools", ())]:
            wanted = [(self._calls, "{}")]
        if wanted and not results:
            place = len(messages)
            made = [(f"call_{place}_{n}", name, text.strip() or "{}") for n, (name, text) in enumerate(wanted)]
            await call(*made)(exchange)
        else:
            text = "Done. " + " ".join(results) if results else f"You said: {words}"
            await say(text, pause_seconds=self._pause_seconds)(exchange)


def _words(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text") if isinstance(content, list) else ""


def error(message: str, kind: str, code: str | None = None) -> Json:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def chunk(delta: Json | None = None, finish: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}
    return {**_frame(), "choices": [choice], "usage": None}


def usage_chunk(usage: Json) -> Json:
    return {**_frame(), "choices": [], "usage": usage}


def _frame() -> Json:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-fake-2026-01-01"}


def stream(*chunks: object, done: bool = True, pause_seconds: float = 0.0) -> Act:
    """Send these chunks, then `[DONE]`; without it the stream simply ends."""

    async def act(exchange: Exchange) -> None:
        exchange.begin()
        for piece in chunks:
            await exchange.event(piece)
            await asyncio.sleep(pause_seconds)
        if done:
            await exchange.event("[DONE]")
        await exchange.end()

    return act


def say(text: str, *, before: tuple[Json, ...] = (), finish: str = "stop", pause_seconds: float = 0.0) -> Act:
    """Stream a text word by word; `before` it come these deltas."""
    deltas = [{"role": "assistant", "content": ""}, *before, *({"content": piece} for piece in _pieces(text))]
    chunks = [chunk(delta) for delta in deltas]
    return stream(*chunks, chunk(finish=finish), usage_chunk(USAGE), pause_seconds=pause_seconds)


def call(*made: tuple[str, str, str], finish: str = "tool_calls") -> Act:
    """Stream calls: id, name and arguments, the latter in two chunks."""
    chunks = []
    for n, (id, name, text) in enumerate(made):
        opening = {"index": n, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
        chunks.append(chunk({"tool_calls": [opening]}))
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
            chunks.append(chunk({"tool_calls": [{"index": n, "function": {"arguments": piece}}]}))
    return stream(*chunks, chunk(finish=finish), usage_chunk(USAGE))


def fail(status: int, body: object, headers: dict[str, str] | None = None) -> Act:
    async def act(exchange: Exchange) -> None:
        await exchange.answer(status, body, headers)

    return act


def break_off(*chunks: object) -> Act:
    """Send these chunks and cut the connection."""

    async def act(exchange: Exchange) -> None:
        exchange.begin()
        for piece in chunks:
            await exchange.event(piece)
        await exchange.cut()

    return act


def hang(server: HttpServer, *chunks: object) -> Act:
    """Send these chunks and then nothing, until the client disconnects."""

    async def act(exchange: Exchange) -> None:
        if chunks:
            exchange.begin()
        for piece in chunks:
            await exchange.event(piece)
        await exchange.until_left()
        server.left.set()

    return act


def _pieces(text: str) -> list[str]:
    return re.findall(r"\s*\S+\s*|\s+", text)


def complaint(body: Json) -> str | None:
    """What the Chat Completions API finds wrong with a request; None if nothing."""
    try:
        _check(body)
    except AssertionError as e:
        return str(e)
    return None


def _check(body: Json) -> None:
    assert isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter"
    assert isinstance(body.get("messages"), list) and body["messages"], "[] is too short - 'messages'"
    assert body.get("stream") is True or "stream_options" not in body, "stream_options needs stream"
    assert not ("max_tokens" in body and "max_completion_tokens" in body), "both limits are set"
    _check_tools(body)
    open_calls: list[str] = []
    for n, message in enumerate(body["messages"]):
        where = f"messages[{n}]"
        if message.get("role") == "tool":
            assert message.get("tool_call_id") in open_calls, (
                f"{where}: messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            )
            open_calls.remove(message["tool_call_id"])
            assert _is_text(message.get("content")), f"{where}: content of a tool message must be text"
            continue
        assert not open_calls, (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(open_calls)}"
        )
        if message.get("role") == "assistant":
            open_calls = _check_answer(message, where)
        elif message.get("role") == "user":
            _check_user(message.get("content"), where)
        else:
            assert message.get("role") == "system", f"{where}: invalid role"
            assert _is_text(message.get("content")), f"{where}: content must be text"
    assert not open_calls, f"The following tool_call_ids did not have response messages: {', '.join(open_calls)}"


def _check_tools(body: Json) -> None:
    if "tools" not in body:
        return
    assert isinstance(body["tools"], list) and body["tools"], "[] is too short - 'tools'"
    names = [tool["function"]["name"] for tool in body["tools"]]
    assert len(set(names)) == len(names), "tools: names must be unique"
    for tool in body["tools"]:
        assert tool["type"] == "function" and NAME.fullmatch(tool["function"]["name"]), "tools: invalid name"
        parameters = tool["function"]["parameters"]
        assert parameters.get("type") == "object", "schema must be of type object"
        assert isinstance(parameters.get("properties"), dict), "object schema missing properties"
        assert not {"oneOf", "anyOf", "allOf"} & parameters.keys(), "schema must not have alternatives at the top"


def _check_answer(message: Json, where: str) -> list[str]:
    content = message.get("content")
    calls = message.get("tool_calls")
    assert content is None or _is_text(content), f"{where}: content of an assistant message must be text"
    assert content is not None or calls, f"{where}: content is required unless tool_calls are given"
    assert calls is None or (isinstance(calls, list) and calls), f"{where}: [] is too short - 'tool_calls'"
    for call in calls or []:
        assert call.get("type") == "function", f"{where}: invalid type of tool call"
        assert isinstance(call.get("id"), str) and 1 <= len(call["id"]) <= 40, f"{where}: id: string too long"
        assert NAME.fullmatch(call["function"]["name"]), f"{where}: name does not match the pattern"
        assert isinstance(call["function"]["arguments"], str), f"{where}: arguments must be a string"
        assert isinstance(json.loads(call["function"]["arguments"]), dict), f"{where}: arguments must be an object"
    ids = [call["id"] for call in calls or []]
    assert len(set(ids)) == len(ids), f"{where}: duplicate tool_call_id"
    return ids


def _check_user(content: object, where: str) -> None:
    if isinstance(content, str):
        assert content, f"{where}: content is empty"
        return
    assert isinstance(content, list) and content, f"{where}: [] is too short - 'content'"
    for part in content:
        if part["type"] == "image_url":
            assert re.match(r"https?://|data:image/(png|jpeg|gif|webp);base64,", part["image_url"]["url"]), where
        elif part["type"] == "file":
            assert part["file"]["file_data"].startswith("data:application/pdf;base64,"), f"{where}: invalid file"
            assert part["file"]["filename"], f"{where}: filename is required"
        else:
            assert part["type"] == "text" and isinstance(part["text"], str), f"{where}: invalid part"


def _is_text(content: object) -> bool:
    return isinstance(content, str) and bool(content)


async def _main() -> None:
    parser = argparse.ArgumentParser(description="a stand-in for the OpenAI API")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--pause-seconds", type=float, default=0.0, help="between two pieces of a text")
    parser.add_argument("--record", type=Path, help="append each request to this file, one JSON document a line")
    parser.add_argument("--refuse", default="", help="refuse every request whose messages hold this text")
    parser.add_argument("--call", default="", help="call this tool whenever a request offers it")
    given = parser.parse_args()
    server = await OpenAiServer(given.pause_seconds, given.record, given.refuse, given.call).start(given.port)
    print(server.port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
