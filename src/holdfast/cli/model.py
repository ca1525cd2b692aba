"""`holdfast model`: the models that run inside Holdfast, and their files."""

import click

from holdfast.cli import face, render
from holdfast.providers import models


@click.group()
def model() -> None:
    """Models that run on this machine, inside Holdfast."""


@model.command("list")
@face.json_option
def list_(as_json: bool) -> None:
    """The models known by name, and the files that are here."""
    found = models.list_models(face.settings().home)
    if as_json:
        render.document({"models": [_shape(item) for item in found]})
        return
    rows = [
        [item.name, render.size(item.size), str(item.path or "not here"), item.licence, str(item.context or "")]
        for item in found
    ]
    render.table(["name", "size", "file", "licence", "context"], rows, stretch=2)


def _shape(item: models.ModelFile) -> dict[str, object]:
    path = None if item.path is None else str(item.path)
    return {"name": item.name, "size": item.size, "path": path, "licence": item.licence, "context": item.context}


@model.command()
@click.argument("name")
def pull(name: str) -> None:
    """Fetch the file of a model, checked by its hash."""
    with render.progress(f"fetching {name}") as update:
        path = models.pull(face.settings().home, name, update)
    render.out(f"{name} is at {path}; use it as local:{name}")
