"""Builds what the janitor of a worker does besides its own work."""

import logging
from pathlib import Path

from holdfast.engine.liveness.janitor import SweepAction, SweepStep
from holdfast.model.errors import Unavailable
from holdfast.processes.registry import ProcessRegistry
from holdfast.store.database import Database
from holdfast.store.spending import usage
from holdfast.tools.backends import private_tmp
from holdfast.tools.backends.container import ContainerBackend

logger = logging.getLogger(__name__)


def refresh_processes(registry: ProcessRegistry) -> SweepStep:
    """Return the sweep step that refreshes all processes."""

    async def step() -> list[SweepAction]:
        return [
            SweepAction(
                f"process {one.what}",
                session_id=one.process.session_id,
                evidence=f"{one.process.id}: {one.evidence}",
            )
            for one in await registry.refresh()
        ]

    return step


def clean_terminals(database: Database, containers: ContainerBackend, home: Path) -> SweepStep:
    """Return the sweep step that removes the containers and temporary files that no session needs. Failures are logged."""

    async def step() -> list[SweepAction]:
        try:
            await private_tmp.remove_unused(home, database)
        except OSError as e:
            logger.warning("cannot remove the temporary files of an ended session: %s", e)
        try:
            done = await containers.remove_unused()
        except Unavailable as e:
            logger.warning("cannot check the containers: %s", e)
            return []
        return [SweepAction("container", session_id=session_id, evidence=what) for session_id, what in done]

    return step


def sum_up_usage(database: Database) -> SweepStep:
    """Return the sweep step that sums up the newest usage."""

    async def step() -> list[SweepAction]:
        await usage.catch_up(database)
        return []

    return step
