"""Our errors as the OpenAI client sees them. The one place where a code becomes a status."""

import msgspec
from starlette.responses import Response

from holdfast.model.errors import HoldfastError, RateLimited

STATUS = {
    "not_found": 404,
    "invalid": 400,
    "ambiguous_ref": 400,
    "unsupported_store": 500,
    "conflict": 409,
    "key_reused": 422,
    "session_busy": 409,
    "quarantined": 409,
    "lease_lost": 503,
    "declared_dead": 503,
    "not_saved": 507,
    "disk_full": 507,
    "read_only": 507,
    "io_failed": 507,
    "corrupt": 500,
    "unavailable": 503,
    "provider_failed": 502,
    "rate_limited": 429,
    "context_too_long": 400,
    "refused": 400,
    "auth_failed": 502,
    "unreachable": 502,
    "bad_reply": 502,
}
"""By the code of an error."""

TURN_STATUS = {"max_steps": 422, "turn_timeout": 504, "interrupted": 409, "cancelled": 409}
"""By the code, or else the outcome, of a turn that ended badly for a reason that is no error of ours; any other is 502."""

TYPE = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 409: "conflict_error"}
TYPE |= {429: "rate_limit_error"}


class Refusal(Exception):
    """What a request is answered with instead of what it asked for."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers: dict[str, str] = {}

    def body(self) -> dict[str, object]:
        kind = TYPE.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "code": self.code, "param": self.param}}

    def response(self) -> Response:
        content = msgspec.json.encode(self.body())
        return Response(content, self.status, self.headers, media_type="application/json")


def translate(error: HoldfastError) -> Refusal:
    """The answer to a failure that we can name."""
    refusal = Refusal(STATUS[error.code], error.code, str(error))
    if isinstance(error, RateLimited) and error.retry_after is not None:
        refusal.headers["retry-after"] = f"{error.retry_after:.0f}"
    return refusal


def turn_failed(code: str, outcome: str, reason: str) -> Refusal:
    """The answer when the turn ended, and not well."""
    status = STATUS.get(code) or TURN_STATUS.get(code or outcome, 502)
    return Refusal(status, code or outcome, reason or f"the turn was {outcome}")


def bug() -> Refusal:
    """The answer to anything else; what happened is in the log, under the id of the request."""
    return Refusal(500, "internal", "something went wrong that nobody thought of; the server's log says what")
