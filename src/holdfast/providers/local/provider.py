"""The embedded model: llama.cpp in a process of its own, so that a new machine can chat without an API key."""

from collections.abc import AsyncIterator, Collection
from contextlib import aclosing
from pathlib import Path

from holdfast.installation import command_to_add
from holdfast.model.errors import NotFound, ProviderFailed, Unreachable
from holdfast.model.provider import Delta, ModelReply, ModelRequest
from holdfast.providers.local import models
from holdfast.providers.local.model_process import ModelProcess
from holdfast.providers.local.reply import PROVIDER, LocalReply
from holdfast.providers.local.request import build_request


class LocalProvider:
    """Runs GGUF models: those of the registry by name, others by path or by their name in the models folder.

    Each model has a process, which the first request starts. It generates up to `slots` replies concurrently, each with
    its own context; further requests wait. `tool_models` are the models outside the registry that may use tools.
    """

    name = PROVIDER

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
        self._processes: dict[Path, ModelProcess] = {}
        self._is_closed = False

    async def ask(self, request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
        shows_tools = self._shows_tools(request)
        draft = LocalReply(request.model, constrained=shows_tools)
        body = build_request(request, shows_tools=shows_tools)
        try:
            async with aclosing(self._process(request.model).ask(body)) as chunks:
                async for chunk in chunks:
                    for delta in draft.take(chunk):
                        yield delta
        except Unreachable as e:
            if self._is_closed:
                raise Unreachable("the embedded model was closed during the reply; try again") from e
            raise
        yield draft.reply()

    def window(self, model: str) -> int | None:
        known = models.EMBEDDED.get(model)
        return min(self._context, known.context) if known else self._context

    async def close(self) -> None:
        self._is_closed = True
        while self._processes:
            _, process = self._processes.popitem()
            await process.close()

    def _shows_tools(self, request: ModelRequest) -> bool:
        known = models.EMBEDDED.get(request.model)
        return bool(request.tools) and (known.tools if known else request.model in self._tool_models)

    def _process(self, model: str) -> ModelProcess:
        """The process of a model; a new one if there is none, or it has ended."""
        if self._is_closed:
            raise Unreachable("the embedded model is closed")
        try:
            path = models.locate_model(self._models_dir, model)
        except NotFound as e:
            raise ProviderFailed(str(e)) from e
        if not models.is_engine_installed():
            raise ProviderFailed(f"embedded models need the extra local; run: {command_to_add('local')}")
        process = self._processes.get(path)
        if process is not None and process.has_ended:
            process.release()
            process = None
        if process is None:
            process = self._processes[path] = ModelProcess(
                path,
                model=model,
                context=self.window(model) or self._context,
                slots=self._slots,
                threads=self._cpu_threads,
            )
        return process
