"""What was filled in, and what a deed is answered with."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.dashboard import pages
from holdfast.model.errors import Invalid


def fields(request: Request) -> dict[str, str]:
    """The form of a request that came in through the door."""
    found = request.scope.get("holdfast.form")
    assert isinstance(found, dict), "forms are read at the door"
    return found


def needed(request: Request, name: str) -> str:
    """A field that must hold something. Raises Invalid."""
    value = fields(request).get(name, "")
    if not value.strip():
        raise Invalid(f"{name} is empty")
    return value


def number(request: Request, name: str) -> int | None:
    """A field that holds a whole number, or nothing. Raises Invalid."""
    value = fields(request).get(name, "").strip()
    if not value:
        return None
    if not (value.isascii() and value.isdecimal()) or len(value) > 18:
        raise Invalid(f"{name} must be a whole number")
    return int(value)


def done(request: Request, words: str, back: str, *, move: bool = False) -> Response:
    """Say what was done; without scripts, or if `move`, by showing the page where it can be seen."""
    if "hx-request" not in request.headers:
        return RedirectResponse(back, 303)
    if move:
        return Response(status_code=204, headers={"hx-redirect": back})
    answer = pages.piece(request, "notice.html", words=words, bad=False)
    answer.headers["hx-trigger"] = "changed"
    return answer
