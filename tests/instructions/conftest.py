"""Skills on disk."""

from collections.abc import Callable
from pathlib import Path

import pytest

MakeSkill = Callable[..., Path]


@pytest.fixture
def make_skill() -> MakeSkill:
    """Write a skill into a directory of skills; returns its own directory."""

    def make(folder: Path, name: str, description: str = "Fills forms.", *, body: str = "Do it.", **files: str) -> Path:
        skill = folder / name
        skill.mkdir(parents=True, exist_ok=True)
        (skill / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\n{body}\n")
        for file, text in files.items():
            path = skill / file.replace("__", "/").replace("_sh", ".sh")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return skill

    return make


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a directory in it."""
    (tmp_path / "project/.git").mkdir(parents=True)
    (tmp_path / "project/deep/er").mkdir(parents=True)
    return tmp_path / "project"
