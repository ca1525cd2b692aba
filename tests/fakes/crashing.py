"""A database that dies around its nth commit and stays dead, like a killed process."""

from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

from holdfast.store.database import Database, Unsubscribe


class Crash(BaseException):
    """Not an Exception: nothing in the program may catch it and continue."""


class CrashingDatabase:
    """Passes everything through until the nth write, and nothing after it."""

    def __init__(self, inner: Database, nth: int, when: Literal["before", "after"]) -> None:
        self._inner = inner
        self.left = nth
        """The writes up to the last one, that one included."""
        self._when = when
        self.dead = False

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._refuse_if_dead()
        self.left -= 1
        if self.left > 0:
            return await self._inner.write(work, *args, **kwargs)
        self.dead = True
        if self._when == "after":
            await self._inner.write(work, *args, **kwargs)
        raise Crash

    async def read(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._refuse_if_dead()
        return await self._inner.read(work, *args, **kwargs)

    def subscribe(self, topic: str, callback: Callable[[], object]) -> Unsubscribe:
        return self._inner.subscribe(topic, callback)

    def listen(self, topic: str) -> AsyncGenerator[None, None]:
        return self._inner.listen(topic)

    def damage(self) -> str | None:
        return self._inner.damage()

    async def close(self) -> None:
        await self._inner.close()

    def _refuse_if_dead(self) -> None:
        if self.dead:
            raise Crash
