"""How Holdfast was installed, and the command that adds an extra to this installation."""

import json
import shlex
import sys
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

Installer = Literal["pipx", "uv", "uvx", "pip"]
NAME = "holdfast"


def find_installer(prefix: Path) -> Installer:
    """The program that created the environment at `prefix`. pip stands for every other environment."""
    if (prefix / "pipx_metadata.json").exists():
        return "pipx"
    if (prefix / "uv-receipt.toml").exists():
        return "uv"
    # `uvx` runs from an environment in uv's cache.
    return "uvx" if any(part.startswith("archive-v") for part in prefix.parts) else "pip"


def command_to_add(extra: str) -> str:
    """The shell command that adds an extra to this installation."""
    import importlib.metadata  # it loads the parsers of messages

    try:
        origin = importlib.metadata.distribution(NAME).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree that is not installed
        origin = None
    return make_command(find_installer(Path(sys.prefix)), sys.executable, extra, json.loads(origin or "{}"))


def make_command(installer: Installer, python: str, extra: str, origin: dict[str, object]) -> str:
    """The command, for an installation whose `direct_url.json` is `origin` (empty if it came from an index). Pure, except
    that it looks whether a local origin still exists."""
    url = str(origin.get("url", ""))
    path = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
    if path is not None and "dir_info" in origin and path.exists():
        source = f"{path}[{extra}]"
    elif url and (path is None or path.exists()):
        source = f"{NAME}[{extra}] @ {_with_vcs(url, origin)}"
    else:
        source = f"{NAME}[{extra}]"
    words = {
        "pipx": ["pipx", "install", "--force", source],
        "uv": ["uv", "tool", "install", "--force", source],
        "uvx": ["uvx", "--from", source, NAME],
        "pip": [python, "-m", "pip", "install", *(["--editable"] if _is_editable(origin) else []), source],
    }
    return shlex.join(words[installer])


def _with_vcs(url: str, origin: dict[str, object]) -> str:
    info = origin.get("vcs_info")
    return f"{info['vcs']}+{url}" if isinstance(info, dict) else url


def _is_editable(origin: dict[str, object]) -> bool:
    info = origin.get("dir_info")
    return isinstance(info, dict) and bool(info.get("editable"))
