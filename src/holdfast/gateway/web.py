"""What the adapters share that speak HTTP: the fate of a request, lists of files, and downloads with a limit."""

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.gateway.port import Attachment, Fate, Later, Never, Sent, TooLarge, Unsure, reason
from holdfast.model.errors import Unavailable

if TYPE_CHECKING:
    import httpx2

CHUNK = 64 * 1024
DOWNLOAD_SECONDS = 30.0


def fate_of_error(error: "httpx2.HTTPError") -> Fate:
    """Whether a request that broke may have been taken: certainly not, if there was no connection."""
    import httpx2

    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return Later(reason(error), everywhere=True)
    return Unsure(reason(error))


def fate_of_status(answer: "httpx2.Response", remote: str) -> Fate:
    """What an answer means. A server that says 5xx may have taken the message."""
    if answer.is_success:
        return Sent(remote)
    said = f"{answer.status_code}: {answer.text[:200]}"
    if answer.status_code in (408, 425, 429, 503):
        return Later(said, retry_after(answer.headers.get("retry-after")))
    return Unsure(said) if answer.status_code >= 500 else Never(said)


def retry_after(given: str | None) -> float | None:
    """Seconds to wait, as a server wrote them. A date is not understood."""
    try:
        return None if given is None else max(float(given), 0.0)
    except ValueError:
        return None


def attachments(
    given: object, url: str = "url", name: str = "filename", kind: str = "content_type"
) -> tuple[Attachment, ...]:
    """What comes with a message, as most platforms list it; the names of the fields differ. Without an address it is nothing."""
    files = [one for one in given if isinstance(one, dict) and one.get(url)] if isinstance(given, list) else []
    return tuple(
        Attachment(
            ref=str(one[url]),
            name=str(one.get(name) or "file"),
            media_type=str(one.get(kind) or ""),
            size=size if isinstance(size := one.get("size"), int) else None,
        )
        for one in files
    )


async def download(client: "httpx2.AsyncClient", url: str, target: Path, max_bytes: int) -> None:
    """Save what stands at an address, and stop as soon as it is too much. Raises TooLarge or Unavailable."""
    import httpx2

    try:
        async with client.stream("GET", url, follow_redirects=True) as answer:
            if not answer.is_success:
                raise Unavailable(f"the server of the attachment said {answer.status_code}")
            taken = 0
            with target.open("wb") as file:
                async for piece in answer.aiter_bytes(CHUNK):
                    taken += len(piece)
                    if taken > max_bytes:
                        raise TooLarge(f"{url} has more than {max_bytes:,} bytes")
                    file.write(piece)
    except httpx2.HTTPError as e:
        raise Unavailable(f"the attachment could not be fetched: {reason(e)}") from e


async def fetch(url: str, target: Path, max_bytes: int, headers: dict[str, str] | None = None) -> None:
    """As `download`, with a client of its own."""
    import httpx2

    async with httpx2.AsyncClient(timeout=DOWNLOAD_SECONDS, headers=headers) as client:
        await download(client, url, target, max_bytes)


def save(content: bytes, target: Path, max_bytes: int) -> None:
    """Save what is there already. Raises TooLarge."""
    if len(content) > max_bytes:
        raise TooLarge(f"it has {len(content):,} bytes, and the limit is {max_bytes:,}")
    target.write_bytes(content)
