"""Measures the disk usage of a user's files.

This stops a tool that keeps writing, but it is no hard limit: anything can be written between two counts, and deleted
files that are still open are not counted. For a hard limit use kernel quotas.
"""

import asyncio
import os
from collections.abc import Iterable, Set
from pathlib import Path

from holdfast.model.errors import Unavailable

COMMAND = ("env", "LC_ALL=C", "nice", "-n", "19", "du", "-s", "-k", "-c", "-x", "--files0-from=-")
"""In the C locale: the total is labelled in English."""
SECONDS = 60.0
"""Time limit of a count."""
SHARED_FOLDERS = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108 - looked at, not used
"""World-writable folders."""
NOBODY = -1


async def measure_usage(paths: Iterable[Path | bytes]) -> int:
    """Return the bytes on disk of these paths. Raises Unavailable."""
    names = b"\0".join(map(os.fsencode, paths))
    try:
        program = await asyncio.create_subprocess_exec(
            *COMMAND,
            cwd="/",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as e:
        raise Unavailable(f"cannot start du: {e.strerror}") from e
    try:
        async with asyncio.timeout(SECONDS):
            counts, errors = await program.communicate(names)
    except TimeoutError as e:
        raise Unavailable(f"du took more than {SECONDS:.0f} s") from e
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    total = counts.splitlines()[-1:]  # a file deleted meanwhile is an error message, and the total is still printed
    if not total or not total[0].endswith(b"\ttotal"):
        raise Unavailable(f"du failed: {errors.decode('utf-8', 'replace').strip()[-200:]}")
    return int(total[0].split(b"\t")[0]) * 1024


def find_shared_files(uids: Set[int]) -> dict[int, list[bytes]]:
    """Find the files of each uid in world-writable folders. Slow if there are many.

    Raises OSError: a folder that cannot be read is not an empty one.
    """
    found: dict[int, list[bytes]] = {uid: [] for uid in uids}
    for folder in SHARED_FOLDERS if uids else ():
        try:
            with os.scandir(os.fsencode(folder)) as entries:
                for entry in entries:
                    if (owner := _owner(entry)) in found:
                        found[owner].append(entry.path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue  # the folder does not exist on this machine
    return found


def _owner(entry: "os.DirEntry[bytes]") -> int:
    try:
        return entry.stat(follow_symlinks=False).st_uid
    except OSError:
        return NOBODY  # deleted meanwhile, or a user file system that does not respond
