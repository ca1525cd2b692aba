"""`holdfast serve --install` writes a unit that systemd accepts. These tests run without a service manager."""

import stat
import subprocess
from pathlib import Path

import pytest

from holdfast.cli.service import unit as systemd_unit
from tests.cli.conftest import ENVIRONMENT, Holdfast, Ran

pytestmark = pytest.mark.process


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    return tmp_path / "config" / "systemd" / "user" / "holdfast.service"


@pytest.fixture
def serve(holdfast: Holdfast, tmp_path: Path):
    """`holdfast serve` of a user whose units are in a temporary directory."""

    def serve(*options: str, home: Path | None = None, **env: str) -> Ran:
        where = ("--home", str(home)) if home else ()
        environment = {**ENVIRONMENT, "XDG_CONFIG_HOME": str(tmp_path / "config"), **env}
        return holdfast.process("serve", *options, *where, env=environment)

    return serve


def verify(unit: Path, tmp_path: Path) -> str:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(unit)],
        env={**ENVIRONMENT, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr}"


def test_install_writes_a_valid_unit_and_names_the_next_step(serve, unit, home, tmp_path):
    ran = serve("--install", "--port", "8500", "--host", "::1")

    assert ran.code == 0, ran.err
    text = unit.read_text()
    assert f"Wrote {unit}" in ran.out and text.strip() in ran.out, "it shows what it wrote"
    assert "systemctl --user enable --now holdfast.service" in ran.out
    assert '"serve" "--host" "::1" "--port" "8500"\n' in text
    assert f'"HOLDFAST_HOME={home}"' in text
    assert stat.S_IMODE(unit.stat().st_mode) == 0o600
    assert verify(unit, tmp_path) == ""


def test_installing_twice_changes_nothing_and_other_options_replace_the_unit(serve, unit):
    serve("--install")
    before = unit.stat()

    again = serve("--install")
    assert f"Unchanged: {unit}" in again.out
    assert unit.stat().st_mtime_ns == before.st_mtime_ns

    assert f"Wrote {unit}" in serve("--install", "--processes", "2").out
    assert '"--processes" "2"' in unit.read_text()
    assert [path.name for path in unit.parent.iterdir()] == [unit.name]


def test_a_unit_of_someone_else_or_of_another_home_is_not_replaced(serve, unit, tmp_path):
    serve("--install")
    before = unit.read_text()

    other = serve("--install", home=tmp_path / "other")
    assert other.code == 1 and "another home" in other.err
    assert unit.read_text() == before

    unit.write_text("[Service]\nExecStart=/bin/true\n")
    assert serve("--install").code == 1
    assert serve("--uninstall").code == 1
    assert unit.read_text().startswith("[Service]")


def test_uninstall_removes_the_unit_and_says_so(serve, unit, home):
    serve("--install")

    ran = serve("--uninstall")
    assert ran.code == 0 and f"Removed {unit}" in ran.out
    assert not unit.exists()
    assert serve("--uninstall").code == 3


def test_keys_of_the_shell_are_named_with_the_file_that_the_service_reads(serve, unit, home):
    ran = serve("--install", OPENAI_API_KEY="sk-of-this-shell")

    assert f"OPENAI_API_KEY to {home / 'service.env'}" in ran.out
    assert "sk-of-this-shell" not in ran.out + ran.err + unit.read_text()


def test_a_home_with_special_characters_is_escaped(tmp_path):
    unit = tmp_path / "holdfast.service"
    systemd_unit.write(
        unit, systemd_unit.make_unit(Path('/a b/"c\\d"/%h$e'), ["/bin/sh", "$x", "100%", '"'], no_new_privileges=True)
    )

    assert verify(unit, tmp_path) == ""
    assert '"HOLDFAST_HOME=/a b/\\"c\\\\d\\"/%%h$e"' in unit.read_text()
    assert 'ExecStart="/bin/sh" "$$x" "100%%" "\\""' in unit.read_text()


@pytest.mark.parametrize(
    "options", [("--install", "--uninstall"), ("--install", "--fd", "3")], ids=["both", "inherited socket"]
)
def test_options_that_exclude_each_other_are_refused(serve, unit, options):
    assert serve(*options).code == 2
    assert not unit.exists()
