"""The root command: global options, the table of commands, and the one place that turns errors into exit codes."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from holdfast import __version__
from holdfast.cli import errors, render
from holdfast.cli.context import CliContext
from holdfast.cli.parsing import arguments
from holdfast.cli.parsing.groups import LazyGroup, similar_commands
from holdfast.cli.parsing.non_empty_types import PATH
from holdfast.model.errors import HoldfastError

log = logging.getLogger(__name__)

COMMANDS = {
    "chat": "chat.command:chat",
    "run": "run:run",
    "serve": "serve:serve",
    "sessions": "sessions.list:sessions",
    "stats": "sessions.usage_stats:stats",
    "why": "workers:why",
    "questions": "questions:questions",
    "skills": "skills:skills",
    "ps": "ps:ps",
    "compact": "compact:compact",
    "gateway": "gateway:gateway",
    "memory": "memory:memory",
    "cron": "cron:cron",
    "batch": "batch:batch",
    "broker": "broker:broker",
    "mcp": "mcp:mcp",
    "acp": "acp:acp",
    "workers": "workers:workers_",
    "janitor": "workers:janitor",
    "backup": "store:backup",
    "restore": "store:restore",
    "migrate": "store:migrate",
    "doctor": "doctor:doctor",
    "torture": "torture:torture_",
    "model": "model:model",
    "completion": "parsing.completion:completion",
    "mcp-login": "mcp_login:mcp_login",
    "mcp-logout": "mcp_login:mcp_logout",
}


class RootGroup(LazyGroup):
    """Besides commands, one word may be a prompt that was meant for the chat."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not similar_commands(name, list(COMMANDS)):
            raise click.UsageError(f"No such command {name!r}; to send it as a prompt: holdfast chat {name!r}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=RootGroup,
    lazy=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--home",
    metavar="DIR",
    type=PATH,
    help="Directory for all data. Overrides HOLDFAST_HOME. Accepted anywhere on the command line. [~/.holdfast]",
)
@click.version_option(__version__, prog_name="holdfast", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, home: Path | None) -> object:
    """An AI agent whose sessions survive kill -9, power loss and full disks.

    \b
    holdfast               open a chat
    holdfast "PROMPT"      open a chat and send PROMPT
    holdfast --continue    resume the last chat in this directory
    holdfast -p "PROMPT"   run one turn and print the reply
    """
    ctx.obj = CliContext(home, owns_process=ctx.obj is not None)
    if ctx.invoked_subcommand is None:
        from holdfast.cli.chat.command import chat

        return ctx.invoke(chat)
    return None


def _replace_closed_streams() -> None:
    """Open /dev/null for standard streams that a daemon closed, so that no file gets their descriptors and no write fails."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - stays open


def main(args: Sequence[str], *, owns_process: bool = False) -> int:
    """Run one command line and return its exit status. Every known failure is reported as one line on standard error.

    `owns_process` says that this process only runs this command, so its environment may be changed.
    """
    as_json = arguments.wants_json(args)
    _replace_closed_streams()
    # Text from a model or a tool must be printable in any locale.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # they are text files here
    try:
        options: dict[str, Any] = {"obj": owns_process} if owns_process else {}
        status = cli.main(arguments.normalize(args, COMMANDS), prog_name="holdfast", standalone_mode=False, **options)
        render.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        return errors.INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as e:
        click.echo(e.message, err=True)  # the help
        return errors.USAGE
    except click.UsageError as e:
        _report(args, "invalid", _usage_message(e), as_json=as_json)
        return errors.USAGE
    except HoldfastError as e:
        _report(args, e.code, str(e), as_json=as_json)
        return errors.exit_code(e)
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        render.discard_output()
        return errors.FAILED
    except Exception:
        log.exception("internal error in holdfast %s", " ".join(args[:2]))
        raise
    return status if isinstance(status, int) else errors.DONE


def _report(args: Sequence[str], code: str, message: str, *, as_json: bool) -> None:
    """Report an error on standard error; a stream of JSON lines also ends with it."""
    if arguments.output_format(args) == "stream-json":
        from holdfast.cli.turn_documents import print_failed_result

        print_failed_result(code, message)
    errors.report(code, message, as_json=as_json)


def _usage_message(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx else "holdfast"
    said = error.format_message().rstrip(".")
    for kind, plain in (("a valid integer range", "an integer"), ("a valid float range", "a number")):
        said = said.replace(f"is not {kind}", f"is not {plain}")
    return f"{said}{' See' if said.endswith('?') else '; see'} '{command} --help'"
