import os
from pathlib import Path

import pytest

from holdfast.model.tool import ToolContext


@pytest.fixture
def scene(tmp_path: Path) -> ToolContext:
    workdir = tmp_path / "work"
    workdir.mkdir()
    return ToolContext(session_id="hf-1", turn_id="turn-1", call_id="call/1", workdir=workdir, files=tmp_path / "files")


@pytest.fixture
def search_path() -> dict[str, str]:
    return {"PATH": os.defpath}
