"""The terminal backends of a worker, and which one a session uses."""

from collections.abc import Iterable

from holdfast.model.errors import Unavailable
from holdfast.model.event import SessionOpened
from holdfast.model.tool import ToolContext
from holdfast.settings import TERMINALS, Terminal
from holdfast.tools.backends.local import LocalBackend
from holdfast.tools.backends.port import TerminalBackend
from holdfast.tools.sandbox import Sandbox

SHARED_FILES = ("local", "bubblewrap")
"""Backends in which a path names the same file as on this machine."""
UNTRUSTED_SOURCES = ("api", "gateway")
"""Sources whose messages other people or programs write."""


class Backends:
    def __init__(self, backends: Iterable[TerminalBackend]) -> None:
        self._by_name = {backend.name: backend for backend in backends}

    def of(self, context: ToolContext) -> TerminalBackend:
        """The backend of the session. Raises Unavailable if it is not available here."""
        backend = self._by_name.get(context.terminal)
        if backend is None:
            raise Unavailable(f"the terminal backend {context.terminal!r} is not available here")
        return backend


def only_local(sandbox: Sandbox | None = None) -> Backends:
    return Backends([LocalBackend(sandbox)])


def choose_backend(opened: SessionOpened, settings: Terminal, *, has_bubblewrap: bool) -> str:
    """The name of a session's backend: as chosen for the session, for its channel or for all, else by the trust in its source."""
    if opened.terminal in TERMINALS:
        return opened.terminal
    if opened.channel in settings.channels:
        return settings.channels[opened.channel]
    if settings.backend is not None:
        return settings.backend
    return "bubblewrap" if opened.source in UNTRUSTED_SOURCES and has_bubblewrap else "local"
