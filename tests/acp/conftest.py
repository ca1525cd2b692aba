from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the scripted model `tools`, which calls the tools that a message names."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('model = "scripted:tools"\n[agent]\ntitles = false\n')
    return home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The directory of the project."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder
