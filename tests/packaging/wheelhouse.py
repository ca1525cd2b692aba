"""The wheel of Holdfast, and a directory with wheels of everything it needs, so that installers work without a network."""

import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent
SKIPPED = {"INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"}
"""Files that an installer writes."""


def build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    # A fixed date makes a wheel of the same sources identical.
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=env)
    [wheel] = folder.glob("*.whl")
    return wheel


def pack_dependencies(folder: Path, names: Iterable[str] = ("holdfast",)) -> None:
    """Make wheels of the installed packages that these need, without their extras."""
    packed, waiting = {"holdfast"}, list(names)
    while waiting:
        distribution = importlib.metadata.distribution(waiting.pop())
        if normalize(distribution.name) not in packed:
            packed.add(normalize(distribution.name))
            pack(distribution, folder)
        waiting += [name for name in _needed(distribution) if name not in packed]


def _needed(distribution: Distribution) -> Iterable[str]:
    for line in distribution.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield normalize(requirement.name)


def pack(distribution: Distribution, folder: Path) -> None:
    tags = re.findall(r"^Tag: (.+)$", distribution.read_text("WHEEL") or "", flags=re.MULTILINE)
    target = folder / f"{normalize(distribution.name).replace('-', '_')}-{distribution.version}-{tags[-1]}.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for file in distribution.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts and file.name not in SKIPPED:
                archive.write(str(file.locate()), str(file))


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
