"""Maps error codes to exit codes, and reports errors on standard error."""

import sys

from holdfast.model.errors import HoldfastError

DONE = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
BUSY = 4
NOT_SAVED = 5
INTERRUPTED = 130

EXIT = {
    "internal": FAILED,
    "not_found": NOT_FOUND,
    "invalid": USAGE,
    "ambiguous_ref": USAGE,
    "unsupported_store": USAGE,
    "conflict": FAILED,
    "key_reused": FAILED,
    "session_busy": BUSY,
    "quarantined": FAILED,
    "lease_lost": BUSY,
    "declared_dead": FAILED,
    "not_saved": NOT_SAVED,
    "disk_full": NOT_SAVED,
    "read_only": NOT_SAVED,
    "io_failed": NOT_SAVED,
    "corrupt": FAILED,
    "budget_exceeded": FAILED,
    "price_unknown": FAILED,
    "unavailable": FAILED,
    "login_failed": FAILED,
    "provider_failed": FAILED,
    "rate_limited": FAILED,
    "context_too_long": FAILED,
    "refused": FAILED,
    "auth_failed": FAILED,
    "unreachable": FAILED,
    "bad_reply": FAILED,
}


def exit_code(error: HoldfastError) -> int:
    return EXIT[error.code]


def report(code: str, message: str, *, as_json: bool) -> None:
    """Print one line on standard error; with `--json`, one JSON document."""
    from holdfast.interop import serialization
    from holdfast.model.sanitize import one_line

    error = {"code": code, "message": message}
    line = serialization.dump({"error": error}) if as_json else f"holdfast: {one_line(message)}"
    print(line, file=sys.stderr, flush=True)
