"""A database that kills its own process around the nth commit."""

import os
import signal
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal, NoReturn

from holdfast.store import verify
from holdfast.store.database import Database, Transaction, Unsubscribe
from holdfast.torture.child import emit

CrashPoint = Literal["before", "inside", "after"]
CRASH_POINTS: tuple[CrashPoint, ...] = ("before", "inside", "after")


class CrashingDatabase:
    """Passes every call through. After each acknowledged write it emits the heads of all logs."""

    def __init__(self, inner: Database, nth: int, point: CrashPoint) -> None:
        self._inner = inner
        self._nth = nth
        self._point = point
        self._count = 0

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Write. The nth call dies before its transaction, inside it just before the commit, or after its acknowledgement."""
        self._count += 1
        point = self._point if self._count == self._nth else ""
        if point == "before":
            die()

        def work_and_list_heads(tx: Transaction) -> tuple[Any, list[tuple[str, int, str]]]:
            result = work(tx, *args, **kwargs)
            heads = verify.list_heads(tx)
            if point == "inside":
                die()
            return result, heads

        result, heads = await self._inner.write(work_and_list_heads)
        emit(heads=heads)
        if point == "after":
            die()
        return result

    def write_from_thread(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._inner.write_from_thread(work, *args, **kwargs)

    async def read(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._inner.read(work, *args, **kwargs)

    def subscribe(self, topic: str, callback: Callable[[], object]) -> Unsubscribe:
        return self._inner.subscribe(topic, callback)

    def listen(self, topic: str) -> AsyncGenerator[None, None]:
        return self._inner.listen(topic)

    def damage(self) -> str | None:
        return self._inner.damage()

    async def close(self) -> None:
        await self._inner.close()


def die() -> NoReturn:
    """Kill this process at once, without any cleanup."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL returned")
