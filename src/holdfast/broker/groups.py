"""What all programs of a user together may take of memory and CPU, by the kernel's control groups.

    .../holdfast-ID/NAME    a user's; all of them share what `holdfast-ID` may take, in equal parts
    .../broker              the broker's own, where groups are unified: there a group that is divided has no processes itself

They lie in the group that the broker was started in. The kernel has two ways of laying them out, one tree for each controller
or one for all (unified), and many machines have both; each controller is taken from where it is. Where we may not make
groups, as in most containers, the broker goes on without, and says so.
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
from holdfast.store.private import translate

CONTROLLERS = ("memory", "cpu")
LEAF = "broker"
MEMBERS = "cgroup.procs"
TRIES = 100
TRY_SECONDS = 0.05
CPUS = os.cpu_count() or 1
SHARE = {True: ("cpu.weight", str(min(100 * CPUS, 10_000))), False: ("cpu.shares", str(1024 * CPUS))}
"""Of all users together: on each CPU as much as any other program, so that the broker gets half of one if it wants it."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Where the groups of one controller are made."""

    folder: Path
    unified: bool


def trees(groups: str, mounts: str) -> dict[str, Tree]:
    """The trees of our controllers, as /proc/self/cgroup and /proc/self/mountinfo tell of them."""
    mounted = dict(_mounted(mounts))
    found: dict[str, Tree] = {}
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(",") if names else ("",):
            if name in mounted and (name in CONTROLLERS or not name):
                point, root = mounted[name]
                inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path(path.lstrip("/"))
                found[name] = Tree(point / inside, unified=not name)
    unified = found.pop("", None)
    if unified is not None:
        if unified.folder.name == LEAF:
            unified = Tree(unified.folder.parent, unified=True)
        for name in CONTROLLERS:
            found.setdefault(name, unified)
    return found


def _mounted(mounts: str) -> Iterator[tuple[str, tuple[Path, str]]]:
    """Each controller, or "" for the unified tree, with where it is mounted and from which of its folders on."""
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, point = fields.split(" ")[3:5]
        if kind == "cgroup2":
            yield "", (Path(point), root)
        elif kind == "cgroup":
            yield from ((name, (Path(point), root)) for name in options.split(","))


def _limit_memory(group: Path, most: int, *, unified: bool) -> None:
    """What is swapped out counts, too, where the kernel counts it: one user could fill the swap of all others."""
    swap = group / ("memory.swap.max" if unified else "memory.memsw.limit_in_bytes")
    if unified:
        (group / "memory.max").write_text(str(most))
        if swap.exists():
            swap.write_text("0")
        return
    if swap.exists():
        swap.write_text("-1")  # it cannot be lower than the other, which may have been raised
    (group / "memory.limit_in_bytes").write_text(str(most))
    if swap.exists():
        swap.write_text(str(most))


class Groups:
    """The groups of one broker's users, whose own folder `owner` is."""

    def __init__(self, found: dict[str, Tree], owner: Path) -> None:
        self.name = f"holdfast-{hashlib.sha256(os.fsencode(owner.absolute())).hexdigest()[:12]}"
        self._found = found
        self._divided: dict[str, Tree] = {}

    @classmethod
    def of(cls, owner: Path, proc: Path = Path("/proc/self")) -> "Groups":
        """In the group that this program is in. Others may have mounted something under a name that is no text."""
        files = (proc / "cgroup", proc / "mountinfo")
        if not all(file.exists() for file in files):  # a kernel that was built without groups
            return cls({}, owner)
        return cls(trees(*(file.read_text("utf-8", "surrogateescape") for file in files)), owner)

    def divide(self) -> dict[str, str]:
        """Make room for users; which controllers are not to be had, and why."""
        missing = {controller: "this kernel has none" for controller in CONTROLLERS if controller not in self._found}
        for controller, tree in self._found.items():
            try:
                self._divide(controller, tree)
            except OSError as e:
                missing[controller] = str(e)
            else:
                self._divided[controller] = tree
        return missing

    def _divide(self, controller: str, tree: Tree) -> None:
        users = tree.folder / self.name
        if tree.unified:
            (tree.folder / LEAF).mkdir(exist_ok=True)
            (tree.folder / LEAF / MEMBERS).write_text(str(os.getpid()))
            (tree.folder / "cgroup.subtree_control").write_text(f"+{controller}")
        users.mkdir(exist_ok=True)
        if tree.unified:
            (users / "cgroup.subtree_control").write_text(f"+{controller}")
        if controller == "cpu":
            file, share = SHARE[tree.unified]
            (users / file).write_text(share)

    def make(self, user: str, memory_bytes: int) -> list[str]:
        """A user's groups, with their limits; the files that a program of theirs joins them by. Raises Unavailable."""
        try:
            for controller, tree in self._divided.items():
                group = tree.folder / self.name / user
                group.mkdir(exist_ok=True)
                if controller == "memory":
                    _limit_memory(group, memory_bytes, unified=tree.unified)
        except OSError as e:
            raise Unavailable(f"the control groups of {user} could not be made: {e}") from e
        return sorted({str(tree.folder / self.name / user / MEMBERS) for tree in self._divided.values()})

    def end_programs(self, user: str) -> None:
        """Kill all that runs in a user's groups. Whoever may leave them has left: against that, users have uids."""
        for _ in range(TRIES):
            groups = [tree.folder / self.name / user / MEMBERS for tree in self._divided.values()]
            found = {int(pid) for group in groups if group.exists() for pid in group.read_text().split()}
            found.discard(0)  # one of another container; for kill(), our own
            if not found:
                break
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(TRY_SECONDS)

    def drop(self, *users: str) -> bool:
        """Remove the groups of these users, or of all; whether none is left. What still runs keeps its own."""
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
