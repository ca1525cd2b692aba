"""The embedded model: llama.cpp inside this process, so that a fresh machine can chat without a key.

The library blocks, so each request runs on one of a few named threads, which post what the model says to the event
loop. A thread looks at the request's stop sign after every token and after every batch of the prompt; closing the
iterator sets the sign, and nobody waits for the thread but `close`.

Models whose registry entry says so can use tools. The library's own tool calling is not used, since it depends on
templates that small models do not follow: the output is held to a schema, `{"tool", "args"}` or `{"say"}`,
and read back here.
"""

import asyncio
import importlib
import json
import os
import re
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from holdfast.model.asking import Delta, ReasoningDelta, Reply, Request, TextDelta, ToolSpec
from holdfast.model.errors import BadReply, ContextTooLong, NotFound, ProviderFailed, Refused, Unreachable
from holdfast.model.event import Usage
from holdfast.model.message import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from holdfast.providers import models

THREAD_NAME = "local-model"
MAX_TOKENS = 1024
"""When the request sets no limit: a small model that has begun to repeat itself never stops."""
BATCH_TOKENS = 64
"""How much of a prompt is read between two looks at the stop sign; 256 is a tenth faster and four times deafer."""
CACHE_MIB = 256
"""For the state of earlier prompts; arbitrary, where the library would take up to 8 GB."""

Json = dict[str, Any]
Post = Callable[[Json], bool]

SPOKEN = re.compile(
    r"""\s*\{\s*"say"\s*:\s*"((?:
        [^"\\] | \\[^u] | \\u(?![dD][89abAB])[0-9a-fA-F]{4}
        | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}  # a pair of surrogates, never half of it
    )*)""",
    re.VERBOSE,
)

HOW_TO_USE_TOOLS = """
Reply with one JSON object: {"tool": name, "args": {...}} to use a tool, or {"say": text} to answer.
Use a tool when you need it, then answer from its result.

Tools:
"""


class LocalProvider:
    """Runs GGUF models: those of the registry by name, others by path or by their name in the models folder.

    Up to `slots` replies are made at a time, each with a context of its own; further requests wait. `tool_models`
    names models outside the registry that may be shown tools.
    """

    name = "local"

    def __init__(
        self,
        models_dir: Path | None = None,
        *,
        context: int = 8192,
        slots: int = 2,
        threads: int | None = None,
        tool_models: Collection[str] = (),
    ) -> None:
        self._models_dir = models_dir
        self._context = context
        self._slots = slots
        self._cpu_threads = threads
        self._tool_models = frozenset(tool_models)
        self._workers = ThreadPoolExecutor(max_workers=slots, thread_name_prefix=THREAD_NAME)
        self._stops: set[threading.Event] = set()
        self._loading = threading.Lock()
        self._servers: dict[Path, Any] = {}

    async def ask(self, request: Request) -> AsyncIterator[Delta | Reply]:
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[Json | None] = asyncio.Queue()
        stop = threading.Event()

        def post(chunk: Json) -> bool:
            # The library swallows what is raised here; so nothing is done but to pass the chunk on.
            if not stop.is_set():
                try:
                    loop.call_soon_threadsafe(chunks.put_nowait, chunk)
                except RuntimeError:
                    # The loop is closed and nobody listens any more.
                    stop.set()
            return stop.is_set()

        reading = Reading(request.model, constrained=self._shows_tools(request))
        work = loop.run_in_executor(self._workers, self._generate, request, post, stop)
        work.add_done_callback(lambda _: chunks.put_nowait(None))
        self._stops.add(stop)
        try:
            while (chunk := await chunks.get()) is not None:
                for delta in reading.take(chunk):
                    yield delta
            if stop.is_set():
                raise Unreachable("the embedded model was closed while it answered")
            await work
            yield reading.reply()
        finally:
            stop.set()
            work.cancel()
            self._stops.discard(stop)

    def window(self, model: str) -> int | None:
        known = models.EMBEDDED.get(model)
        return min(self._context, known.context) if known else self._context

    async def close(self) -> None:
        for stop in self._stops:
            stop.set()
        await asyncio.to_thread(self._unload)

    def _unload(self) -> None:
        self._workers.shutdown(cancel_futures=True)
        self._servers.clear()

    def _shows_tools(self, request: Request) -> bool:
        known = models.EMBEDDED.get(request.model)
        return bool(request.tools) and (known.tools if known else request.model in self._tool_models)

    def _generate(self, request: Request, post: Post, stop: threading.Event) -> None:
        """Runs on a thread of ours until the reply is whole or the stop sign is seen."""
        body = prompt(request, shows_tools=self._shows_tools(request))
        server = self._server(request.model)
        if stop.is_set():
            return
        try:
            server.handle_chat_completions(body, post)
        except ValueError as e:
            raise Refused(f"{request.model} cannot take this request: {e}") from e
        except RuntimeError as e:
            raise BadReply(f"{request.model} broke off: {e}") from e

    def _server(self, model: str) -> Any:
        """The loaded model; the first request for it loads it and the others wait."""
        try:
            path = models.locate(self._models_dir, model)
        except NotFound as e:
            raise ProviderFailed(str(e)) from e
        with self._loading:
            if path not in self._servers:
                self._servers[path] = self._load(path, model)
            return self._servers[path]

    def _load(self, path: Path, model: str) -> Any:
        engine = _engine()
        params = engine.CommonParams()
        params.model.path = str(path)
        params.model_alias = {model}
        # The library always listens on a loopback port; with a key that nobody knows, nobody can use it.
        params.api_keys = [secrets.token_urlsafe(32)]
        params.ui = False
        params.endpoint_slots = False
        params.endpoint_metrics = True
        # The context is divided among the slots.
        params.n_ctx = (self.window(model) or self._context) * self._slots
        params.n_parallel = self._slots
        params.n_batch = params.n_ubatch = BATCH_TOKENS
        params.cache_ram_mib = CACHE_MIB
        params.warmup = False
        params.fit_params = False
        params.verbosity = -1
        if self._cpu_threads is not None:
            params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._cpu_threads
        try:
            server = engine.Server(params)
        except RuntimeError as e:
            raise ProviderFailed(f"{path} could not be loaded: is it a whole GGUF file, and is memory free?") from e
        # A server that is dropped before its loop runs waits for that loop for ever, and all of Python with it.
        # It is the loop that answers this question.
        server.handle_metrics()
        return server


def _engine() -> Any:
    """The library, imported when first needed.

    OpenMP reads its settings once, when it is loaded. Its default is to wait in a busy loop, which on a machine with
    few free cores makes generation ten times slower. The settings are taken back at once, because
    programs that the tools start would inherit them; nothing of ours is configured here.
    """
    quiet = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    added = [name for name in quiet if name not in os.environ]
    os.environ.update({name: quiet[name] for name in added})
    try:
        return importlib.import_module("xllamacpp")
    except ImportError as e:
        raise ProviderFailed("embedded models need the package xllamacpp: pip install 'holdfast[local]'") from e
    finally:
        for name in added:
            del os.environ[name]


def prompt(request: Request, *, shows_tools: bool) -> Json:
    """The request in the library's terms, which are those of OpenAI's chat completions."""
    known = models.EMBEDDED.get(request.model)
    system = known.system if known and known.system is not None else request.system
    body: Json = {
        "model": request.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        # Progress reports are the only calls of ours during a long prompt, and so the only chance to stop it.
        "return_progress": True,
        "temperature": 0 if request.temperature is None else request.temperature,
        "max_tokens": MAX_TOKENS if request.max_tokens is None else request.max_tokens,
        "repeat_penalty": known.repeat_penalty if known else 1.0,
    }
    if shows_tools:
        system += HOW_TO_USE_TOOLS + "\n".join(_described(tool) for tool in request.tools)
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema(request.tools)}}
    body["messages"] = [{"role": "system", "content": _clean(system)}] if system else []
    body["messages"] += _turns(request.messages, as_json=shows_tools)
    return body


def schema(tools: Collection[ToolSpec]) -> Json:
    """What a reply must look like: one call of one of the tools, or words."""
    return {
        "anyOf": [
            _shape(say={"type": "string"}),
            *(_shape(tool={"const": tool.name}, args=_arguments(tool)) for tool in tools),
        ]
    }


