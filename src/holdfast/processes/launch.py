"""Starts keepers."""

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Literal

from holdfast.model.errors import Unavailable
from holdfast.processes import keeper
from holdfast.processes.folder import Folder

LAUNCH_SECONDS = 30.0


async def launch(deed: Literal["start", "relieve"], folder: Folder, environment: Mapping[str, str]) -> None:
    """Have a keeper do its deed. Raises Unavailable if none does. A cancellation waits until it is known whether it does."""
    launching = asyncio.ensure_future(_run(deed, folder, environment))
    try:
        await asyncio.shield(launching)
    except asyncio.CancelledError:
        await asyncio.wait({launching})
        launching.exception()
        raise


async def _run(deed: str, folder: Folder, environment: Mapping[str, str]) -> None:
    command = (sys.executable, "-I", "-S", keeper.__file__, deed, str(folder.path))
    try:
        program = await asyncio.create_subprocess_exec(
            *command,
            cwd="/",
            env={},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as e:
        raise Unavailable(f"no keeper could be started: {e}") from e
    try:
        # The environment goes through a pipe: Python would add to one that it was started with.
        await asyncio.wait_for(program.communicate(json.dumps(dict(environment)).encode()), LAUNCH_SECONDS)
    except TimeoutError as e:
        raise Unavailable(f"its keeper was not ready after {LAUNCH_SECONDS:g} s") from e
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    if program.returncode != 0:
        raise Unavailable(f"its keeper failed; see {folder.path / 'keeper.log'}")
