"""Files of rooms: uploaded and downloaded, and encrypted in encrypted rooms."""

import asyncio
import json
import mimetypes
import os
from pathlib import Path
from urllib.parse import quote, urlsplit

from nio import AsyncClient, ErrorResponse, UploadResponse

from holdfast.gateway.platforms.matrix.homeserver import Json
from holdfast.gateway.port import Attachment
from holdfast.model.errors import Unavailable
from holdfast.safe_fetch import SafeFetcher

MEDIA_PATH = "/_matrix/client/v1/media/download"


async def upload(client: AsyncClient, path: Path, *, encrypted: bool) -> Json | ErrorResponse:
    """The content of an event with the file; an error response if the server does not take it."""
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        answer, keys = await client.upload(
            file, kind, filename=None if encrypted else path.name, filesize=size, encrypt=encrypted
        )
    if not isinstance(answer, UploadResponse):
        assert isinstance(answer, ErrorResponse), "an upload has a response or an error"
        return answer
    content: Json = {"msgtype": "m.file", "body": path.name, "info": {"mimetype": kind, "size": size}}
    if keys is None:
        return {**content, "url": answer.content_uri}
    return {**content, "file": {**keys, "url": answer.content_uri}}


async def download(
    client: AsyncClient, fetcher: SafeFetcher, attachment: Attachment, target: Path, max_bytes: int
) -> None:
    """Save an attachment. Raises TooLarge, Unavailable or Invalid."""
    keys = json.loads(attachment.ref) if attachment.ref.startswith("{") else None
    url = str(attachment.ref if keys is None else keys.get("url", ""))
    address = urlsplit(url)
    if address.scheme != "mxc":
        raise Unavailable(f"{url[:100]!r} is not an mxc URL")
    name = f"{quote(address.netloc, safe=':')}/{quote(address.path.strip('/'), safe='')}"
    headers = {"Authorization": f"Bearer {client.access_token}"}
    await fetcher.save(f"{client.homeserver}{MEDIA_PATH}/{name}", target, max_bytes, headers)
    if keys is not None:
        await asyncio.to_thread(_decrypt_in_place, target, keys)


def _decrypt_in_place(target: Path, keys: Json) -> None:
    from nio.crypto import decrypt_attachment
    from nio.exceptions import EncryptionError

    try:
        plain = decrypt_attachment(target.read_bytes(), keys["key"]["k"], keys["hashes"]["sha256"], keys["iv"])
    except (EncryptionError, KeyError, TypeError, ValueError) as e:
        raise Unavailable(f"the file cannot be decrypted: {e}") from e
    target.write_bytes(plain)
