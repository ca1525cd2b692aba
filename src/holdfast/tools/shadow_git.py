"""Runs git on a repository of Holdfast's own and the files of a directory, whatever git is used in that directory.

Nothing of the directory is executed: the configuration of the user, of the machine and of the project does not apply.
"""

import os
import shutil
import subprocess
from pathlib import Path

from holdfast.model.errors import Invalid, Unavailable

LIMIT_SECONDS = 60.0
"""For one command."""
SETTINGS = {
    "core.bare": "false",
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.autocrlf": "false",
    "core.safecrlf": "false",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.fsync": "none",
    "core.looseCompression": "1",
    "core.bigFileThreshold": "1",  # every content goes into one pack, not into a file of its own
    "advice.addEmbeddedRepo": "false",
    "submodule.recurse": "false",
    "gc.auto": "0",
}


class ShadowGit:
    """`folder` is the repository, `path` the variable PATH."""

    def __init__(self, folder: Path, worktree: Path, path: str) -> None:
        self._folder = folder
        self._worktree = worktree
        self._path = path

    def run(
        self, *arguments: str, data: bytes = b"", accepted: tuple[int, ...] = (0,), most: int | None = None
    ) -> bytes:
        """The output of a git command, of at most `most` names. Raises Unavailable if it fails, and Invalid if there are more."""
        program = shutil.which("git", path=self._path)
        if program is None:
            raise Unavailable("git is not installed")
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        try:
            done = subprocess.run(  # noqa: S603 - there is no shell, and every argument is ours
                [program, *settings, *arguments],
                cwd=self._worktree,
                env=self._environment(),
                input=data,
                capture_output=True,
                timeout=LIMIT_SECONDS,
                check=False,
            )
        except OSError as e:
            raise Unavailable(f"git could not be started in {self._worktree}: {e.strerror}") from e
        except subprocess.TimeoutExpired as e:
            raise Invalid(f"git {arguments[0]} took longer than {LIMIT_SECONDS:.0f} s") from e
        if done.returncode not in accepted:
            reason = done.stderr.decode("utf-8", "replace").strip().splitlines()
            problem = reason[-1][:300] if reason else f"exit code {done.returncode}"
            raise Unavailable(f"git {arguments[0]} failed: {problem}")
        if most is not None and done.stdout.count(b"\0") > most:
            raise Invalid(f"the working directory has more than {most:,} files")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": self._path,
            "LC_ALL": "C",
            "HOME": str(self._folder),
            "GIT_DIR": str(self._folder),
            "GIT_WORK_TREE": str(self._worktree),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
        }
