"""With a uid of their own, the tools of one user can do nothing to another. Only root can give out uids."""

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
from holdfast.broker.groups import Groups
from holdfast.broker.places import Places
from holdfast.broker.users import Users
from holdfast.config import read
from holdfast.model.errors import Invalid
from holdfast.settings import Broker
from tests.api.serving import ask, text
from tests.broker.brokers import Brokers, groups
from tests.crash.programs import ROOT

UID = 54321
STRANGER = 54320
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
    """A way to run this program that somebody without rights has, too: root's own may lie in root's home."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (sys.executable, shutil.which(version, path="/usr/local/bin:/usr/bin")):
        command = ("/usr/bin/env", f"PYTHONPATH={ROOT / 'src'}:{packages}", str(python), "-P")
        if python is not None and as_stranger(*command, "-c", "import holdfast.serve").returncode == 0:
            return command
    pytest.skip("only root's own folders hold a Python for this program")


def as_stranger(*command: str, uid: int = STRANGER) -> "subprocess.CompletedProcess[str]":
    alone = {"user": uid, "group": uid, "extra_groups": []}
    return subprocess.run(command, check=False, cwd="/", capture_output=True, text=True, **alone)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def homes() -> Iterator[Path]:
    """A place that everybody can get to; the tests' own is root's alone."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-homes-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def test_who_is_not_root_is_told_so_before_anything_is_done(tmp_path: Path) -> None:
    config = "[broker]\nfirst_uid = 54321\n"
    if os.geteuid() != 0:
        (tmp_path / "config.toml").write_text(config)
        with pytest.raises(Invalid, match="only root can do"):
            admin.add(read({}, tmp_path), "ada", None, 1)
    else:
        with tempfile.TemporaryDirectory() as home:
            os.chown(home, STRANGER, STRANGER)
            Path(home, "config.toml").write_text(config)
            done = as_stranger(*interpreter(), "-m", "holdfast", "--home", home, "broker", "add", "ada")
        assert done.returncode == 2
        assert "only root can do" in done.stderr


@as_root
def test_a_place_that_the_uid_cannot_reach_is_found_out_beforehand(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f"[broker]\nfirst_uid = {UID}\n")  # the tests' own folder is root's alone
    with pytest.raises(Invalid, match=f"uid {UID} cannot "):
        admin.add(read({}, tmp_path), "ada", None, 1)

    assert not (tmp_path / "users" / "ada").exists()
    assert admin.look(read({}, tmp_path)) == (None, [])


def test_nobody_is_given_the_uid_of_somebody_else(tmp_path: Path) -> None:
    """All that runs under it would be ended with the user."""
    other = pwd.getpwnam("nobody").pw_uid
    assert uids.obstacle(other, tmp_path).startswith(f"uid {other} is that of nobody")


def test_where_uids_were_not_asked_for_and_cannot_be_users_share_one_and_are_told(tmp_path: Path) -> None:
    user, _, warnings = admin.add(read({}, tmp_path), "ada", None, 1)

    assert user.uid is None
    (said,) = warnings
    assert "can reach each other's files, ada too" in said
    assert ("cannot" in said) if os.geteuid() == 0 else ("root" in said)
    assert "each other's files: ada" in " ".join(admin.refuse_unfit(read({}, tmp_path)))


def test_root_gives_everybody_a_uid_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    told, untold, shared = Broker(first_uid=UID), Broker(), Broker(first_uid=0)

    assert [uids.first(wanted, None) for wanted in (told, shared)] == [UID, None]
    drawn = uids.first(untold, None)
    assert drawn in uids.UNUSED
    assert uids.first(untold, 77) == 77, "the next after those it has given out"
    assert [uids.first(told, given) for given in (77, UID + 5)] == [UID, UID + 5], "not that of somebody who is there"
    assert len({uids.first(untold, None) for _ in range(20)}) > 10, "brokers that know nothing of each other"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert uids.first(untold, None) is None


def test_who_was_added_without_a_uid_is_not_served_where_each_must_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    settings = read({}, tmp_path)
    shared, told = (msgspec.structs.replace(settings, broker=Broker(first_uid=uid)) for uid in (0, UID))
    assert "without broker.first_uid = 0" in admin.add(shared, "ada", None, 1)[2][0]

    with pytest.raises(Invalid, match="added without a uid: ada"):
        admin.refuse_unfit(told)


