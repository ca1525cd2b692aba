"""Stores that each break one promise, so that a trial of the torture suite must fail on them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from holdfast.model.errors import LeaseLost, NotSaved
from holdfast.store.database import Database, Transaction, Unsubscribe
from holdfast.store.repos import leases, log, sessions, workers
from holdfast.torture.scratch_store import open_url

COMMIT_DELAY_SECONDS = 0.2


class PassThrough:
    """Passes every call to another store."""

    def __init__(self, inner: Database) -> None:
        self.inner = inner

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.inner.write(work, *args, **kwargs)

    def write_from_thread(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.inner.write_from_thread(work, *args, **kwargs)

    async def read(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.inner.read(work, *args, **kwargs)

    def subscribe(self, topic: str, callback: Callable[[], object]) -> Unsubscribe:
        return self.inner.subscribe(topic, callback)

    def listen(self, topic: str) -> AsyncGenerator[None, None]:
        return self.inner.listen(topic)

    async def close(self) -> None:
        await self.inner.close()


class AcknowledgesEarly(PassThrough):
    """Acknowledges a write before it is committed."""

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def work_slowly(tx: Transaction) -> Any:
            result = work(tx, *args, **kwargs)
            loop.call_soon_threadsafe(lambda: answer.done() or answer.set_result(result))
            time.sleep(COMMIT_DELAY_SECONDS)
            return result

        writing = asyncio.ensure_future(self.inner.write(work_slowly))
        await asyncio.wait({writing, answer}, return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else writing.result()


class WritesTwice(PassThrough):
    """Appends each event twice."""

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if work is log.append:
            await self.inner.write(work, *args, **kwargs)
        return await self.inner.write(work, *args, **kwargs)


class IgnoresLeases(PassThrough):
    """Appends for workers that have lost their lease."""

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


class KeepsDeadWorkers(PassThrough):
    """Does not record that a worker is dead."""

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return [] if work is workers.mark_dead else await self.inner.write(work, *args, **kwargs)


class ReportsUnsaved(PassThrough):
    """Acknowledges writes that failed."""

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return await self.inner.write(work, *args, **kwargs)
        except NotSaved:
            return None


class ForgetsKeys(PassThrough):
    """Does not recognise an idempotency key."""

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.inner.write(lambda tx: work(_ForgetfulTransaction(tx), *args, **kwargs))


class _ForgetfulTransaction:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def one(self, query: str, **params: Any) -> Any:
        return (params["turn"],) if query == "idempotency.claim" else self._tx.one(query, **params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


async def reports_unsaved(url: str) -> Database:
    return ReportsUnsaved(await open_url(url))


async def forgets_keys(url: str) -> Database:
    return ForgetsKeys(await open_url(url))


async def acknowledges_early(url: str) -> Database:
    return AcknowledgesEarly(await open_url(url))


async def writes_twice(url: str) -> Database:
    return WritesTwice(await open_url(url))


async def ignores_leases(url: str) -> Database:
    return IgnoresLeases(await open_url(url))


async def keeps_dead_workers(url: str) -> Database:
    return KeepsDeadWorkers(await open_url(url))
