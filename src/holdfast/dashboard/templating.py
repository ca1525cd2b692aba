"""Templates of the dashboard, their filters, and the responses made from them."""

import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import holdfast
from holdfast.dashboard.auth import BrowserLogin
from holdfast.dashboard.display_state import LABELS, display_state
from holdfast.interop.pages.rendering import make_environment
from holdfast.model.goal import describe_goal
from holdfast.model.price import format_money
from holdfast.model.process import duration

NAV = (
    ("sessions", "/", "Sessions", "s"),
    ("questions", "/ui/questions", "Questions", "q"),
    ("space", "/ui/space", "Space", "a"),
    ("processes", "/ui/processes", "Processes", "p"),
    ("workers", "/ui/workers", "Workers", "w"),
    ("gateways", "/ui/gateways", "Gateways", "g"),
    ("cron", "/ui/cron", "Schedules", "c"),
    ("memory", "/ui/memory", "Memory", "m"),
    ("dead", "/ui/dead", "Dead letters", "d"),
    ("health", "/ui/health", "Health", "h"),
    ("usage", "/ui/usage", "Usage", "u"),
    ("fleet", "/ui/fleet", "Fleet", "f"),
)
"""Name, URL, label and keyboard shortcut of every page."""
LONG_WORD = re.compile(r"\S{200,}")


@cache
def environment() -> Environment:
    found = make_environment(Path(str(resources.files("holdfast.dashboard"))) / "templates")
    found.filters |= {
        "state": display_state,
        "state_label": lambda state: LABELS.get(state, state),
        "end_reason": format_end_reason,
        "span": duration,
        "count": format_count,
        "many": pluralize,
        "money": format_money,
        "size": format_size,
        "name": lambda text: str(text).partition("#")[0],
        "goal_state": describe_goal,
    }
    found.tests["long"] = lambda text: LONG_WORD.search(text) is not None
    found.globals |= {"NAV": NAV, "version": holdfast.__version__}
    return found


END_REASONS = {
    "cli_close": "chat closed",
    "session_reset": "reset",
    "cron_complete": "schedule finished",
    "batch_complete": "batch finished",
    "compression": "compacted into another session",
    "reaped": "owner died",
    "user": "by user",
}
"""Readable texts for stored end reasons; the other reasons are readable already."""


def format_end_reason(reason: str) -> str:
    return END_REASONS.get(reason, reason.replace("_", " "))


def format_count(number: float) -> str:
    """A short number: 950, 12.4k, 3.1M."""
    for unit, worth in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= worth:
            return f"{number / worth:.3g}{unit}"
    return f"{number:,.0f}"


def pluralize(number: int, noun: str) -> str:
    """A count with its noun: 1 message, 12.4k messages."""
    return f"{format_count(number)} {noun}" + ("" if number == 1 else "s")


def format_size(number: float) -> str:
    for unit, worth in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(number) >= worth:
            return f"{number / worth:.3g} {unit}"
    return f"{number:.0f} bytes"


def render_fragment(name: str, **values: Any) -> Markup:
    """Render a part of a page."""
    return Markup(environment().get_template(name).render(**values))  # noqa: S704 - templates escape by default


def get_login(request: Request) -> BrowserLogin | None:
    found = request.scope.get("holdfast.login")
    return found if isinstance(found, BrowserLogin) else None


def is_partial(request: Request) -> bool:
    """Whether an open page requests a part of itself again."""
    return request.headers.get("hx-request-type") == "partial"


def page_response(request: Request, name: str, *, status: int = 200, **values: Any) -> Response:
    """A page. For a request by htmx, the same template without the frame of the page."""
    login = get_login(request)
    common = {
        "login": login,
        "csrf": login.csrf_token if login else "",
        "path": request.url.path,
        "part": is_partial(request),
    }
    text = environment().get_template(name).render(**(common | values))
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)


def fragment_response(request: Request, name: str, *, status: int = 200, **values: Any) -> Response:
    """A response with a part of a page."""
    login = get_login(request)
    text = render_fragment(name, csrf=login.csrf_token if login else "", **values)
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)
