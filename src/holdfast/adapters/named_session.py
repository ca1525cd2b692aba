"""The session of an object that has one: found again after a fork, and after its store was closed."""

from holdfast.adapters.framework_session import FrameworkSession, framework_session
from holdfast.adapters.shared_store import shared_store


class NamedSession:
    """A session by its adapter and name."""

    def __init__(self, url: str | None, adapter: str, name: str) -> None:
        self._url = url
        self._adapter = adapter
        self._name = name
        self._open()

    def get(self) -> FrameworkSession:
        """The session in this process. A forked process has none of the threads of its parent's store, so it opens its own."""
        if not self._store.is_usable:
            self._open()
        return self._session

    def _open(self) -> None:
        self._store = shared_store(self._url)
        self._session = framework_session(self._store, self._adapter, self._name)
