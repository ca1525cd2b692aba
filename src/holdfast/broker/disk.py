"""What a user's files take of the disk, counted from time to time.

That stops a tool that writes on and on. It is no wall: between two counts anything can be written, and a file that has no name
any more is not found. Quotas are one, and the kernel's business.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.model.errors import Unavailable

COMMAND = ("env", "LC_ALL=C", "nice", "-n", "19", "du", "-s", "-k", "-c", "-x", "--files0-from=-")
"""In English, whatever the broker's language is: the total has a name."""
SECONDS = 60.0
"""How long a count may take."""
SHARED = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108 - looked at, not used
"""Where everybody may leave files."""


async def taken(places: list[Path], uid: int | None) -> int:
    """The bytes on the disk of what lies there, and of what the uid owns where everybody may write. Raises Unavailable."""
    left = [] if uid is None else await asyncio.to_thread(lambda: list(_left(uid)))  # of which there can be very many
    names = b"\0".join((*map(os.fsencode, places), *left))
    try:
        program = await asyncio.create_subprocess_exec(
            *COMMAND,
            cwd="/",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as e:
        raise Unavailable(f"du cannot be started: {e.strerror}") from e
    try:
        async with asyncio.timeout(SECONDS):
            counts, complaints = await program.communicate(names)
    except TimeoutError as e:
        raise Unavailable(f"it takes more than {SECONDS:.0f} s to count") from e
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    total = counts.splitlines()[
        -1:
    ]  # that of a file which was deleted meanwhile is a complaint, and the total is there
    if not total or not total[0].endswith(b"\ttotal"):
        raise Unavailable(f"du did not count: {complaints.decode('utf-8', 'replace').strip()[-200:]}")
    return int(total[0].split(b"\t")[0]) * 1024


def _left(uid: int) -> Iterator[bytes]:
    for folder in SHARED:
        try:
            with os.scandir(os.fsencode(folder)) as found:
                for entry in found:
                    if _owner(entry) == uid:
                        yield entry.path
        except OSError:
            continue  # there is no such folder here


def _owner(entry: "os.DirEntry[bytes]") -> int | None:
    try:
        return entry.stat(follow_symlinks=False).st_uid
    except OSError:
        return None  # it was deleted meanwhile, or is a file system of somebody's own that does not answer
