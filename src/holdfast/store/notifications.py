"""The listeners of a store's topics in this process. Both drivers call them after each commit that notifies a topic."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable

from holdfast.store.database import Unsubscribe


class TopicListeners:
    """One per opened store. All methods run on the event loop."""

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callable[[], object]]] = {}
        self._closed = False

    def __contains__(self, topic: object) -> bool:
        return topic in self._callbacks

    def subscribe(self, topic: str, callback: Callable[[], object]) -> Unsubscribe:
        callbacks = self._callbacks.setdefault(topic, [])
        callbacks.append(callback)

        def unsubscribe() -> None:
            callbacks.remove(callback)
            if not callbacks and self._callbacks.get(topic) is callbacks:
                del self._callbacks[topic]

        return unsubscribe

    async def listen(self, topic: str) -> AsyncGenerator[None, None]:
        """Yield at the start and after notifications; end when the store is closed."""
        notified = asyncio.Event()
        unsubscribe = self.subscribe(topic, notified.set)
        try:
            while not self._closed:
                yield
                await notified.wait()
                notified.clear()
        finally:
            unsubscribe()

    def notify(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for callback in tuple(self._callbacks.get(topic, ())):
                callback()

    def notify_all(self) -> None:
        self.notify(tuple(self._callbacks))

    def close(self) -> None:
        """Notify all listeners for the last time."""
        self._closed = True
        self.notify_all()
