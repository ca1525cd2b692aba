"""The backend `local`: commands run on this machine, with Holdfast's home hidden if bubblewrap works."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.model.tool import ToolContext
from holdfast.tools.backends.port import Completed, run_program
from holdfast.tools.sandbox import Sandbox


class LocalBackend:
    name = "local"
    is_direct = True
    shares_files = True

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox

    async def prepare(self, context: ToolContext) -> None:
        """Nothing to prepare."""

    def workdir(self, context: ToolContext) -> Path:
        return context.workdir

    def prefix(self, context: ToolContext, workdir: Path, *, background: bool) -> tuple[str, ...]:
        return self._sandbox.prefix(context, workdir) if self._sandbox else ()

    async def run(self, context: ToolContext, words: Sequence[str], data: bytes = b"") -> Completed:
        environment = self._sandbox.environment if self._sandbox else {}
        command = [*self.prefix(context, context.workdir, background=False), *words]
        return await run_program(command, data, environment=environment)
