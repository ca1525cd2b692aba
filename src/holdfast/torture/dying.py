"""A database that kills its own process around the nth commit: what is left then is what a crash leaves."""

import os
import signal
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal, NoReturn

from holdfast.store.database import Database, Transaction
from holdfast.torture.child import say
from holdfast.torture.proof import heads

When = Literal["before", "inside", "after"]
WHENS: tuple[When, ...] = ("before", "inside", "after")


class DyingDatabase:
    """Passes everything through. Tells what each write left in the logs, once the store has acknowledged it."""

    def __init__(self, inner: Database, nth: int, when: When) -> None:
        self._inner = inner
        self._nth = nth
        self._when = when
        self._count = 0

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Die before the transaction begins, inside it when all is done but the commit, or when it was acknowledged."""
        self._count += 1
        dies = self._when if self._count == self._nth else ""
        if dies == "before":
            die()

        def watched(tx: Transaction) -> tuple[Any, list[tuple[str, int, str]]]:
            result = work(tx, *args, **kwargs)
            left = heads(tx)
            if dies == "inside":
                die()
            return result, left

        result, left = await self._inner.write(watched)
        say(heads=left)
        if dies == "after":
            die()
        return result

    def write_from_thread(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._inner.write_from_thread(work, *args, **kwargs)

    async def read(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._inner.read(work, *args, **kwargs)

    def listen(self, topic: str) -> AsyncGenerator[None, None]:
        return self._inner.listen(topic)

    async def close(self) -> None:
        await self._inner.close()


def die() -> NoReturn:
    """Without a word, and at once."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives that")
