"""A store that stops its process in the middle of one write: with the event written but not committed."""

import signal
import threading
from collections.abc import Callable
from typing import Any

from holdfast.model.event import UserSaid
from holdfast.model.message import text_of
from holdfast.model.session import Session
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import log
from holdfast.store.repos.leases import Lease
from holdfast.torture.scratch_store import open_url
from tests.torture.broken import PassThrough

STOP_MIDWAY = "append and stop midway"
"""The text of the message whose write stops the process."""


class StoppingStore(PassThrough):
    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.inner.write(_append if work is log.append else work, *args, **kwargs)


def _append(tx: Transaction, lease: Lease, events: list[UserSaid], *, at: int) -> Session:
    session = log.append(tx, lease, events, at=at)
    if text_of(events[0].parts) == STOP_MIDWAY:
        # Stop this thread: after os.kill it could continue and commit.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    return session


async def open_stopping(url: str) -> Database:
    return StoppingStore(await open_url(url))
