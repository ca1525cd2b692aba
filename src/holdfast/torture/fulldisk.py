"""The disk runs full while the store writes to it: that is told, nothing is torn, and writing goes on once there is room."""

import asyncio
import os
import shutil
from pathlib import Path

from holdfast.torture.filler import SIZES
from holdfast.torture.opening import SQLITE
from holdfast.torture.outcome import Outcome, Stage
from holdfast.torture.start import started

MEGABYTES = 32
MOUNT = 'mount -t tmpfs -o size="$1"m,mode=700 tmpfs "$2" && shift 2 && exec "$@"'
SERVER = "the disk of a database server is not ours to fill"


async def full_disk(stage: Stage, outcome: Outcome) -> None:
    if not stage.url.startswith(SQLITE):
        outcome.skipped = SERVER
        return
    folder = stage.folder / "disk"
    folder.mkdir()
    before = await mounting(folder)
    outcome.note = "a small disk in memory" if before else "a limit on the size of files: no disk may be mounted here"
    given = stage.given(url=f"{SQLITE}{folder / 'holdfast.db'}", folder=str(folder), mounted=bool(before))
    async with started("filler", given, before) as child:
        readable, stored = (await child.hear("readable"))["readable"], (await child.hear("stored"))["stored"]
        await child.end_well()
    said = [line["said"] for line in child.lines if "said" in line]
    refused = [line for line in child.lines if "refused" in line]
    outcome.count("messages", len(said))
    outcome.count("refused", len(refused))
    if len(refused) < len(SIZES):
        outcome.lose("a full disk was not told of")
    if readable != len(said) - 1:
        outcome.lose(f"{readable} of {len(said) - 1} messages could be read while the disk was full")
    for number in sorted(set(said) - set(stored)):
        outcome.lose(f"message {number} was acknowledged and is not there")
    for number in sorted(set(stored) - set(said)):
        outcome.double(f"message {number} was refused and is there")
    if len(stored) != len(set(stored)):
        outcome.double("a message is there twice")


async def mounting(folder: Path) -> list[str]:
    """What starts a program with a small disk on the folder that nobody else sees and that is gone with it; nothing if that is not allowed."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return []
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = [unshare, "--mount", *rights, "sh", "-c", MOUNT, "sh", str(MEGABYTES), str(folder)]
    quiet = asyncio.subprocess.DEVNULL
    probe = await asyncio.create_subprocess_exec(*words, "true", stdin=quiet, stdout=quiet, stderr=quiet)
    return words if await probe.wait() == 0 else []
