"""Our errors as the shell sees them. The one place where a code becomes an exit status."""

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
    "unavailable": FAILED,
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


def tell(code: str, message: str, *, as_json: bool) -> None:
    """One sentence on standard error; with `--json`, the same as one JSON document."""
    from holdfast.interop import shapes
    from holdfast.interop.visible import one_line

    error = {"code": code, "message": message}
    line = shapes.dump({"error": error}) if as_json else f"holdfast: {one_line(message)}"
    print(line, file=sys.stderr, flush=True)
