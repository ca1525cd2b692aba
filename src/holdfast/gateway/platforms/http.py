"""Shared by the platforms that use HTTP: delivery results, attachment lists, and downloads."""

import base64
import math
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.gateway.port import (
    Attachment,
    DeliveryResult,
    DeliveryUnknown,
    PlatformOptions,
    Rejected,
    RetryLater,
    Sent,
    describe_error,
)
from holdfast.model.errors import Invalid
from holdfast.safe_fetch import SafeFetcher, TooLarge

if TYPE_CHECKING:
    import httpx2


def result_of_error(error: "httpx2.HTTPError") -> DeliveryResult:
    """The delivery result of a failed request. Without a connection, the platform cannot have accepted it."""
    import httpx2

    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return RetryLater(describe_error(error), everywhere=True)
    return DeliveryUnknown(describe_error(error))


def result_of_status(response: "httpx2.Response", remote: str) -> DeliveryResult:
    """The delivery result of a response. A server that responds with 5xx may have accepted the message."""
    if response.is_success:
        return Sent(remote)
    reason = f"{response.status_code}: {response.text[:200]}"
    if response.status_code in (408, 425, 429, 503):
        return RetryLater(reason, parse_retry_after(response.headers.get("retry-after")))
    return DeliveryUnknown(reason) if response.status_code >= 500 else Rejected(reason)


def parse_retry_after(value: str | None) -> float | None:
    """Parse a Retry-After header in seconds; None for anything else, also for a date."""
    try:
        seconds = float(value or "nan")
    except ValueError:
        return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def parse_attachments(
    value: object, url: str = "url", name: str = "filename", kind: str = "content_type"
) -> tuple[Attachment, ...]:
    """Parse a list of attachments; the field names differ between platforms. Entries without a URL are skipped."""
    files = [one for one in value if isinstance(one, dict) and one.get(url)] if isinstance(value, list) else []
    return tuple(
        Attachment(
            ref=str(one[url]),
            name=str(one.get(name) or "file"),
            media_type=str(one.get(kind) or ""),
            size=size if isinstance(size := one.get("size"), int) else None,
        )
        for one in files
    )


def make_fetcher(options: PlatformOptions, *own: str) -> SafeFetcher:
    """Create the fetcher for attachments. `own` are URLs of the platform from the settings; their hosts are trusted."""
    return SafeFetcher([*options.texts("trusted_hosts"), *(urlsplit(one).netloc for one in own)])


def decode_base64(data: str) -> bytes:
    """Decode base64. Raises Invalid."""
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except ValueError as e:
        raise Invalid("its content is not valid base64") from e


def save_bytes(content: bytes, target: Path, max_bytes: int) -> None:
    """Save content that is already in memory. Raises TooLarge."""
    if len(content) > max_bytes:
        raise TooLarge(f"it has {len(content):,} bytes, and the limit is {max_bytes:,}")
    target.write_bytes(content)
