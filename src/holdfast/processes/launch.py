"""Starts the shim that supervises a background process."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from holdfast.model.errors import Unavailable
from holdfast.processes.process_dir import ProcessDir
from holdfast.tasks import run_to_completion

SHIM = Path(__file__).with_name("shim.py")
LAUNCH_SECONDS = 30.0


async def launch(action: Literal["start", "resume"], folder: ProcessDir, environment: Mapping[str, str]) -> None:
    """Run a shim with this action. Raises Unavailable if it fails. A cancellation takes effect only after the result is known."""
    await run_to_completion(_run(action, folder, environment))


async def _run(action: str, folder: ProcessDir, environment: Mapping[str, str]) -> None:
    command = (sys.executable, "-I", "-S", str(SHIM), action, str(folder.path))
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
        raise Unavailable(f"cannot start the process shim: {e}") from e
    try:
        # The environment is sent through a pipe, because Python adds variables to the one that it is started with.
        await asyncio.wait_for(program.communicate(json.dumps(dict(environment)).encode()), LAUNCH_SECONDS)
    except TimeoutError as e:
        raise Unavailable(f"the process shim was not ready after {LAUNCH_SECONDS:g} s") from e
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    if program.returncode != 0:
        raise Unavailable(f"the process shim failed; see {folder.path / 'keeper.log'}")
