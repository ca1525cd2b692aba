"""The names of the public interface: commands and options, routes and fields, settings, error codes, metrics.

In a checkout of a version, `python -m tests.migrations.interface FILE` writes its names to a file for `samples/`.
"""

import gzip
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.cli.errors import EXIT
from holdfast.config import ENVIRONMENT
from holdfast.settings import list_setting_names
from holdfast.slash.registry import BY_NAME
from tests.migrations.sample import Program
from tests.test_docs import commands, options

KEY = "a key of sixteen characters"


def describe(user: Path) -> dict[str, Any]:
    """Every name, as the key of an object: so what is added later disturbs no comparison."""
    program = Program(user)
    program.home.mkdir(parents=True)
    (program.home / "config.toml").write_text(f'model = "scripted:echo"\n[api]\nkey = "{KEY}"\n')
    line = [sys.executable, "-m", "holdfast", "serve", "--port", "0"]
    with subprocess.Popen(line, env=program.environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = next(word.strip(";,.") for word in server.stdout.readline().split() if word.startswith("http"))
            document = json.loads(_get(f"{address}/openapi.json"))
            metrics = _get(f"{address}/metrics").splitlines()
        finally:
            server.terminate()
    return {
        "commands": {" ".join(words): names(options(command)) for words, command in commands()},
        "routes": {
            f"{method} {path}": names(one["name"] for one in operation.get("parameters", ()))
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        },
        "fields": names(_fields(document)),
        "settings": names(list_setting_names()),
        "environment": dict(ENVIRONMENT),
        "exit_codes": dict(EXIT),
        "slash_commands": names(BY_NAME),
        "metrics": names(line.split()[2] for line in metrics if line.startswith("# TYPE")),
    }


def names(found: Iterable[str]) -> dict[str, bool]:
    return dict.fromkeys(sorted(found), True)


def _fields(document: dict[str, Any]) -> set[str]:
    """The JSON keys of requests and responses, by the operation that has them."""
    found = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for part in ("requestBody", "responses"):
                found |= {f"{method} {path} {part}: {name}" for name in _keys(document, operation.get(part, {}), ())}
    return found


def _keys(document: dict[str, Any], node: Any, seen: tuple[str, ...]) -> set[str]:
    """Every property below a node, references followed once on the way."""
    if isinstance(node, list):
        return {name for one in node for name in _keys(document, one, seen)}
    if not isinstance(node, dict):
        return set()
    found = set(node["properties"]) if isinstance(node.get("properties"), dict) else set()
    reference = node.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        target = document
        for name in reference.removeprefix("#/").split("/"):
            target = target[name]
        found |= _keys(document, target, (*seen, reference))
    return found | {name for key, one in node.items() if key != "$ref" for name in _keys(document, one, seen)}


def _get(url: str) -> str:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(describe(Path(folder)), indent=1, sort_keys=True)
    Path(sys.argv[1]).write_bytes(gzip.compress(text.encode(), mtime=0))
