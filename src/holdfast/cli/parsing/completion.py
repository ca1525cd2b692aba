"""`holdfast completion`: print the script that lets a shell complete commands, options and session references."""

import click
from click.shell_completion import get_completion_class

from holdfast.cli import render

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_HOLDFAST_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell."""
    found = get_completion_class(shell)
    assert found is not None, "click has each of them"
    root = click.get_current_context().find_root().command
    render.print_text(found(root, {}, "holdfast", VARIABLE).source())
