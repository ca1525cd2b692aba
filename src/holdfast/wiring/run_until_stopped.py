"""Runs the work of a server until it is done or has to stop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from holdfast.engine.engine import Engine
from holdfast.tasks import running, wait_for_first


async def run_until_stopped(work: Coroutine[Any, Any, object], stopping: asyncio.Event, engine: Engine) -> None:
    """Run the work until it is done or a stop is requested. Raises its error, or that of `Engine.death`."""
    async with running(work, stopping.wait()) as (task, asked):
        await wait_for_first(task, asked, engine.death)
        if engine.death.done():
            engine.death.result()
        if task.done():
            task.result()
