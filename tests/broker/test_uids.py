"""With separate uids, the tools of one user cannot affect another. Only root can assign uids."""

import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import msgspec
import pytest

from holdfast.broker import admin, uids
from holdfast.broker.cgroups import UserCgroups
from holdfast.broker.paths import BrokerPaths
from holdfast.broker.users import Users
from holdfast.config import read
from holdfast.model.errors import Invalid
from holdfast.settings import BrokerSettings
from tests.api.serving import ask, text
from tests.broker.brokers import Brokers, groups
from tests.crash.programs import ROOT

UID = 54321
OTHER_UID = 54320
TRY = """
import os, signal, socket, sys
home, sock, pid = sys.argv[1:]
def refused(deed, *given):
    try:
        deed(*given)
    except PermissionError:
        return True
    return False
assert refused(os.listdir, home), "it can look into the home"
assert refused(open, home + "/holdfast.db"), "it can read the store"
assert refused(socket.socket(socket.AF_UNIX).connect, sock), "it can talk to the worker"
assert refused(os.kill, int(pid), signal.SIGTERM), "it can stop the worker"
assert refused(open, f"/proc/{pid}/environ"), "it can read the worker's key"
"""


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give out uids")


@cache
def interpreter() -> tuple[str, ...]:
    """A way for an unprivileged user to run this program: root's own installation may be in root's home."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (sys.executable, shutil.which(version, path="/usr/local/bin:/usr/bin")):
        command = ("/usr/bin/env", f"PYTHONPATH={ROOT / 'src'}:{packages}", str(python), "-P")
        if python is not None and as_other_user(*command, "-c", "import holdfast.wiring.server").returncode == 0:
            return command
    pytest.skip("only root's own folders hold a Python for this program")


def as_other_user(*command: str, uid: int = OTHER_UID) -> "subprocess.CompletedProcess[str]":
    alone = {"user": uid, "group": uid, "extra_groups": []}
    return subprocess.run(command, check=False, cwd="/", capture_output=True, text=True, **alone)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def homes() -> Iterator[Path]:
    """A directory that every user can reach; the tests' own is accessible to root only."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-homes-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def test_without_root_uids_are_refused_before_anything_is_done(tmp_path: Path) -> None:
    config = "[broker]\nfirst_uid = 54321\n"
    if os.geteuid() != 0:
        (tmp_path / "config.toml").write_text(config)
        with pytest.raises(Invalid, match="which needs root"):
            admin.add_user(read({}, tmp_path), "ada", None, 1)
    else:
        with tempfile.TemporaryDirectory() as home:
            os.chown(home, OTHER_UID, OTHER_UID)
            Path(home, "config.toml").write_text(config)
            done = as_other_user(*interpreter(), "-m", "holdfast", "--home", home, "broker", "add", "ada")
        assert done.returncode == 2
        assert "which needs root" in done.stderr


@as_root
def test_a_path_that_the_uid_cannot_reach_is_detected_beforehand(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        f"[broker]\nfirst_uid = {UID}\n"
    )  # the tests' own directory is accessible to root only
    with pytest.raises(Invalid, match=f"uid {UID} cannot "):
        admin.add_user(read({}, tmp_path), "ada", None, 1)

    assert not (tmp_path / "users" / "ada").exists()
    assert admin.load_status(read({}, tmp_path)) == (None, [])


def test_no_user_gets_a_uid_that_is_in_use(tmp_path: Path) -> None:
    """All its processes would be ended with the user."""
    other = pwd.getpwnam("nobody").pw_uid
    assert uids.find_obstacle(other, tmp_path).startswith(f"uid {other} belongs to nobody")


def test_without_root_and_setting_users_share_a_uid_with_a_warning(tmp_path: Path) -> None:
    user, _, warnings = admin.add_user(read({}, tmp_path), "ada", None, 1)

    assert user.uid is None
    (said,) = warnings
    assert "can access each other's files, ada too" in said
    assert ("cannot" in said) if os.geteuid() == 0 else ("root" in said)
    assert "each other's files: ada" in " ".join(admin.check_settings(read({}, tmp_path)))


