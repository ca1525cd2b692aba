"""Installs and removes the systemd user service of the server."""

import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast import config
from holdfast.cli import context, render
from holdfast.cli.service import unit
from holdfast.cli.service.unit import NAME
from holdfast.installation import find_installer
from holdfast.model.errors import Invalid
from holdfast.settings import Settings

START = f"systemctl --user daemon-reload && systemctl --user enable --now {NAME}"
STOP = f"systemctl --user disable --now {NAME}"
MODEL_KEYS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY")


def install(settings: Settings, options: Sequence[str]) -> None:
    """Write the unit, show it, and start the service; without a running service manager, print the command that does.

    Repeating it changes nothing. `options` are those of `serve`.
    """
    _require_linux()
    if find_installer(Path(sys.prefix)) == "uvx":
        raise Invalid("uvx runs Holdfast from a temporary environment; install it first: uv tool install holdfast")
    path = _unit_path()
    text = unit.make_unit(
        settings.home,
        [sys.executable, "-P", "-m", "holdfast", "serve", *options],
        no_new_privileges=not unit.has_setuid_sandbox(),
    )
    is_new = unit.write(path, text)
    render.print_text(f"{'Wrote' if is_new else 'Unchanged:'} {path}")
    render.print_text(text.rstrip())
    if not unit.is_manager_running():
        render.print_text(f"The service manager of this user is not running here. To start the service, run: {START}")
    else:
        _start(is_new=is_new)
    _print_hints(settings.home)


def _start(*, is_new: bool) -> None:
    unit.control("daemon-reload")
    unit.control("enable", NAME)
    unit.control("restart" if is_new else "start", NAME)
    render.print_text(
        f"The service runs. Its state: systemctl --user status {NAME}; its log: journalctl --user -u {NAME}"
    )


def _print_hints(home: Path) -> None:
    render.print_text("To keep it running when you are logged out, run: loginctl enable-linger")
    given = [name for name in MODEL_KEYS if config.environment().get(name)]
    file = unit.environment_file(home)
    if given and not file.exists():
        render.print_text(
            f"The service does not see the variables of this shell. Write {', '.join(given)} to {file} (chmod 600), "
            f"one NAME=VALUE per line, and run: systemctl --user restart {NAME}"
        )


def uninstall() -> None:
    """Stop and disable the service and remove its unit."""
    _require_linux()
    path = _unit_path()
    is_running = unit.is_manager_running()
    unit.require_own(path)
    if is_running:
        unit.control("disable", "--now", NAME)
    path.unlink()
    if is_running:
        unit.control("daemon-reload")
    render.print_text(f"Removed {path}. Sessions and settings are unchanged.")
    if not is_running:
        context.note(f"The service manager of this user is not running here; if the service still runs, run: {STOP}")


def _unit_path() -> Path:
    return unit.unit_folder(config.environment()) / NAME


def _require_linux() -> None:
    if not sys.platform.startswith("linux"):
        raise Invalid("the service is a systemd user unit, which exists on Linux only; start `holdfast serve` yourself")
