"""Templates, and how facts look in them. Whatever is put into a page is escaped, and made visible, by default."""

import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import holdfast
from holdfast.dashboard import markdown
from holdfast.dashboard.door import Visitor
from holdfast.interop.visible import visible
from holdfast.model.process import duration
from holdfast.model.times import iso, moment

NAV = (
    ("sessions", "/", "Sessions", "s"),
    ("space", "/ui/space", "Space", "a"),
    ("processes", "/ui/processes", "Processes", "p"),
    ("workers", "/ui/workers", "Workers", "w"),
    ("gateways", "/ui/gateways", "Gateways", "g"),
    ("cron", "/ui/cron", "Schedules", "c"),
    ("dead", "/ui/dead", "Dead letters", "d"),
    ("health", "/ui/health", "Health", "h"),
    ("fleet", "/ui/fleet", "Fleet", "f"),
)
"""Name, address, words and key of every page."""
LONG = re.compile(r"\S{200,}")


def _finalize(value: object) -> object:
    """What is put out: hidden letters are written out, so that none can reorder or hide what stands beside it."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


@cache
def environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(Path(str(resources.files("holdfast.dashboard"))) / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "markdown": markdown.render,
        "iso": iso,
        "day": lambda at: f"{moment(at):%Y-%m-%d %H:%M:%S} UTC",
        "span": duration,
        "count": count,
        "many": many,
        "size": size,
        "name": lambda text: str(text).partition("#")[0],
        "seconds": seconds,
    }
    found.tests["long"] = lambda text: LONG.search(text) is not None
    found.globals |= {"NAV": NAV, "version": holdfast.__version__}
    return found


def count(number: float) -> str:
    """A number in a few letters: 950, 12.4k, 3.1M."""
    for unit, worth in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= worth:
            return f"{number / worth:.3g}{unit}"
    return f"{number:,.0f}"


def many(number: int, thing: str) -> str:
    """So many of a thing: 1 message, 12.4k messages."""
    return f"{count(number)} {thing}" + ("" if number == 1 else "s")


def size(number: float) -> str:
    for unit, worth in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(number) >= worth:
            return f"{number / worth:.3g} {unit}"
    return f"{number:.0f} bytes"


def seconds(number: float) -> str:
    """How long something took."""
    return f"{number * 1000:.0f} ms" if number < 1 else f"{number:.1f} s" if number < 120 else duration(number)


def fragment(name: str, **values: Any) -> Markup:
    """A piece of a page."""
    return Markup(environment().get_template(name).render(**values))  # noqa: S704 - templates escape by default


def visitor_of(request: Request) -> Visitor | None:
    found = request.scope.get("holdfast.visitor")
    return found if isinstance(found, Visitor) else None


def is_part(request: Request) -> bool:
    """Whether a page that is open wants a part of itself anew."""
    return request.headers.get("hx-request-type") == "partial"


def page(request: Request, name: str, *, status: int = 200, **values: Any) -> Response:
    """A whole page, or what htmx asked for of it: then it is the same template without its surroundings."""
    visitor = visitor_of(request)
    common = {
        "visitor": visitor,
        "csrf": visitor.token if visitor else "",
        "path": request.url.path,
        "part": is_part(request),
    }
    text = environment().get_template(name).render(**(common | values))
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)


def piece(request: Request, name: str, *, status: int = 200, **values: Any) -> Response:
    """A fragment as an answer."""
    visitor = visitor_of(request)
    text = fragment(name, csrf=visitor.token if visitor else "", **values)
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)