def test_root_gives_each_user_a_uid_unless_configured_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    told, untold, shared = BrokerSettings(first_uid=UID), BrokerSettings(), BrokerSettings(first_uid=0)

    assert [uids.first_free_uid(wanted, None) for wanted in (told, shared)] == [UID, None]
    drawn = uids.first_free_uid(untold, None)
    assert drawn in uids.UNUSED_UIDS
    assert uids.first_free_uid(untold, 77) == 77, "the next after those it has assigned"
    assert [uids.first_free_uid(told, given) for given in (77, UID + 5)] == [UID, UID + 5], "not one that is in use"
    assert len({uids.first_free_uid(untold, None) for _ in range(20)}) > 10, "brokers that know nothing of each other"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert uids.first_free_uid(untold, None) is None


def test_a_user_without_a_uid_is_not_served_where_each_must_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    settings = read({}, tmp_path)
    shared, told = (msgspec.structs.replace(settings, broker=BrokerSettings(first_uid=uid)) for uid in (0, UID))
    assert "remove broker.first_uid = 0" in admin.add_user(shared, "ada", None, 1)[2][0]

    with pytest.raises(Invalid, match="added without a uid: ada"):
        admin.check_settings(told)


@pytest.fixture
def apart(tmp_path: Path, homes: Path) -> Iterator[Brokers]:
    """A broker whose users, ada and bo, have uids. It leaves no cgroup."""
    if os.geteuid() != 0:
        pytest.skip("only root can give out uids")
    python = interpreter()
    with Brokers(tmp_path / "h", "ada", "bo", python=python, homes=str(homes)) as broker:
        for name in ("ada", "bo"):
            with broker.http(name) as http:
                assert text(ask(http, "hello")) == "You said: hello"
        yield broker
        broker.stop()
        found = UserCgroups.detect(broker.places.broker)
        assert not [group for group in groups(os.getpid()) if (group / found.name).exists()]


def uid_of(broker: Brokers, name: str) -> int:
    uid = Users(broker.places.users).get(name).uid
    assert uid in uids.UNUSED_UIDS
    return uid


def test_users_with_uids_cannot_access_each_other(apart: Brokers) -> None:
    found = interpreter()
    for name, other in (("ada", "bo"), ("bo", "ada")):
        uid, status = uid_of(apart, name), Path(f"/proc/{apart.pid(name)}/status").read_text()
        assert re.search(rf"^Uid:\t{uid}\t{uid}\t{uid}\t{uid}$", status, re.MULTILINE)
        assert re.search(rf"^Gid:\t{uid}\t{uid}\t{uid}\t{uid}$", status, re.MULTILINE)
        assert re.search(r"^Groups:\s*$", status, re.MULTILINE)
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
        assert re.search(r"Max processes\s+512\s", Path(f"/proc/{apart.pid(name)}/limits").read_text())
        target = (apart.places.user(other) / "home", apart.places.run(other) / "sock", apart.pid(other))
        done = as_other_user(*found, "-c", TRY, *map(str, target), uid=uid)
        assert done.returncode == 0, done.stderr


def test_files_of_a_worker_count_for_its_user(apart: Brokers) -> None:
    """Quotas count by uid, and files that the worker inherited open are in the broker's directory."""
    uid, proc = uid_of(apart, "ada"), Path(f"/proc/{apart.pid('ada')}")
    writable = [
        found
        for found in (proc / "fd").iterdir()
        if found.lstat().st_mode & stat.S_IWUSR and stat.S_ISREG(found.stat().st_mode)
    ]
    assert writable, "its log at least"
    assert {found.stat().st_uid for found in writable} == {uid}


def test_each_user_has_a_share_of_the_machine(apart: Brokers) -> None:
    if "no cgroup limit on" in apart.process.stderr:
        pytest.skip("no control groups here")  # test_cgroups.py fails if they should exist
    ada, bo = groups(apart.pid("ada")), groups(apart.pid("bo"))
    assert {group.name for group in ada} == {"ada"}
    assert {group.name for group in bo} == {"bo"}
    assert {group.parent for group in ada} == {group.parent for group in bo}
    limits = [
        path.read_text()
        for group in ada
        for path in group.glob("memory.*")
        if path.name.endswith(("max", "limit_in_bytes"))
    ]
    assert f"{4096 * 2**20}\n" in limits


