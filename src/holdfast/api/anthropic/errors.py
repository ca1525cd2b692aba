"""Errors in the format of Anthropic's API, on the paths of that API."""

from starlette.responses import Response

from holdfast.api.errors import ApiError
from holdfast.sse import encode_json

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Error type by status; any other is `api_error` from 500 on, and `invalid_request_error` below."""
CODE_HEADER = "x-error-code"
"""Our own error code, for which the format has no field."""


def error_document(error: ApiError, request_id: str) -> dict[str, object]:
    kind = TYPES.get(error.status) or ("api_error" if error.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}, "request_id": request_id}


def error_response(error: ApiError, request_id: str) -> Response:
    headers = {**error.headers, CODE_HEADER: error.code}
    return Response(
        encode_json(error_document(error, request_id)), error.status, headers, media_type="application/json"
    )
