"""Finds the shell that runs commands."""

import shutil
from pathlib import Path

SHELL = Path("/bin/bash")
"""Where almost every system has it. Termux has no /bin."""


def find_shell() -> str:
    """The path of bash. If it is not installed, the usual path, so that the error of starting it names that."""
    return str(SHELL) if SHELL.exists() else shutil.which("bash") or str(SHELL)
