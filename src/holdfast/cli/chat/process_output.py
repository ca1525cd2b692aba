"""The newest output of a background process, shown above the input line while the user follows it."""

import asyncio
from collections.abc import Callable

from holdfast.cli.chat.output.painter import Painter
from holdfast.cli.chat.output.text_fit import fit
from holdfast.cli.chat.output.transcript import newest_lines
from holdfast.engine.process_port import ProcessPort
from holdfast.model.errors import HoldfastError
from holdfast.model.sanitize import one_line
from holdfast.tasks import Tasks

POLL_SECONDS = 0.5
NEWEST_BYTES = 4_000
SHOWN_LINES = 10
COMMAND_SHOWN = 30


class ProcessOutput:
    """Follows at most one process, until it ends or the user stops."""

    def __init__(
        self,
        registry: ProcessPort | None,
        painter: Painter,
        tasks: Tasks,
        show: Callable[[str], None],
        redraw: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._painter = painter
        self._tasks = tasks
        self._show = show
        self._redraw = redraw
        self._process_id = ""
        self._newest = ""

    def follow(self, process_id: str) -> None:
        """Follow the process instead of another one. If it is followed already, stop."""
        if not self.stop(process_id):
            self._process_id = process_id
            self._tasks.start(self._poll(process_id), name=f"output of {process_id}")

    def stop(self, process_id: str = "") -> bool:
        """Stop following; False if no process, or not this one, is followed."""
        if not self._process_id or process_id not in ("", self._process_id):
            return False
        self._process_id = self._newest = ""
        self._redraw()
        return True

    def live(self) -> str:
        """The lines to show; empty if no process is followed."""
        return self._newest

    async def _poll(self, process_id: str) -> None:
        """Show the newest output twice a second. When the process has ended, print it for good."""
        is_running = True
        while is_running and process_id == self._process_id:
            try:
                newest, is_running = await self._read(process_id)
            except HoldfastError as e:
                newest, is_running = self._painter.plain(f"! {e}", "yellow"), False
            if process_id != self._process_id:
                return
            self._newest = newest if is_running else ""
            self._redraw()
            if is_running:
                await asyncio.sleep(POLL_SECONDS)
            else:
                self._process_id = ""
                self._show("\n" + newest)

    async def _read(self, process_id: str) -> tuple[str, bool]:
        """The lines to show, and whether the process is running."""
        assert self._registry is not None, "a process was found"
        process = await self._registry.get(process_id)
        text = await self._registry.read_newest(process, NEWEST_BYTES)
        is_running = process.ended_at is None
        state = "running · Esc closes this" if is_running else process.end_reason or "ended"
        command = fit(one_line(process.command), COMMAND_SHOWN)
        head = self._painter.plain(f"{process.id} · {command} · {state}", "cyan")
        return head + newest_lines(self._painter, text, SHOWN_LINES), is_running