@as_root
def test_no_process_of_a_user_above_the_disk_quota_keeps_running(tmp_path: Path, homes: Path) -> None:
    settings = {"homes": str(homes), "user_disk_mb": 20}
    with Brokers(tmp_path / "h", "ada", "bo", python=interpreter(), **settings) as broker:
        with broker.http("ada") as http:
            assert text(ask(http, "hello")) == "You said: hello"
        target, filler = broker.places.user("ada") / "work" / "film", uid_of(broker, "ada")
        left = background(filler, f"open({str(target)!r}, 'wb').write(os.urandom({25 * 2**20}))\ntime.sleep(600)")
        other = background(uid_of(broker, "bo"))
        try:
            assert left.wait(60) == -signal.SIGKILL
            broker.wait_asleep("ada")
            assert other.poll() is None
            with broker.http("bo") as http:
                assert text(ask(http, "hello")) == "You said: hello"
        finally:
            for one in (left, other):
                one.kill()
                one.wait()


def test_no_process_of_a_removed_user_keeps_running(apart: Brokers) -> None:
    left = {name: background(uid_of(apart, name)) for name in ("ada", "bo")}
    try:
        apart.run("remove", "ada")

        assert left["ada"].wait() == -signal.SIGKILL
        assert left["bo"].poll() is None
        apart.wait_asleep("ada")
        with apart.http("bo") as http:
            assert text(ask(http, "still here?")) == "You said: still here?"
    finally:
        for one in left.values():
            one.kill()
            one.wait()


def test_an_interrupted_removal_is_completed(apart: Brokers) -> None:
    """The user is removed from the file, and then the command and the broker are killed."""
    left = {name: background(uid_of(apart, name)) for name in ("ada", "bo")}
    try:
        apart.kill()
        Users(apart.places.users).remove("ada")
        apart.restart()

        assert left["ada"].wait(60) == -signal.SIGKILL
        assert left["bo"].poll() is None
        assert apart.state("ada") is None
        assert apart.state("bo") is not None
    finally:
        for one in left.values():
            one.kill()
            one.wait()


def test_root_may_have_a_strict_umask(tmp_path: Path) -> None:
    places = BrokerPaths(tmp_path / "srv" / "holdfast" / "broker", tmp_path / "some" / "homes")
    before = os.umask(0o077)
    try:
        places.prepare()
    finally:
        os.umask(before)

    passages = (places.homes, places.homes.parent, places.broker.parent, places.broker.parent.parent)
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in passages} == {0o711 if os.geteuid() == 0 else 0o700}
    assert stat.S_IMODE(places.broker.stat().st_mode) == 0o700


@as_root
def test_two_concurrent_kills_of_a_user_do_not_fail() -> None:
    uid = uids.first_free_uid(BrokerSettings(), None)
    assert uid is not None
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            left = background(uid)
            list(pool.map(uids.kill_processes, [uid] * 4))
            assert left.wait() == -signal.SIGKILL


@as_root
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_user_cannot_kill_the_process_that_ends_theirs(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(
        uids,
        "KILL_SCRIPT",
        uids.KILL_SCRIPT.replace("try:\n    os.kill", "__import__('time').sleep(1)\ntry:\n    os.kill"),
    )
    monkeypatch.setattr(uids, "TRIES", 1)
    uid = uids.first_free_uid(BrokerSettings(), None)
    assert uid is not None
    left = background(uid, f"while True:\n    os.kill(-1, {number:d})\n    time.sleep(0.01)")
    try:
        uids.kill_processes(uid)
        assert left.wait() == -signal.SIGKILL
    finally:
        left.kill()
        left.wait()


def background(uid: int, action: str = "time.sleep(600)") -> "subprocess.Popen[bytes]":
    """As a tool may leave it: it ignores SIGTERM."""
    code = f"import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint(flush=True)\n{action}"
    found = subprocess.Popen(
        ("/usr/bin/python3", "-I", "-c", code), user=uid, group=uid, extra_groups=[], cwd="/", stdout=subprocess.PIPE
    )
    assert found.stdout is not None
    assert found.stdout.readline() == b"\n"
    found.stdout.close()
    return found
