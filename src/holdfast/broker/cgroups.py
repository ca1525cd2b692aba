"""Limits the memory and CPU of all processes of a user together, with kernel control groups (cgroups).

    .../holdfast-ID/NAME    one per user; users share the CPU of `holdfast-ID` equally
    .../broker              the broker's own in cgroup v2, where a group with subgroups cannot contain processes

They are created in the group that the broker was started in. The kernel has one tree per controller (v1) or one for all
(v2, unified), and many machines have both; each controller is used where it is. Where the broker may not create groups,
as in most containers, it continues without and logs a warning.
"""

import errno
import hashlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.errors import Unavailable
from holdfast.store.atomic_file import translate

CONTROLLERS = ("memory", "cpu")
BROKER_GROUP = "broker"
PROCS_FILE = "cgroup.procs"
TRIES = 100
TRY_SECONDS = 0.05
CPUS = os.cpu_count() or 1
CPU_SHARE = {True: ("cpu.weight", str(min(100 * CPUS, 10_000))), False: ("cpu.shares", str(1024 * CPUS))}
"""CPU weight of all users together: per CPU as much as one other process, so that the broker can get half a CPU."""


@dataclass(frozen=True, slots=True)
class CgroupTree:
    """Where the groups of one controller are created."""

    folder: Path
    unified: bool


def find_trees(groups: str, mounts: str) -> dict[str, CgroupTree]:
    """Find the trees of our controllers in /proc/self/cgroup and /proc/self/mountinfo."""
    mounted = dict(_mounted(mounts))
    found: dict[str, CgroupTree] = {}
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(",") if names else ("",):
            if name in mounted and (name in CONTROLLERS or not name):
                point, root = mounted[name]
                inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path(path.lstrip("/"))
                found[name] = CgroupTree(point / inside, unified=not name)
    unified = found.pop("", None)
    if unified is not None:
        if unified.folder.name == BROKER_GROUP:
            unified = CgroupTree(unified.folder.parent, unified=True)
        for name in CONTROLLERS:
            found.setdefault(name, unified)
    return found


def _mounted(mounts: str) -> Iterator[tuple[str, tuple[Path, str]]]:
    """Yield each controller ("" for the unified tree) with its mount point and root."""
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, point = fields.split(" ")[3:5]
        if kind == "cgroup2":
            yield "", (Path(point), root)
        elif kind == "cgroup":
            yield from ((name, (Path(point), root)) for name in options.split(","))


def _limit_memory(group: Path, most: int, *, unified: bool) -> None:
    """Limit memory including swap, where the kernel counts it: one user could fill the swap of all others."""
    swap = group / ("memory.swap.max" if unified else "memory.memsw.limit_in_bytes")
    if unified:
        (group / "memory.max").write_text(str(most))
        if swap.exists():
            swap.write_text("0")
        return
    if swap.exists():
        swap.write_text("-1")  # it must not be lower than the memory limit, which may have been raised
    (group / "memory.limit_in_bytes").write_text(str(most))
    if swap.exists():
        swap.write_text(str(most))


class UserCgroups:
    """The cgroups of one broker's users; `owner` is the broker's folder."""

    def __init__(self, found: dict[str, CgroupTree], owner: Path) -> None:
        self.name = f"holdfast-{hashlib.sha256(os.fsencode(owner.absolute())).hexdigest()[:12]}"
        self._found = found
        self._ready: dict[str, CgroupTree] = {}

    @classmethod
    def detect(cls, owner: Path, proc: Path = Path("/proc/self")) -> "UserCgroups":
        """Use the group of this process. Mount points may have names that are not valid UTF-8."""
        files = (proc / "cgroup", proc / "mountinfo")
        if not all(file.exists() for file in files):  # a kernel without cgroups
            return cls({}, owner)
        return cls(find_trees(*(file.read_text("utf-8", "surrogateescape") for file in files)), owner)

    def set_up(self) -> dict[str, str]:
        """Create the parent groups; return the missing controllers with the reasons."""
        missing = {
            controller: "not supported by this kernel" for controller in CONTROLLERS if controller not in self._found
        }
        for controller, tree in self._found.items():
            try:
                self._set_up(controller, tree)
            except OSError as e:
                missing[controller] = str(e)
            else:
                self._ready[controller] = tree
        return missing

    def _set_up(self, controller: str, tree: CgroupTree) -> None:
        users = tree.folder / self.name
        if tree.unified:
            (tree.folder / BROKER_GROUP).mkdir(exist_ok=True)
            (tree.folder / BROKER_GROUP / PROCS_FILE).write_text(str(os.getpid()))
            (tree.folder / "cgroup.subtree_control").write_text(f"+{controller}")
        users.mkdir(exist_ok=True)
        if tree.unified:
            (users / "cgroup.subtree_control").write_text(f"+{controller}")
        if controller == "cpu":
            file, share = CPU_SHARE[tree.unified]
            (users / file).write_text(share)

    def create(self, user: str, memory_bytes: int) -> list[str]:
        """Create a user's groups with their limits; return the files through which a process joins them. Raises Unavailable."""
        try:
            for controller, tree in self._ready.items():
                group = tree.folder / self.name / user
                group.mkdir(exist_ok=True)
                if controller == "memory":
                    _limit_memory(group, memory_bytes, unified=tree.unified)
        except OSError as e:
            raise Unavailable(f"cannot create the cgroups of {user}: {e}") from e
        return sorted({str(tree.folder / self.name / user / PROCS_FILE) for tree in self._ready.values()})

    def kill_processes(self, user: str) -> None:
        """Kill all processes in a user's groups. A process with enough rights can leave its group; uids prevent that."""
        for _ in range(TRIES):
            groups = [tree.folder / self.name / user / PROCS_FILE for tree in self._ready.values()]
            found = {int(pid) for group in groups if group.exists() for pid in group.read_text().split()}
            found.discard(0)  # a process of another container; kill(0) would mean our own group
            if not found:
                break
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(TRY_SECONDS)

    def remove(self, *users: str) -> bool:
        """Remove the groups of these users, or of all; return whether none is left. A running process keeps its group."""
        kept = False
        for folder in {tree.folder / self.name for tree in self._found.values()}:
            found = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
            for group in (folder / user for user in users) if users else (*found, folder):
                try:
                    group.rmdir()
                except OSError as e:
                    if e.errno not in (errno.EBUSY, errno.ENOTEMPTY, errno.ENOENT):
                        raise translate(e, group) from e
                    kept |= e.errno != errno.ENOENT
        return not kept
