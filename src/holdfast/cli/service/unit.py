"""The systemd user unit of `holdfast serve`: its text, and the steps to install and remove it.

Hardening is limited to what leaves tools their work and bubblewrap its namespaces: no option restricts namespaces,
mounts, /proc or the file system. `NoNewPrivileges` is left out where `bwrap` is a setuid program, which would stop working.
"""

import re
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.model.errors import Conflict, NotFound, Unavailable

NAME = "holdfast.service"
MARK = "# Written by `holdfast serve --install`; `holdfast serve --uninstall` removes it."
HOME = re.compile(r'^Environment="HOLDFAST_HOME=(.+)"$', re.MULTILINE)
STOP_SECONDS = 90
"""More than a drain takes: 10 s for the turns and 60 s for waiting clients."""
CONTROL_SECONDS = 120.0

TEMPLATE = """{mark}
[Unit]
Description=Holdfast: API, dashboard, messaging platforms and schedules
# A server that fails is always restarted: its sessions wait for it.
StartLimitIntervalSec=0

[Service]
Type=exec
Environment="HOLDFAST_HOME={home}"
# Lines such as OPENAI_API_KEY=… The file is optional.
EnvironmentFile=-{environment}
ExecStart={command}
Restart=on-failure
RestartSec=2
TimeoutStopSec={stop_seconds}
# Background processes of sessions survive a restart of the server, and running out of memory in one of them does not stop it.
KillMode=process
OOMPolicy=continue
UMask=0077
LimitCORE=0
{no_new_privileges}
[Install]
WantedBy=default.target
"""


def unit_folder(environment: Mapping[str, str]) -> Path:
    """Where systemd looks for the units of this user."""
    configured = environment.get("XDG_CONFIG_HOME", "")
    base = Path(configured) if configured.startswith("/") else Path.home() / ".config"
    return base / "systemd" / "user"


def environment_file(home: Path) -> Path:
    """The file with variables for the service."""
    return home / "service.env"


def make_unit(home: Path, command: Sequence[str], *, no_new_privileges: bool) -> str:
    """The text of the unit. Pure."""
    return TEMPLATE.format(
        mark=MARK,
        home=_escape(str(home)),
        environment=_escape(str(environment_file(home)), quoted=False),
        command=" ".join(f'"{_escape(word, is_command=True)}"' for word in command),
        stop_seconds=STOP_SECONDS,
        no_new_privileges="NoNewPrivileges=yes\nRestrictRealtime=yes\n" if no_new_privileges else "",
    )


def _escape(text: str, *, quoted: bool = True, is_command: bool = False) -> str:
    """Protect what systemd would expand: specifiers; in quotes, quotes and backslashes; in commands, variables."""
    text = text.replace("%", "%%")
    if quoted:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return text.replace("$", "$$") if is_command else text


def has_setuid_sandbox() -> bool:
    """Whether `bwrap` gets its rights from the setuid bit."""
    program = shutil.which("bwrap")
    return program is not None and bool(Path(program).stat().st_mode & stat.S_ISUID)


def write(path: Path, text: str) -> bool:
    """Write the unit. False if it is there already, unchanged.

    Raises Conflict for a file that Holdfast did not write, and for the unit of another home.
    """
    try:
        present = path.read_text("utf-8")
    except FileNotFoundError:
        present = ""
    if present == text:
        return False
    if present:
        _check_replaceable(path, present, text)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, "utf-8")
    temporary.chmod(0o600)
    temporary.replace(path)
    return True


def _check_replaceable(path: Path, present: str, text: str) -> None:
    if not present.startswith(MARK):
        raise Conflict(f"{path} exists and was not written by Holdfast; rename it and try again")
    old, new = HOME.search(present), HOME.search(text)
    if old and new and old[1] != new[1]:
        raise Conflict(f"{path} serves another home, {old[1]}; to replace it, run first: holdfast serve --uninstall")


def require_own(path: Path) -> None:
    """Raise NotFound if there is no unit, and Conflict if Holdfast did not write it."""
    try:
        present = path.read_text("utf-8")
    except FileNotFoundError as e:
        raise NotFound(f"{path} does not exist; nothing to remove") from e
    if not present.startswith(MARK):
        raise Conflict(f"{path} was not written by Holdfast; remove it yourself")


def is_manager_running() -> bool:
    """Whether the service manager of this user can be reached."""
    if shutil.which("systemctl") is None:
        return False
    return _call("show-environment").returncode == 0


def control(*words: str) -> None:
    """Run `systemctl --user` with these arguments. Raises Unavailable with its message if it fails."""
    done = _call(*words)
    if done.returncode != 0:
        raise Unavailable(f"systemctl --user {' '.join(words)} failed: {done.stderr.strip() or done.stdout.strip()}")


def _call(*words: str) -> "subprocess.CompletedProcess[str]":
    command = ["systemctl", "--user", *words]
    try:
        # S603: there is no shell, and every argument is ours.
        return subprocess.run(command, capture_output=True, text=True, timeout=CONTROL_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as e:
        raise Unavailable(f"{' '.join(command)} did not end within {CONTROL_SECONDS:g} s") from e