@pytest.fixture
def apart(tmp_path: Path, homes: Path) -> Iterator[Brokers]:
    """A broker whose users, ada and bo, have uids. It leaves no control group behind."""
    if os.geteuid() != 0:
        pytest.skip("only root can give out uids")
    python = interpreter()
    with Brokers(tmp_path / "h", "ada", "bo", python=python, homes=str(homes)) as broker:
        for name in ("ada", "bo"):
            with broker.http(name) as http:
                assert text(ask(http, "hello")) == "You said: hello"
        yield broker
        broker.stop()
        found = Groups.of(broker.places.broker)
        assert not [group for group in groups(os.getpid()) if (group / found.name).exists()]


def uid_of(broker: Brokers, name: str) -> int:
    uid = Users(broker.places.users).get(name).uid
    assert uid in uids.UNUSED
    return uid


def test_users_with_uids_are_strangers_to_each_other(apart: Brokers) -> None:
    found = interpreter()
    for name, other in (("ada", "bo"), ("bo", "ada")):
        uid, status = uid_of(apart, name), Path(f"/proc/{apart.pid(name)}/status").read_text()
        assert re.search(rf"^Uid:\t{uid}\t{uid}\t{uid}\t{uid}$", status, re.MULTILINE)
        assert re.search(rf"^Gid:\t{uid}\t{uid}\t{uid}\t{uid}$", status, re.MULTILINE)
        assert re.search(r"^Groups:\s*$", status, re.MULTILINE)
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
        assert re.search(r"Max processes\s+512\s", Path(f"/proc/{apart.pid(name)}/limits").read_text())
        target = (apart.places.user(other) / "home", apart.places.run(other) / "sock", apart.pid(other))
        done = as_stranger(*found, "-c", TRY, *map(str, target), uid=uid)
        assert done.returncode == 0, done.stderr


def test_what_a_worker_can_write_to_counts_for_its_user(apart: Brokers) -> None:
    """Quotas go by uid, and files that the worker was handed open lie in the broker's folder."""
    uid, proc = uid_of(apart, "ada"), Path(f"/proc/{apart.pid('ada')}")
    writable = [
        found
        for found in (proc / "fd").iterdir()
        if found.lstat().st_mode & stat.S_IWUSR and stat.S_ISREG(found.stat().st_mode)
    ]
    assert writable, "its log at least"
    assert {found.stat().st_uid for found in writable} == {uid}


def test_each_user_has_a_share_of_the_machine(apart: Brokers) -> None:
    if "for want of a control group" in apart.process.complaints:
        pytest.skip("no control groups here")  # test_groups.py sees to it that there is a reason
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
def test_nothing_of_a_user_who_takes_too_much_of_the_disk_runs_on(tmp_path: Path, homes: Path) -> None:
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


def test_nothing_of_a_user_who_was_removed_runs_on(apart: Brokers) -> None:
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


def test_a_removal_that_was_cut_short_is_brought_to_its_end(apart: Brokers) -> None:
    """The user is gone from the file, and then the machine's administrator and the broker are killed."""
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
    places = Places(tmp_path / "srv" / "holdfast" / "broker", tmp_path / "some" / "homes")
    before = os.umask(0o077)
    try:
        places.prepare()
    finally:
        os.umask(before)

    passages = (places.homes, places.homes.parent, places.broker.parent, places.broker.parent.parent)
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in passages} == {0o711 if os.geteuid() == 0 else 0o700}
    assert stat.S_IMODE(places.broker.stat().st_mode) == 0o700


@as_root
def test_two_who_end_the_same_do_not_fail_over_each_other() -> None:
    uid = uids.first(Broker(), None)
    assert uid is not None
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            left = background(uid)
            list(pool.map(uids.end_programs, [uid] * 4))
            assert left.wait() == -signal.SIGKILL


@as_root
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_user_cannot_harm_who_ends_their_programs(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(
        uids, "END", uids.END.replace("try:\n    os.kill", "__import__('time').sleep(1)\ntry:\n    os.kill")
    )
    monkeypatch.setattr(uids, "TRIES", 1)
    uid = uids.first(Broker(), None)
    assert uid is not None
    left = background(uid, f"while True:\n    os.kill(-1, {number:d})\n    time.sleep(0.01)")
    try:
        uids.end_programs(uid)
        assert left.wait() == -signal.SIGKILL
    finally:
        left.kill()
        left.wait()


def background(uid: int, deed: str = "time.sleep(600)") -> "subprocess.Popen[bytes]":
    """As a tool of theirs leaves it: it heeds nothing."""
    code = f"import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint(flush=True)\n{deed}"
    found = subprocess.Popen(
        ("/usr/bin/python3", "-I", "-c", code), user=uid, group=uid, extra_groups=[], cwd="/", stdout=subprocess.PIPE
    )
    assert found.stdout is not None
    assert found.stdout.readline() == b"\n"
    found.stdout.close()
    return found
