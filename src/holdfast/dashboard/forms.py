"""Form fields, and the response to an action."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.dashboard import templating
from holdfast.model.errors import Invalid
from holdfast.model.text import parse_decimal


def get_fields(request: Request) -> dict[str, str]:
    """The form of an authenticated request."""
    found = request.scope.get("holdfast.form")
    assert isinstance(found, dict), "Dashboard reads the form"
    return found


def require_field(request: Request, name: str) -> str:
    """A non-empty field. Raises Invalid."""
    value = get_fields(request).get(name, "")
    if not value.strip():
        raise Invalid(f"{name} is empty")
    return value


def parse_int_field(request: Request, name: str) -> int | None:
    """A field with a whole number, or None if it is empty. Raises Invalid."""
    value = get_fields(request).get(name, "").strip()
    if not value:
        return None
    if (number := parse_decimal(value)) is None:
        raise Invalid(f"{name} must be a whole number")
    return number


def action_response(request: Request, text: str, url: str, *, move: bool = False) -> Response:
    """Show a notice; redirect to `url` instead if `move` is set or the browser runs no scripts."""
    if "hx-request" not in request.headers:
        return RedirectResponse(url, 303)
    if move:
        return Response(status_code=204, headers={"hx-redirect": url})
    response = templating.fragment_response(request, "notice.html", text=text, bad=False)
    response.headers["hx-trigger"] = "changed"
    return response
