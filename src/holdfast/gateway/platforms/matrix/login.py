"""Opens a connection to a homeserver, always as the same device: servers recognise transaction ids per device.

With encryption, each home directory is a device of its own, whose keys are beside its id.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from nio import AsyncClient, AsyncClientConfig, LoginError, WhoamiResponse
from nio.crypto import ENCRYPTION_ENABLED

from holdfast.gateway.platforms import http
from holdfast.gateway.platforms.matrix.homeserver import NETWORK, REQUEST_SECONDS, Homeserver, ServerRefusal
from holdfast.gateway.platforms.matrix.inbound import InboundDecryption
from holdfast.gateway.platforms.matrix.platform import Matrix, MatrixEncryption
from holdfast.gateway.port import Platform, PlatformOptions, describe_error
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import Clock
from holdfast.store import atomic_file, durable_file

logger = logging.getLogger(__name__)
logging.getLogger("nio.responses").setLevel(logging.ERROR)  # it warns about every refusal, which is reported anyway
DEVICE = "HOLDFAST"
"""The device without encryption."""
DEVICE_FILE = "device"


@asynccontextmanager
async def connect(options: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
    config = AsyncClientConfig(
        max_limit_exceeded=0, max_timeouts=0, request_timeout=REQUEST_SECONDS, encryption_enabled=False
    )
    homeserver, user = _homeserver(options), options.text("user")
    token, password = options.text("token", ""), options.text("password", "")
    trusted = frozenset("".join(one.split()) for one in options.texts("trusted_devices"))
    folder = _encryption_folder(options, trusted)
    if not token and not password:
        raise Invalid(f"[gateway.{options.name}] needs a token or a password")
    device = DEVICE if folder is None or token else await asyncio.to_thread(_load_device, folder)
    client = AsyncClient(homeserver, user, device_id=device, config=config)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        await _log_in(client, token, password)
        server = Homeserver(client)
        encryption = None
        if folder is not None:
            encryption = await _open_encryption(stack, (server, client), folder, trusted, password, clock)
        yield Matrix(client, server, http.make_fetcher(options, homeserver), encryption)


def _homeserver(options: PlatformOptions) -> str:
    url = options.text("homeserver").rstrip("/")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise Invalid(f"[gateway.{options.name}] homeserver: expected a URL such as https://matrix.example.org")
    return url


def _encryption_folder(options: PlatformOptions, trusted: frozenset[str]) -> Path | None:
    """Where the keys are; None if encryption is off, or not installed."""
    wanted = options.flag("encryption", default=True) and options.folder is not None
    if wanted and not ENCRYPTION_ENABLED:
        logger.warning("%s: encrypted rooms cannot be read: the extra matrix is not installed completely", options.name)
    if wanted and ENCRYPTION_ENABLED:
        return options.folder
    if trusted:
        raise Invalid(f"[gateway.{options.name}] trusted_devices needs encryption")
    return None


def _load_device(folder: Path) -> str:
    """The id of our device; a new one if this home has none."""
    file = folder / DEVICE_FILE
    if not file.exists():
        durable_file.make_private_folders(folder)
        with atomic_file.new_file(file) as stream:
            stream.write(f"{DEVICE}{secrets.token_hex(4).upper()}")
    return file.read_text("ascii").strip()


async def _log_in(client: AsyncClient, token: str, password: str) -> None:
    try:
        if token:
            client.access_token = token
            who = await client.whoami()
            if not isinstance(who, WhoamiResponse):
                raise Unavailable(f"the server rejects the token: {who}")
            client.user_id, client.device_id = who.user_id, who.device_id or ""
            return
        answer = await client.login(password, device_name="Holdfast")
        if isinstance(answer, LoginError):
            raise Unavailable(f"the server rejects the password: {answer.message}")
    except NETWORK as e:
        raise Unavailable(f"the server does not answer: {describe_error(e)}") from e


async def _open_encryption(
    stack: AsyncExitStack,
    connection: tuple[Homeserver, AsyncClient],
    folder: Path,
    trusted: frozenset[str],
    password: str,
    clock: Clock,
) -> MatrixEncryption:
    from holdfast.gateway.platforms.matrix.encryption import open_encryption

    server, client = connection
    if not client.device_id:
        raise Invalid("the token belongs to no device; use a password, or set encryption = false")
    await asyncio.to_thread(durable_file.make_private_folders, folder)
    opened = open_encryption(server, client.user_id, client.device_id, folder, trusted, clock)
    rooms = await stack.enter_async_context(opened)
    try:
        await rooms.start(folder, password)
    except ServerRefusal as e:
        raise Unavailable(f"the server refuses the encryption keys: {e}") from e
    logger.info("Matrix: this device is %s with the fingerprint %s", client.device_id, rooms.fingerprint)
    return MatrixEncryption(rooms, InboundDecryption(rooms, folder, clock, strict=bool(trusted)))
