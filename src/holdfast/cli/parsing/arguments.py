"""Brings the words of a command line into the order that the commands expect. Pure."""

from collections.abc import Collection, Sequence

PRINT = ("-p", "--print")
JSON_FORMATS = ("json", "stream-json")
FORMAT = "--output-format"
OWN_OPTIONS = ("-h", "--help", "--version")
"""Options of `holdfast` itself besides --home. Any other option belongs to the chat: `holdfast --resume` is `holdfast chat --resume`."""


def normalize(args: Sequence[str], commands: Collection[str]) -> list[str]:
    """Move `--home DIR` to the front and a leading `--json` to the end, and add the command that was left out.

    That is `run` with -p; `chat` for a line that begins with another option, or with a prompt: several words in one
    argument. Nothing after `--` is changed.
    """
    end = args.index("--") if "--" in args else len(args)
    front: list[str] = []
    rest: list[str] = []
    options = iter(args[:end])
    for arg in options:
        if arg == "--home" and (value := next(options, None)) is not None:
            front += [arg, value]
        elif arg.startswith("--home="):
            front.append(arg)
        else:
            rest.append(arg)
    if rest[:1] == ["--json"]:
        rest = [*rest[1:], "--json"]
    return [*front, *_with_command(rest, commands), *args[end:]]


def _with_command(rest: list[str], commands: Collection[str]) -> list[str]:
    if not rest or rest[0] in commands or rest[0] in OWN_OPTIONS:
        return rest
    if any(arg in PRINT for arg in rest):
        return ["run", *(arg for arg in rest if arg not in PRINT)]
    is_prompt = len(rest[0].split()) > 1
    return ["chat", *rest] if rest[0].startswith("-") or is_prompt else rest


def wants_json(args: Sequence[str]) -> bool:
    """Whether errors are to be printed as JSON on standard error."""
    return "--json" in args or output_format(args) in JSON_FORMATS


def output_format(args: Sequence[str]) -> str:
    """The value of `--output-format`; empty without it."""
    for number, arg in enumerate(args):
        if arg == FORMAT and number + 1 < len(args):
            return args[number + 1]
        if arg.startswith(f"{FORMAT}="):
            return arg.removeprefix(f"{FORMAT}=")
    return ""
