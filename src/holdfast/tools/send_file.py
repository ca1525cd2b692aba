"""Sends a file with the reply to a user on a messaging platform.

A copy in the session's folder is sent: the file may change or be deleted before the platform accepts it.
"""

import asyncio
import hashlib
import shutil
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.finding import Finding
from holdfast.model.message import File, Text
from holdfast.model.tool import Effect, ToolContext, ToolOutput
from holdfast.store import durable_file
from holdfast.store.database import Database
from holdfast.store.repos import outbox
from holdfast.tools.backends.files import BackendFiles
from holdfast.tools.backends.port import TerminalBackend
from holdfast.tools.backends.registry import Backends, only_local
from holdfast.tools.home_guard import check_read, find_read_risks, open_checked
from holdfast.tools.paths import stat_file
from holdfast.tools.spec import load_spec

MAX_BYTES = 20 * 1024 * 1024
"""Few platforms accept more."""


class SendFileArguments(msgspec.Struct, frozen=True):
    path: str


class SendFileTool:
    repeatable = False
    spec = load_spec(
        "send_file",
        {"path": {"type": "string", "description": "The file; relative to the working folder, `~` is expanded."}},
        ("path",),
    )

    def __init__(self, database: Database, *, home: Path | None = None, backends: Backends | None = None) -> None:
        self._database = database
        self._home = home
        self._backends = backends or only_local()

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return find_read_risks(msgspec.convert(arguments, SendFileArguments).path, context, self._home)

    def effect(self, arguments: dict[str, object], context: ToolContext) -> Effect:
        return "none"  # the file goes to the person who asked for the turn

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, SendFileArguments)
        if not await self._database.read(outbox.list_reply_addresses, context.session_id, context.turn_id):
            return ToolOutput.say(
                "This reply does not go to a messaging platform; tell the user the path instead.", ok=False
            )
        try:
            backend = self._backends.of(context)
            if not backend.is_direct:
                return await self._copy_from(backend, parsed, context)
            return await asyncio.to_thread(self._copy, parsed, context)
        except (Invalid, Unavailable) as e:
            return ToolOutput.say(str(e), ok=False)
        except OSError as e:
            return ToolOutput.say(f"{parsed.path} cannot be sent: {e.strerror}", ok=False)

    async def _copy_from(self, backend: TerminalBackend, parsed: SendFileArguments, context: ToolContext) -> ToolOutput:
        """As `_copy`, of a file that a program in the backend reads: the session may have no access to it here."""
        files = BackendFiles(backend, context)
        path, size = await files.locate(parsed.path, lambda: check_read(parsed.path, context, self._home))
        _check_size(path, size)
        data = await files.read(path, MAX_BYTES)
        return await asyncio.to_thread(lambda: _save(BytesIO(data), path.name, len(data), context))

    def _copy(self, parsed: SendFileArguments, context: ToolContext) -> ToolOutput:
        path = check_read(parsed.path, context, self._home)
        size = stat_file(path).st_size
        _check_size(path, size)
        with open_checked(parsed.path, context, self._home) as source:
            return _save(source, path.name, size, context)


def _check_size(path: Path, size: int) -> None:
    if size > MAX_BYTES:
        raise Invalid(f"{path} has {size:,} bytes; the limit is {MAX_BYTES:,}")


def _save(source: BinaryIO, name: str, size: int, context: ToolContext) -> ToolOutput:
    call = hashlib.sha256(f"{context.turn_id} {context.call_id}".encode()).hexdigest()[:16]
    copy = context.files / "sent" / call / name
    durable_file.make_folders(copy.parent, mode=0o700)
    with copy.open("wb") as target:
        shutil.copyfileobj(source, target)
    copy.chmod(0o600)
    durable_file.sync_written(copy)
    confirmation = Text(f"{name}, {size:,} bytes, will be sent with the reply.")
    return ToolOutput(parts=(confirmation, File(f"file:{copy.relative_to(context.files)}", name)))
