"""Stores that break a promise, each in its own way, for the torture to find out."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from holdfast.model.errors import LeaseLost, NotSaved
from holdfast.store import leases, log, sessions, workers
from holdfast.store.database import Database, Transaction
from holdfast.torture.opening import open_url

HASTE_SECONDS = 0.2


class Passing:
    """Does as the store behind it does."""

    def __init__(self, inner: Database) -> None:
        self.inner = inner

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.inner.write(work, *args, **kwargs)

    def write_from_thread(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.inner.write_from_thread(work, *args, **kwargs)

    async def read(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.inner.read(work, *args, **kwargs)

    def listen(self, topic: str) -> AsyncGenerator[None, None]:
        return self.inner.listen(topic)

    async def close(self) -> None:
        await self.inner.close()


class Hasty(Passing):
    """Acknowledges a write before it is committed."""

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def hasten(tx: Transaction) -> Any:
            result = work(tx, *args, **kwargs)
            loop.call_soon_threadsafe(lambda: answer.done() or answer.set_result(result))
            time.sleep(HASTE_SECONDS)
            return result

        writing = asyncio.ensure_future(self.inner.write(hasten))
        await asyncio.wait({writing, answer}, return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else writing.result()


class Stuttering(Passing):
    """Writes some messages twice."""

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if work is log.append:
            await self.inner.write(work, *args, **kwargs)
        return await self.inner.write(work, *args, **kwargs)


class Lax(Passing):
    """Lets those write who have lost their lease."""

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return await self.inner.write(work, *args, **kwargs)
        except LeaseLost:
            if work is not log.append:
                raise
            return await self.inner.write(_append_anyway, *args, **kwargs)


def _append_anyway(tx: Transaction, lease: leases.Lease, events: list[Any], *, at: int) -> Any:
    session = sessions.get(tx, lease.session_id)
    if session.lease_worker is None:
        return log.append_unheld(tx, session.id, events, at=at)
    return log.append(tx, leases.Lease(session.id, session.lease_worker, session.lease_token), events, at=at)


class Forgetful(Passing):
    """Does not bury the dead."""

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return [] if work is workers.bury else await self.inner.write(work, *args, **kwargs)


class Boastful(Passing):
    """Acknowledges what could not be saved."""

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return await self.inner.write(work, *args, **kwargs)
        except NotSaved:
            return None


class Unmindful(Passing):
    """Does not know a request again."""

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.inner.write(lambda tx: work(_Unmindful(tx), *args, **kwargs))


class _Unmindful:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def one(self, query: str, **params: Any) -> Any:
        return (params["turn"],) if query == "keys.claim" else self._tx.one(query, **params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


async def boastful(url: str) -> Database:
    return Boastful(await open_url(url))


async def unmindful(url: str) -> Database:
    return Unmindful(await open_url(url))


async def hasty(url: str) -> Database:
    return Hasty(await open_url(url))


async def stuttering(url: str) -> Database:
    return Stuttering(await open_url(url))


async def lax(url: str) -> Database:
    return Lax(await open_url(url))


async def forgetful(url: str) -> Database:
    return Forgetful(await open_url(url))
