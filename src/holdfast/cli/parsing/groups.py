"""Groups of commands: an unknown command is answered with similar names, and a module is imported only for its command."""

import difflib
from collections.abc import Mapping, Sequence
from importlib import import_module

import click

NEAREST = 3
SIMILARITY = 0.6
SUMMARY_CHARACTERS = 120
"""Summaries in a list of commands are wrapped, never cut."""


def similar_commands(name: str, known: Sequence[str]) -> list[str]:
    """The commands that the user may have meant."""
    return difflib.get_close_matches(name, known, NEAREST, SIMILARITY)


class SuggestingGroup(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            similar = similar_commands(name, self.list_commands(ctx))
            hint = f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""
            raise click.UsageError(f"No such command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(SUMMARY_CHARACTERS)) for name, command in commands if command]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class LazyGroup(SuggestingGroup):
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
