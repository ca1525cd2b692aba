"""`holdfast model`: embedded models and their files."""

import click

from holdfast.cli import context, render
from holdfast.cli.parsing.groups import SuggestingGroup
from holdfast.cli.progress import show_progress
from holdfast.installation import command_to_add
from holdfast.providers.local import download, models


@click.group(cls=SuggestingGroup)
def model() -> None:
    """Manage embedded models."""


@model.command("list")
@context.json_option
def list_(as_json: bool) -> None:
    """List known models and downloaded files."""
    found = models.list_models(context.settings().home)
    if as_json:
        render.print_json({"models": [_shape(item) for item in found]})
        return
    rows = [
        [
            item.name,
            render.format_size(item.size),
            str(item.path or "not downloaded"),
            item.licence,
            str(item.context or ""),
        ]
        for item in found
    ]
    render.print_table(["name", "size", "file", "licence", "context"], rows, stretch=2)


def _shape(item: models.ModelFile) -> dict[str, object]:
    path = None if item.path is None else str(item.path)
    return {"name": item.name, "size": item.size, "path": path, "licence": item.licence, "context": item.context}


@model.command()
@click.argument("name")
def pull(name: str) -> None:
    """Download a model and verify its hash."""
    with show_progress(f"downloading {name}") as update:
        path = download.pull(context.settings().home, name, update)
    render.print_text(f"Downloaded {name} to {path}. Use it as model local:{name}.")
    if not models.is_engine_installed():
        context.note(f"The engine of embedded models is not installed; run: {command_to_add('local')}")
