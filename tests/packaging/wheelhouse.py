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
Requested = tuple[str, frozenset[str]]
"""A package and the extras that are wanted of it."""


def build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    # A fixed date makes a wheel of the same sources identical.
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=env)
    [wheel] = folder.glob("*.whl")
    return wheel


def pack_dependencies(folder: Path, names: Iterable[str] = ("holdfast",)) -> None:
    """Make wheels of the installed packages that these need."""
    seen: set[Requested] = set()
    waiting: list[Requested] = [(normalize(name), frozenset()) for name in names]
    while waiting:
        wanted = waiting.pop()
        if wanted in seen:
            continue
        distribution = importlib.metadata.distribution(wanted[0])
        if wanted[0] not in {"holdfast", *(name for name, _ in seen)}:
            pack(distribution, folder)
        seen.add(wanted)
        waiting += _needed(distribution, wanted[1])


def _needed(distribution: Distribution, extras: frozenset[str]) -> Iterable["Requested"]:
    for line in distribution.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield normalize(requirement.name), frozenset(requirement.extras)


def pack(distribution: Distribution, folder: Path) -> None:
    tags = re.findall(r"^Tag: (.+)$", distribution.read_text("WHEEL") or "", flags=re.MULTILINE)
    target = folder / f"{normalize(distribution.name).replace('-', '_')}-{distribution.version}-{tags[-1]}.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for file in distribution.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts and file.name not in SKIPPED:
                archive.write(str(file.locate()), str(file))


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
