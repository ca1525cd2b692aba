"""A command group that imports the module of a command only when that command is used."""

from collections.abc import Mapping
from importlib import import_module

import click


class LazyGroup(click.Group):
    """`lazy` maps each command to `module:name`, in the order of the help."""

    def __init__(self, *args: object, lazy: Mapping[str, str], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type] # click's own parameters
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        module, _, name = self._lazy[cmd_name].partition(":")
        command = getattr(import_module(f"holdfast.cli.{module}"), name)
        assert isinstance(command, click.Command), f"{module}:{name} is a command"
        return command
