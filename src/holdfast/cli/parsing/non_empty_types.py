"""Parameter types that refuse an empty value, as an unset variable of a script leaves it. An empty path would be the working directory."""

from pathlib import Path

import click


class NonEmptyText(click.types.StringParamType):
    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(super().convert(value, param, ctx))
        return text if text else self.fail("the value is empty", param, ctx)


class NonEmptyPath(click.Path):
    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not str(value):
            self.fail("the path is empty", param, ctx)
        return Path(super().convert(value, param, ctx))  # type: ignore[arg-type] # a text or a path


TEXT = NonEmptyText()
PATH = NonEmptyPath(path_type=Path, readable=False)
