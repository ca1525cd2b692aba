"""Errors in the shape of the OpenAI API. The only module that maps error codes to HTTP statuses."""

from starlette.responses import Response

from holdfast.http_connection import error_body
from holdfast.model.errors import HoldfastError, InQuarantine, ProviderFailed
from holdfast.sse import encode_json

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
    "budget_exceeded": 402,
    "price_unknown": 402,
    "unavailable": 503,
    "login_failed": 502,
    "provider_failed": 502,
    "rate_limited": 429,
    "context_too_long": 400,
    "refused": 400,
    "auth_failed": 502,
    "unreachable": 502,
    "bad_reply": 502,
}
"""HTTP status by error code."""

TURN_STATUS = {"internal": 500, "max_steps": 422, "turn_timeout": 504, "interrupted": 409, "cancelled": 409}
"""HTTP status by the code, or else the outcome, of a failed turn whose code is not in `STATUS`; any other is 502."""


class ApiError(Exception):
    """An error response."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers: dict[str, str] = {}

    def body(self) -> dict[str, object]:
        return error_body(self.status, self.code, self.message, self.param)

    def response(self) -> Response:
        content = encode_json(self.body())
        return Response(content, self.status, self.headers, media_type="application/json")


def translate(error: HoldfastError) -> ApiError:
    """Translate a named failure."""
    api_error = ApiError(STATUS[error.code], error.code, str(error))
    if isinstance(error, ProviderFailed) and error.retry_after is not None:
        api_error.headers["retry-after"] = f"{error.retry_after:.0f}"
    return api_error


def turn_error(code: str, outcome: str, reason: str) -> ApiError:
    """Describe a turn that did not end with outcome done."""
    status = STATUS.get(code) or TURN_STATUS.get(code or outcome, 502)
    api_error = ApiError(status, code or outcome, reason or f"the turn ended with outcome {outcome}")
    if code == InQuarantine.code:  # OpenAI clients retry a 409 automatically, which would crash the server again
        api_error.headers["x-should-retry"] = "false"
    return api_error


def internal_error(request_id: str) -> ApiError:
    """Describe an unexpected failure. The server log has the details under the request id."""
    return ApiError(500, "internal", f"internal error; see request {request_id} in the server log")
