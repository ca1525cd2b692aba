"""The sessions that an object with many sessions has used last, each with state that is kept in memory."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeVar

from holdfast.adapters.framework_session import FrameworkSession, Written, framework_session
from holdfast.adapters.log_fold import LogFold
from holdfast.adapters.shared_store import SharedStore, shared_store

S = TypeVar("S", bound=LogFold)
MOST = 256
"""Sessions in memory: arbitrary. The state of another one is read from its log again."""


class PooledSession(Generic[S]):
    """A session with its state, which one thread at a time may use."""

    def __init__(self, store: SharedStore, session: FrameworkSession, state: S) -> None:
        self.store = store
        self.session = session
        self._state = state
        self._lock = threading.Lock()

    @contextmanager
    def state(self) -> Iterator[S]:
        with self._lock:
            yield self._state

    def note(self, written: Written | None, apply: Callable[[S], None] | None = None) -> None:
        """Bring the state up to date with a write that has just been committed; see `LogFold.note_written`."""
        with self._lock:
            self._state.note_written(written, None if apply is None else partial(apply, self._state))


class SessionPool(Generic[S]):
    """Thread-safe."""

    def __init__(self, url: str | None, adapter: str, make_state: Callable[[], S], *, is_shared: bool = False) -> None:
        self._url = url
        self._adapter = adapter
        self._make_state = make_state
        self._is_shared = is_shared
        self._lock = threading.Lock()
        self._found: OrderedDict[str, PooledSession[S]] = OrderedDict()
        self._store = shared_store(url)

    @property
    def store(self) -> SharedStore:
        """The store, which is opened again if it was closed, or if this is a forked process."""
        if not self._store.is_usable:
            self._store = shared_store(self._url)
        return self._store

    def get(self, name: str, *, parent: str | None = None) -> PooledSession[S]:
        """The session of this name; see `framework_session`."""
        store = self.store
        with self._lock:
            found = self._found.get(name)
            if found is None or found.store is not store:
                session = framework_session(store, self._adapter, name, parent=parent, is_shared=self._is_shared)
                found = self._found[name] = PooledSession(store, session, self._make_state())
            self._found.move_to_end(name)
            if len(self._found) > MOST:
                self._found.popitem(last=False)
            return found

    def release(self) -> None:
        """Release every session, so that other processes can write to them at once."""
        with self._lock:
            found = [one for one in self._found.values() if one.store.is_usable]
        for one in found:
            one.session.release().result()
