"""The disk fills up while the store writes to it. Writers get an error, nothing is torn, and writing resumes when space is freed."""

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from holdfast.torture.programs import disk_filler
from holdfast.torture.result import TrialContext, TrialResult
from holdfast.torture.scratch_store import SQLITE
from holdfast.torture.subprocesses import Line, start_program

MEGABYTES = 32
MOUNT = 'mount -t tmpfs -o size="$1"m,mode=700 tmpfs "$2" && shift 2 && exec "$@"'
RAM_DISK = "a small disk in memory"
SIZE_LIMIT = "a limit on file size, because mounting is not allowed"
SKIPPED = "would fill the disk of the database server"


async def disk_full(trial: TrialContext, result: TrialResult) -> None:
    if not trial.url.startswith(SQLITE):
        result.skipped = SKIPPED
        return
    folder = trial.folder / "disk"
    folder.mkdir()
    prefix = await mount_command(folder)
    result.note = RAM_DISK if prefix else SIZE_LIMIT
    url = f"{SQLITE}{folder / 'holdfast.db'}"
    parameters = trial.parameters(url=url, folder=str(folder), mounted=bool(prefix))
    async with start_program(disk_filler, parameters, prefix) as child:
        readable = (await child.next_line("readable"))["readable"]
        stored = (await child.next_line("stored"))["stored"]
        await child.wait_for_success()
    _check(child.lines, readable, stored, result)


def _check(lines: Sequence[Line], readable: int, stored: list[int], result: TrialResult) -> None:
    written = [line["written"] for line in lines if "written" in line]
    refused = [line for line in lines if "refused" in line]
    result.count("messages", len(written))
    result.count("refused", len(refused))
    if len(refused) < len(disk_filler.SIZES):
        result.add_lost("the store did not report that the disk is full")
    if readable != len(written) - 1:
        result.add_lost(f"only {readable} of {len(written) - 1} messages could be read while the disk was full")
    for number in sorted(set(written) - set(stored)):
        result.add_lost(f"message {number} was acknowledged and is missing")
    for number in sorted(set(stored) - set(written)):
        result.add_doubled(f"message {number} was refused and is present")
    if len(stored) != len(set(stored)):
        result.add_doubled("a message is present twice")


async def mount_command(folder: Path) -> list[str]:
    """Return a command that mounts a RAM disk on the folder for one program only; empty if that is not allowed."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return []
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = [unshare, "--mount", *rights, "sh", "-c", MOUNT, "sh", str(MEGABYTES), str(folder)]
    null = asyncio.subprocess.DEVNULL
    probe = await asyncio.create_subprocess_exec(*command, "true", stdin=null, stdout=null, stderr=null)
    return command if await probe.wait() == 0 else []
