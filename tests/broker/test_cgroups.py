"""Cgroups: found in every layout, and one user's usage does not reduce that of another."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker.cgroups import CONTROLLERS, CgroupTree, UserCgroups, find_trees
from tests.crash.programs import wait_until

MB = 2**20
SWAP = {"memory.swap.max", "memory.memsw.limit_in_bytes"}
JOIN = "import os, sys; [open(file, 'w').write(str(os.getpid())) for file in sys.argv[2:]]; "
HOG = JOIN + "taken = bytearray(b'x' * int(sys.argv[1])); print('has it', flush=True); sys.stdin.read()"
SPIN = JOIN + "print('spins', flush=True)\nwhile True: pass"


# where they are


@pytest.mark.parametrize(
    ("groups", "mounts", "expected"),
    [
        pytest.param(
            "0::/system.slice/holdfast.service\n",
            "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
            dict.fromkeys(CONTROLLERS, CgroupTree(Path("/sys/fs/cgroup/system.slice/holdfast.service"), unified=True)),
            id="unified",
        ),
        pytest.param(
            "0::/system.slice/holdfast.service/broker\n",
            "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            dict.fromkeys(CONTROLLERS, CgroupTree(Path("/sys/fs/cgroup/system.slice/holdfast.service"), unified=True)),
            id="in a leaf already",
        ),
        pytest.param(
            "0::/\n",
            "30 24 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
            dict.fromkeys(CONTROLLERS, CgroupTree(Path("/sys/fs/cgroup"), unified=True)),
            id="a container with a view of its own",
        ),
        pytest.param(
            "5:memory:/docker/c0ffee\n3:cpu,cpuacct:/docker/c0ffee\n1:name=systemd:/docker/c0ffee\n",
            "40 39 0:31 /docker/c0ffee /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
            "41 39 0:32 /docker/c0ffee /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n",
            {
                "memory": CgroupTree(Path("/sys/fs/cgroup/memory"), unified=False),
                "cpu": CgroupTree(Path("/sys/fs/cgroup/cpu,cpuacct"), unified=False),
            },
            id="a tree for each, in a container",
        ),
        pytest.param(
            "4:memory:/some/group\n0::/\n",
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            {
                "memory": CgroupTree(Path("/sys/fs/cgroup/memory/some/group"), unified=False),
                "cpu": CgroupTree(Path("/sys/fs/cgroup/unified"), unified=True),
            },
            id="both",
        ),
        pytest.param("0::/\n", "22 1 0:20 / /proc rw - proc proc rw\n", {}, id="none"),
    ],
)
def test_cgroups_are_found_in_every_layout(groups: str, mounts: str, expected: dict[str, CgroupTree]) -> None:
    assert find_trees(groups, mounts) == expected


def test_a_mount_whose_name_is_not_text_is_ignored(tmp_path: Path) -> None:
    mount = b"99 24 0:50 / /srv/holdfast/users/ada/work/\xff rw - fuse.sshfs ada rw,user_id=5\n"
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "mountinfo").write_bytes(mount + b"30 24 0:26 / %b rw - cgroup2 cgroup2 rw\n" % os.fsencode(tmp_path))

    assert UserCgroups.detect(tmp_path, proc=tmp_path).set_up() == {}


def test_with_unified_cgroups_the_broker_moves_to_its_own_group(tmp_path: Path) -> None:
    """The files that the kernel documents, in an ordinary directory, because this kernel may have others."""
    found = UserCgroups(dict.fromkeys(CONTROLLERS, CgroupTree(tmp_path, unified=True)), tmp_path / "broker")
    users = tmp_path / found.name

    assert found.set_up() == {}
    assert (tmp_path / "broker" / "cgroup.procs").read_text() == str(os.getpid())
    assert int((users / "cpu.weight").read_text()) >= 100
    (users / "ada").mkdir()
    (users / "ada" / "memory.swap.max").write_text("max")
    assert found.create("ada", 5 * MB) == [str(users / "ada" / "cgroup.procs")]
    assert (users / "ada" / "memory.max").read_text() == str(5 * MB)
    assert (users / "ada" / "memory.swap.max").read_text() == "0"


def test_missing_controllers_are_reported_and_the_others_are_used(tmp_path: Path) -> None:
    found = UserCgroups({"memory": CgroupTree(tmp_path / "nowhere", unified=False)}, tmp_path)
    missing = found.set_up()

    assert missing["cpu"] == "not supported by this kernel"
    assert "nowhere" in missing["memory"]
    assert found.create("ada", MB) == []


def test_a_kernel_without_cgroups_is_supported(tmp_path: Path) -> None:
    found = UserCgroups.detect(tmp_path, proc=tmp_path)

    assert list(found.set_up()) == list(CONTROLLERS)
    assert found.create("ada", MB) == []
    assert found.remove()


# what they do


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[UserCgroups]:
    """Real ones. With unified cgroups, other processes in our group may prevent this."""
    found = UserCgroups.detect(tmp_path)
    if missing := found.set_up():
        assert any(tree.unified or not os.access(tree.folder, os.W_OK) for tree in trees_here().values()), missing
        found.remove()
        pytest.skip(f"no control groups here: {missing}")
    yield found
    wait_until(found.remove, "all have left")
    assert not [tree for tree in trees_here().values() if (tree.folder / found.name).exists()]


def trees_here() -> dict[str, CgroupTree]:
    return find_trees(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())


def run(code: str, *words: str) -> "subprocess.Popen[str]":
    command = (sys.executable, "-c", code, *words)
    started = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdout is not None
    started.stdout.readline()  # it has joined and has its memory, or is dead
    return started


def end(*programs: "subprocess.Popen[str]") -> None:
    for one in programs:
        one.kill()
        one.communicate()


def test_a_user_above_the_memory_limit_affects_no_other(groups: UserCgroups) -> None:
    """Each program stays below the limit, and all together exceed it."""
    ada, bo = groups.create("ada", 150 * MB), groups.create("bo", 150 * MB)
    other = run(HOG, str(60 * MB), *bo)
    hogs = [run(HOG, str(60 * MB), *ada) for _ in range(4)]
    try:
        wait_until(lambda: any(one.poll() == -signal.SIGKILL for one in hogs), "one of them is killed by the kernel")
        assert other.poll() is None
        assert any(one.poll() is None for one in hogs), "no more than necessary"
    finally:
        end(other, *hogs)


def test_swap_counts_too(groups: UserCgroups) -> None:
    for most in (150 * MB, 300 * MB, 100 * MB):
        folders = [Path(file).parent for file in groups.create("ada", most)]
        limits = [path.read_text() for folder in folders for path in folder.iterdir() if path.name in SWAP]
        assert set(limits) <= {"0\n", f"{most}\n"}


def test_a_user_with_many_programs_gets_no_more_of_the_cpu(groups: UserCgroups) -> None:
    cpus = len(os.sched_getaffinity(0))
    ada, bo = groups.create("ada", 4096 * MB), groups.create("bo", 4096 * MB)
    few = [run(SPIN, "", *bo) for _ in range(cpus)]
    many = [run(SPIN, "", *ada) for _ in range(6 * cpus)]
    try:
        before = used(few), used(many)
        wait_until(lambda: used(few) + used(many) - sum(before) > 400, "they have spun for a while")
        got = used(few) - before[0], used(many) - before[1]
        assert got[0] > got[1] / 2, "the one with few programs got about as much, not a sixth"
    finally:
        end(*few, *many)


def test_all_processes_of_a_user_can_be_ended_without_a_uid(groups: UserCgroups) -> None:
    ada, bo = groups.create("ada", 4096 * MB), groups.create("bo", 4096 * MB)
    forks = "import time\nfor _ in range(10): os.fork()\ntime.sleep(600)"
    other, one = run(SPIN, "", *bo), run(JOIN + f"print('has joined', flush=True)\n{forks}", "", *ada)
    try:
        wait_until(lambda: len(Path(ada[0]).read_text().split()) > 100, "there are many")
        groups.kill_processes("ada")

        assert one.wait() == -signal.SIGKILL
        assert {Path(file).read_text() for file in ada} == {""}
        assert other.poll() is None
        groups.kill_processes("nobody")
    finally:
        end(other, one)


def used(programs: "list[subprocess.Popen[str]]") -> int:
    """Their CPU time, in hundredths of a second."""
    fields = [Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split() for one in programs]
    return sum(int(found[11]) + int(found[12]) for found in fields)
