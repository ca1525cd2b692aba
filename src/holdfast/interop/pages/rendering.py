"""Templates of a conversation and their filters. By default all values are escaped, and invisible characters are made visible."""

from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from holdfast.interop.pages import code, markdown
from holdfast.model.plan import progress
from holdfast.model.process import duration
from holdfast.model.sanitize import visible
from holdfast.model.session import Session
from holdfast.model.times import iso, moment

STYLESHEET = "conversation.css"


class ItemLinks(msgspec.Struct, frozen=True):
    """What the items of a page link to: their session's page, or nothing but their images."""

    base: str = ""
    """The address of the session's page; empty for a page that only shows."""
    image: Callable[[str], str] = str
    """The address of an image, from its place in the log; empty if there is none."""
    can_act: bool = False
    """Whether the page offers actions on the session."""


def session_links(session: Session) -> ItemLinks:
    """The links of a session's page in the dashboard. A session in the trash can only be read."""
    base = f"/ui/s/{session.id}"
    return ItemLinks(base, lambda place: f"{base}/image/{place}", can_act=session.summary.trashed_at is None)


def folder() -> Path:
    return Path(str(resources.files("holdfast.interop.pages")))


@cache
def stylesheet() -> str:
    return (folder() / STYLESHEET).read_text("utf-8")


def make_environment(*folders: Path) -> Environment:
    """An environment for the templates of these folders and of the conversation."""
    found = Environment(
        loader=FileSystemLoader([*folders, folder() / "templates"]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "markdown": markdown.render,
        "code": code.render_code,
        "output": code.render_output,
        "iso": iso,
        "day": lambda at: f"{moment(at):%Y-%m-%d %H:%M:%S} UTC",
        "seconds": format_seconds,
        "progress": progress,
    }
    return found


def _finalize(value: object) -> object:
    """Write out invisible characters of a value, so that none can reorder or hide the text beside it."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def format_seconds(number: float) -> str:
    """A duration: 20 ms, 1.5 s, 3 min."""
    return f"{number * 1000:.0f} ms" if number < 1 else f"{number:.1f} s" if number < 120 else duration(number)
