"""With a uid of their own, the tools of one user can do nothing to another. Only root can give out uids."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from holdfast.broker import admin
from holdfast.config import read
from holdfast.model.errors import Invalid
from tests.api.serving import ask, text
from tests.broker.brokers import Brokers
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


@cache
def interpreter() -> tuple[str, ...] | None:
    """A way to run this program that somebody without rights has, too: root's own may lie in root's home."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (sys.executable, shutil.which(version, path="/usr/local/bin:/usr/bin")):
        command = ("/usr/bin/env", f"PYTHONPATH={ROOT / 'src'}:{packages}", str(python), "-P")
        if python is not None and as_stranger(*command, "-c", "import holdfast.serve").returncode == 0:
            return command
    return None


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
    elif (found := interpreter()) is not None:
        with tempfile.TemporaryDirectory() as home:
            os.chown(home, STRANGER, STRANGER)
            Path(home, "config.toml").write_text(config)
            done = as_stranger(*found, "-m", "holdfast", "--home", home, "broker", "add", "ada")
        assert done.returncode == 2
        assert "only root can do" in done.stderr


def test_a_program_that_the_uid_cannot_reach_is_found_out_beforehand(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        return  # nobody gets as far as that
    (tmp_path / "config.toml").write_text(f"[broker]\nfirst_uid = {UID}\n")  # the tests' own folder is root's alone
    with pytest.raises(Invalid, match=f"uid {UID} cannot"):
        admin.add(read({}, tmp_path), "ada", None, 1)

    assert not (tmp_path / "users" / "ada").exists()
    assert admin.look(read({}, tmp_path)) == (None, [])


def test_users_with_uids_are_strangers_to_each_other(tmp_path: Path, homes: Path) -> None:
    python = interpreter() if os.geteuid() == 0 else None
    if python is None:  # then nobody gets a uid at all
        (tmp_path / "config.toml").write_text(f'[broker]\nfirst_uid = {UID}\nhomes = "{homes}"\n')
        with pytest.raises(Invalid):
            admin.add(read({}, tmp_path), "ada", None, 1)
        return
    with Brokers(tmp_path / "h", "ada", "bo", python=python, homes=str(homes), first_uid=UID) as broker:
        for name in ("ada", "bo"):
            with broker.http(name) as http:
                assert text(ask(http, "hello")) == "You said: hello"
        for number, (name, other) in enumerate((("ada", "bo"), ("bo", "ada"))):
            uid, status = UID + number, Path(f"/proc/{broker.pid(name)}/status").read_text()
            assert re.search(rf"^Uid:\t{uid}\t{uid}\t{uid}\t{uid}$", status, re.MULTILINE)
            assert re.search(rf"^Gid:\t{uid}\t{uid}\t{uid}\t{uid}$", status, re.MULTILINE)
            assert re.search(r"^Groups:\s*$", status, re.MULTILINE)
            assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
            assert re.search(r"Max processes\s+512\s", Path(f"/proc/{broker.pid(name)}/limits").read_text())
            target = (broker.places.user(other) / "home", broker.places.run(other) / "sock", broker.pid(other))
            done = as_stranger(*python, "-c", TRY, *map(str, target), uid=uid)
            assert done.returncode == 0, done.stderr
