"""What a user's files take of the disk, counted from time to time.

That stops a tool that writes on and on. It is no wall: between two counts anything can be written, and a file that has no name
any more is not found. Quotas are one, and the kernel's business.
"""

import asyncio
import os
from collections.abc import Iterable, Set
from pathlib import Path

from holdfast.model.errors import Unavailable

COMMAND = ("env", "LC_ALL=C", "nice", "-n", "19", "du", "-s", "-k", "-c", "-x", "--files0-from=-")
"""In English, whatever the broker's language is: the total has a name."""
SECONDS = 60.0
"""How long a count may take."""
SHARED = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108 - looked at, not used
"""Where everybody may leave files."""
NOBODY = -1


async def taken(places: Iterable[Path | bytes]) -> int:
    """The bytes on the disk of what lies there. Raises Unavailable."""
    names = b"\0".join(map(os.fsencode, places))
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


def left(uids: Set[int]) -> dict[int, list[bytes]]:
    """What each of them owns where everybody may write. That can take a while: one of them may have left very much."""
    found: dict[int, list[bytes]] = {uid: [] for uid in uids}
    for folder in SHARED if uids else ():
        try:
            with os.scandir(os.fsencode(folder)) as entries:
                for entry in entries:
                    if (owner := _owner(entry)) in found:
                        found[owner].append(entry.path)
        except OSError:
            continue  # there is no such folder here
    return found


def _owner(entry: "os.DirEntry[bytes]") -> int:
    try:
        return entry.stat(follow_symlinks=False).st_uid
    except OSError:
        return NOBODY  # it was deleted meanwhile, or is a file system of somebody's own that does not answer
