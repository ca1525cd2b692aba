"""Installations of the wheel, as a user makes them: with an environment of its own and nothing of this repository."""

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging import podman
from tests.packaging.wheelhouse import build_wheel, pack_dependencies


@dataclass(frozen=True)
class Wheels:
    own: Path
    folder: Path
    """Contains the wheels of the dependencies, and our own."""


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    folder = tmp_path_factory.mktemp("wheels")
    folder.chmod(0o755)  # users of containers read it, too
    own = build_wheel(folder)
    pack_dependencies(folder)
    return Wheels(own, folder)


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image of Debian with Python."""
    name = podman.make_base(tmp_path_factory.mktemp("debian"))
    yield name
    podman.podman("rmi", "-f", name)


@pytest.fixture
def user(tmp_path: Path, wheels: Wheels) -> "User":
    return User(tmp_path / "user", wheels)


class User:
    """A user without a key, whose installers find packages in the wheelhouse only."""

    def __init__(self, home: Path, wheels: Wheels) -> None:
        self.home = home
        home.mkdir()
        self.env = {
            "HOME": str(home),
            "PATH": os.pathsep.join(("/usr/bin", "/bin")),
            "LANG": "C.UTF-8",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels.folder),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_COMPILE": "1",
            "UV_OFFLINE": "1",
            "UV_NO_INDEX": "1",
            "UV_FIND_LINKS": str(wheels.folder),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_PYTHON": sys.executable,
            "PIPX_DEFAULT_PYTHON": sys.executable,
        }

    def run(self, *command: str | Path, check: bool = True, **env: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [str(word) for word in command],
            env={**self.env, **env},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done


@pytest.fixture
def installed(user: User, wheels: Wheels) -> Path:
    """Creates a clean virtual environment with the wheel; returns the path of `holdfast` in it."""
    folder = user.home / "venv"
    venv.create(folder, symlinks=True)
    user.run(sys.executable, "-m", "uv", "pip", "install", "--python", folder / "bin" / "python", wheels.own)
    return folder / "bin" / "holdfast"
