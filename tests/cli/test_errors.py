"""One clear sentence on standard error and the documented exit status, whatever the input."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from holdfast.cli.errors import EXIT
from holdfast.model.errors import HoldfastError, Invalid
from holdfast.settings import mask_password
from holdfast.store.postgres.connection import connect, redact_url
from tests.cli.conftest import ENVIRONMENT, Holdfast
from tests.cli.seed import Seed
from tests.crash.programs import wait_until

STATUSES = {0, 1, 2, 3, 4, 5, 130}


def every(cls: type[HoldfastError]) -> set[type[HoldfastError]]:
    return {cls}.union(*(every(sub) for sub in cls.__subclasses__()))


def test_every_named_error_has_an_exit_status() -> None:
    assert {error.code for error in every(HoldfastError)} == EXIT.keys()
    assert set(EXIT.values()) <= STATUSES


def sentence(err: str) -> str:
    """The one line that was printed."""
    assert err.startswith("holdfast: ") and err.count("\n") == 1, err
    return err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("sessions", "show", "nonsense"), 3, "no session has the id, alias or title 'nonsense'"),
        (("sessions", "show", ""), 3, "no session has"),
        (("sessions", "show", "hf-00000000000000000000"), 3, "no session has"),
        (("sessions", "show", "\x1b[31m\udcff"), 3, "no session has"),
        (("sessions", "rename", "{id}", ""), 2, "a title needs at least one visible character"),
        (("sessions", "rename", "{id}", " \n\x1b "), 2, "a title needs at least one visible character"),
        (("sessions", "fork", "{id}", "--at", "99"), 2, "it cannot be forked at 99"),
        (("sessions", "list", "--cursor", "garbage"), 2, "invalid cursor"),
        (("sessions", "list", "--cursor", "Ä"), 2, "invalid cursor"),
        (("sessions", "list", "--all", "--cursor", "x"), 2, "--all and --cursor cannot be used together"),
        (("sessions", "list", "--limit", "0"), 2, "--limit"),
        (("sessions", "list", "--state", "asleep"), 2, "asleep"),
        (("sessions", "export"), 2, "give a session or --all"),
        (("sessions", "export", "--all"), 2, "--all needs --out"),
        (("sessions", "export", "{id}", "--json"), 2, "--json needs --out"),
        (("sessions", "export", "{id}", "--out", "{tmp}"), 2, "is a directory"),
        (("sessions", "export", "{id}", "--out", "{tmp}/no/such/folder"), 2, "No such file or directory"),
        (("sessions", "export", "--all", "--out", "{tmp}/file"), 2, "is a file"),
        (("sessions", "import", "{tmp}/nothing"), 3, "no file or folder"),
        (("sessions", "import", "{tmp}/empty"), 1, "is empty"),
        (("sessions", "import", "{tmp}/file"), 1, "is not an export of Holdfast"),
        (("sessions", "import"), 2, "Missing argument"),
        (("sessions", "delete"), 2, "Missing argument"),
        (("sessions", "frobnicate"), 2, "No such command 'frobnicate'"),
        (("frobnicate",), 2, "No such command 'frobnicate'"),
        (("sessions", "list", "--frobnicate"), 2, "--frobnicate"),
        (("backup", "{tmp}"), 2, "is a directory"),
        (("backup", "{tmp}/file"), 2, "already exists"),
        (("backup", "{tmp}/no/such/folder/b.db"), 2, "No such file or directory"),
        (("restore", "{tmp}/nothing"), 3, "there is no file"),
        (("restore", "{tmp}"), 2, "is not a file"),
        (("restore", "{tmp}/empty", "--replace"), 2, "is empty"),
        (("restore", "{tmp}/file", "--replace"), 1, "cannot be restored"),
    ],
)
def test_invalid_input_gets_one_sentence(
    *, holdfast: Holdfast, seed: Seed, tmp_path: Path, args: tuple[str, ...], code: int, says: str
) -> None:
    session_id = seed.session()
    (tmp_path / "empty").touch()
    (tmp_path / "file").write_text("no store, no log\n" * 100)

    ran = holdfast(*(arg.format(id=session_id, tmp=tmp_path) for arg in args))

    assert (ran.code, ran.out) == (code, "")
    assert says in (ran.err if "--json" in args else sentence(ran.err))
    assert holdfast("sessions", "verify").code == 0


def test_an_ambiguous_prefix_lists_the_candidates(holdfast: Holdfast, seed: Seed) -> None:
    first, second = seed.sessions(2)
    prefix = first[: next(n for n in range(len(first)) if first[n] != second[n])]

    ran = holdfast("sessions", "show", prefix)

    assert ran.code == 2
    assert first in sentence(ran.err) and second in ran.err


def test_an_error_is_json_with_the_json_option(holdfast: Holdfast) -> None:
    for args in (("sessions", "show", "nonsense", "--json"), ("sessions", "list", "--frobnicate", "--json")):
        ran = holdfast(*args)
        assert ran.out == ""
        assert json.loads(ran.err)["error"].keys() == {"code", "message"}


def test_a_home_that_is_a_file_is_refused(holdfast: Holdfast, home: Path) -> None:
    home.write_text("in the way")

    ran = holdfast("sessions", "list")

    assert ran.code == 2
    assert f"the home directory {home} is a file" in sentence(ran.err)


@pytest.mark.process
def test_a_home_whose_name_is_not_text_is_refused(holdfast: Holdfast, home: Path) -> None:
    ran = holdfast.process("--home", f"{home}\udcff", "sessions", "list")

    assert ran.code == 2
    assert "not valid UTF-8" in sentence(ran.err)


@pytest.mark.process
def test_a_missing_working_directory_is_named(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    ran = holdfast.process("run", "hello", before=("sh", "-c", 'rmdir "$PWD"; exec "$@"', "-"), cwd=tmp_path / "gone")

    assert ran.code == 2
    assert "the working directory no longer exists" in sentence(ran.err)


def test_a_bad_setting_stops_every_command_and_is_named(holdfast: Holdfast, home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text("[context]\nwindoww = 1\n")

    ran = holdfast("sessions", "list")

    assert ran.code == 2
    assert "context.windoww" in sentence(ran.err) and "compact_at" in ran.err


@pytest.mark.process
@pytest.mark.parametrize("command", [("sessions", "list"), ("sessions", "verify"), ("backup", "x"), ("migrate",)])
def test_an_unreachable_server_is_named_without_its_password(holdfast: Holdfast, command: tuple[str, ...]) -> None:
    ran = holdfast.process(*command, env={**ENVIRONMENT, "HOLDFAST_STORE": "postgresql://u:secret@127.0.0.1:1/db"})

    assert ran.code == 1
    assert "cannot reach postgresql://127.0.0.1:1/db" in sentence(ran.err) and "secret" not in ran.err


@pytest.mark.process
@pytest.mark.parametrize("mode", [0o000, 0o500])
def test_an_unusable_home_is_reported(holdfast: Holdfast, home: Path, mode: int) -> None:
    home.mkdir()
    home.chmod(mode)
    # Root may do everything, unless it drops its capabilities.
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"] if os.geteuid() == 0 else []
    assert not drop or shutil.which("setpriv"), "setpriv is not installed (scripts/system-packages installs it)"

    ran = holdfast.process("sessions", "list", before=drop)
    home.chmod(0o700)

    assert ran.code in (2, 5)
    assert str(home) in sentence(ran.err) and "Permission denied" in ran.err


def test_a_store_that_is_not_a_database_is_left_unchanged(holdfast: Holdfast, home: Path) -> None:
    home.mkdir()
    (home / "holdfast.db").write_bytes(b"something else entirely " * 1000)

    ran = holdfast("sessions", "list")

    assert ran.code == 1
    assert "is damaged" in sentence(ran.err)
    assert (home / "holdfast.db").read_bytes() == b"something else entirely " * 1000


@pytest.mark.process
def test_an_interrupt_ends_with_130_and_without_a_traceback(holdfast: Holdfast, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "never")
    process = subprocess.Popen(
        holdfast.command("sessions", "import", str(tmp_path / "never")),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with (tmp_path / "never").open("wb"):  # returns once the command opens the pipe
        # Python notices a signal that arrives just before a blocking read only after it.
        wait_until(lambda: "pipe_read" in Path(f"/proc/{process.pid}/wchan").read_text(), "the command reads")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)

    assert process.returncode == 130
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@h/db?password=TOPSECRET&sslmode=require",
        "postgresql://u@h/db?sslpassword=TOPSECRET",
        "postgresql://u:TOPSECRET@h/db",
        "postgresql://u:a/TOPSECRET@h/db",
        "postgresql://u:a?TOPSECRET@h/db",
        "postgresql://u:a@TOPSECRET@h/db",
    ],
)
def test_no_spelling_of_a_password_is_shown(url: str) -> None:
    assert "TOPSECRET" not in mask_password(url) + redact_url(url)
    assert "@h" in mask_password(url)


def test_an_invalid_url_is_named_without_its_password() -> None:
    with pytest.raises(Invalid) as refused:
        connect("postgresql://u:TOP%zzSECRET@h/db")
    assert "SECRET" not in str(refused.value)


@pytest.mark.process
def test_a_daemon_may_have_closed_the_standard_streams(holdfast: Holdfast, seed: Seed) -> None:
    seed.session()
    command = " ".join(holdfast.command("sessions", "list"))

    assert subprocess.run(["sh", "-c", f"exec {command} <&- >&- 2>&-"], env=ENVIRONMENT, check=False).returncode == 0