def _shape(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _arguments(tool: ToolSpec) -> Json:
    # A reference counts from the root of the schema, where it would no longer be.
    return {"type": "object"} if "$ref" in json.dumps(tool.parameters) else dict(tool.parameters)


def _described(tool: ToolSpec) -> str:
    """The tool in two lines: reading a page about each would take a small model a minute."""
    first_paragraph = " ".join(tool.description.strip().split("\n\n")[0].split())
    return f"- {tool.name}: {first_paragraph}\n  args: {json.dumps(tool.parameters.get('properties', {}))}"


def _turns(messages: tuple[Message, ...], *, as_json: bool) -> list[Json]:
    """The conversation as user and assistant taking turns, which some templates insist on."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    turns: list[Json] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        lines = [line for part in message.parts if (line := _line(part, role, names, as_json=as_json))]
        if not lines:
            continue
        text = _clean("\n".join(lines))
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += "\n\n" + text
        else:
            turns.append({"role": role, "content": text})
    return turns


def _line(part: Part, role: str, names: dict[str, str], *, as_json: bool) -> str:
    match part:
        case Text(text=text):
            return json.dumps({"say": text}, ensure_ascii=False) if as_json and role == "assistant" else text
        case ToolCall():
            # A model that is shown no tools would only imitate the calls of another.
            return f'{{"tool": {json.dumps(part.name)}, "args": {part.arguments}}}' if as_json else ""
        case ToolResult():
            said = "\n".join(_line(inner, "user", names, as_json=as_json) for inner in part.parts)
            return f"Result of {names.get(part.call_id, 'a tool')} ({part.outcome}):\n{said}"
        case Image() | File():
            return "[a picture or file that this model cannot read]"
        case Reasoning():
            return ""


def _clean(text: str) -> str:
    """Without lone surrogates, which the library cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Reading:
    """Adds the chunks of one reply up. With `constrained` they are JSON, of which only the words are shown."""

    def __init__(self, model: str, *, constrained: bool) -> None:
        self._model = model
        self._constrained = constrained
        self._text = ""
        self._reasoning = ""
        self._shown = 0
        self._finish: str | None = None
        self._usage = Usage()

    def take(self, chunk: Json) -> Iterator[Delta]:
        """What there is to show of one more chunk. Raises the failure that a chunk tells of."""
        if "error" in chunk:
            raise failure(chunk["error"])
        if usage := chunk.get("usage"):
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self._usage = Usage(
                tokens_in=usage["prompt_tokens"], tokens_out=usage["completion_tokens"], cache_read=cached
            )
        for choice in chunk.get("choices", ()):
            self._finish = choice["finish_reason"] or self._finish
            if thought := choice["delta"].get("reasoning_content"):
                self._reasoning += thought
                yield ReasoningDelta(thought)
            if said := choice["delta"].get("content"):
                self._text += said
                yield from self._show()

    def _show(self) -> Iterator[Delta]:
        visible = spoken(self._text) if self._constrained else self._text
        if len(visible) > self._shown:
            yield TextDelta(visible[self._shown :])
            self._shown = len(visible)

    def reply(self) -> Reply:
        """The whole reply. Raises BadReply if the end is missing."""
        if self._finish is None:
            raise BadReply(f"{self._model} broke off in mid-reply")
        parts: list[Part] = [Reasoning(self._reasoning, provider=LocalProvider.name)] if self._reasoning else []
        said = self._decide() if self._constrained else Text(self._text)
        if said != Text(""):
            parts.append(said)
        finish = "tool_calls" if isinstance(said, ToolCall) else self._finish
        return Reply(parts=tuple(parts), model=self._model, finish=finish, usage=self._usage)

    def _decide(self) -> Text | ToolCall:
        try:
            chosen = json.loads(self._text)
        except ValueError as e:
            # Only the limit on tokens can end constrained output early: words may be cut short, a call may not.
            if visible := spoken(self._text):
                return Text(visible)
            raise BadReply(f"{self._model} ran out of tokens in the middle of a tool call") from e
        if "say" in chosen:
            return Text(chosen["say"])
        return ToolCall(f"call-{secrets.token_hex(8)}", chosen["tool"], json.dumps(chosen["args"]))


def spoken(raw: str) -> str:
    """The words in a `{"say": "…"}` that may not be finished yet."""
    begun = SPOKEN.match(raw)
    return str(json.loads(f'"{begun[1]}"', strict=False)) if begun else ""


def failure(error: Json) -> ProviderFailed:
    """The library's error as ours."""
    message = str(error.get("message", "the embedded model gave no reason"))
    if error.get("type") == "exceed_context_size_error":
        return ContextTooLong(message)
    return Refused(message) if 400 <= int(error.get("code", 500)) < 500 else BadReply(message)
