"""The root of the command line: the global options, the table of commands, and the one place that handles errors."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from holdfast import __version__
from holdfast.cli import errors, render
from holdfast.cli.face import Face
from holdfast.cli.lazy import LazyGroup
from holdfast.model.errors import HoldfastError

log = logging.getLogger(__name__)

COMMANDS = {
    "chat": "chat.command:chat",
    "run": "run:run",
    "serve": "serve:serve",
    "sessions": "sessions:sessions",
    "why": "liveness:why",
    "ps": "ps:ps",
    "compact": "compact:compact",
    "gateway": "gateway:gateway",
    "cron": "cron:cron",
    "batch": "batch:batch",
    "broker": "broker:broker",
    "workers": "liveness:workers_",
    "janitor": "liveness:janitor",
    "backup": "copies:backup",
    "restore": "copies:restore",
    "migrate": "copies:migrate",
    "doctor": "doctor:doctor",
    "torture": "torture:torture_",
    "model": "model:model",
}

OWN_OPTIONS = ("-h", "--help", "--version")
"""What `holdfast` itself takes beside --home; `holdfast --resume` is `holdfast chat --resume`."""


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--home",
    metavar="DIR",
    type=click.Path(path_type=Path, readable=False),
    help="Where everything is kept; HOLDFAST_HOME does the same. May stand anywhere on the line. [~/.holdfast]",
)
@click.version_option(__version__, prog_name="holdfast", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, home: Path | None) -> object:
    """An AI agent whose sessions survive anything."""
    ctx.obj = Face(home)
    if ctx.invoked_subcommand is None:
        from holdfast.cli.chat.command import chat

        return ctx.invoke(chat)
    return None


def _open_closed() -> None:
    """A daemon may have closed standard streams. A file of ours must not take their numbers, nor a word to them fail."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - it stays open


def main(args: Sequence[str]) -> int:
    """Run one command line; its exit status. Every failure we can name ends as one sentence on standard error."""
    as_json = "--json" in args
    _open_closed()
    # Whatever a model or a tool wrote can be printed, in any locale.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # they are text files here
    try:
        status = cli.main(_in_order(args), prog_name="holdfast", standalone_mode=False)
        render.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        return errors.INTERRUPTED
    except click.UsageError as e:
        errors.tell("invalid", _usage(e), as_json=as_json)
        return errors.USAGE
    except HoldfastError as e:
        errors.tell(e.code, str(e), as_json=as_json)
        return errors.exit_code(e)
    except BrokenPipeError:  # the reader has what it wanted
        render.give_up()
        return errors.FAILED
    except Exception:
        log.exception("holdfast %s failed in a way nobody thought of", " ".join(args[:2]))
        raise
    return status if isinstance(status, int) else errors.DONE


def _in_order(args: Sequence[str]) -> list[str]:
    """`--home DIR` to the front, so that it may stand behind the command too, and `--json` behind the command that it is for.

    Other options without a command are the chat's. Nothing behind `--` is touched.
    """
    end = args.index("--") if "--" in args else len(args)
    front: list[str] = []
    rest: list[str] = []
    options = iter(args[:end])
    for arg in options:
        if arg == "--home":
            front += [arg, *([value] if (value := next(options, None)) is not None else [])]
        elif arg.startswith("--home="):
            front.append(arg)
        else:
            rest.append(arg)
    if rest[:1] == ["--json"]:
        rest = [*rest[1:], "--json"]
    if rest and rest[0].startswith("-") and rest[0] not in OWN_OPTIONS:
        rest.insert(0, "chat")
    return [*front, *rest, *args[end:]]


def _usage(error: click.UsageError) -> str:
    help_of = error.ctx.command_path if error.ctx else "holdfast"
    return f"{error.format_message().rstrip('.')}; see '{help_of} --help'"
