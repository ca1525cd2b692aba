"""Sends a file with the reply to a user on a messaging platform.

A copy in the session's folder is sent: the file may change or be deleted before the platform accepts it.
"""

import asyncio
import hashlib
import shutil
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid
from holdfast.model.finding import Finding
from holdfast.model.message import File, Text
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.store import durable_file
from holdfast.store.database import Database
from holdfast.store.repos import outbox
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

    def __init__(self, database: Database, *, home: Path | None = None) -> None:
        self._database = database
        self._home = home

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return find_read_risks(msgspec.convert(arguments, SendFileArguments).path, context, self._home)

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, SendFileArguments)
        if not await self._database.read(outbox.list_reply_addresses, context.session_id, context.turn_id):
            return ToolOutput.say(
                "This reply does not go to a messaging platform; tell the user the path instead.", ok=False
            )
        try:
            return await asyncio.to_thread(self._copy, parsed, context)
        except Invalid as e:
            return ToolOutput.say(str(e), ok=False)
        except OSError as e:
            return ToolOutput.say(f"{parsed.path} cannot be sent: {e.strerror}", ok=False)

    def _copy(self, parsed: SendFileArguments, context: ToolContext) -> ToolOutput:
        path = check_read(parsed.path, context, self._home)
        size = stat_file(path).st_size
        if size > MAX_BYTES:
            raise Invalid(f"{path} has {size:,} bytes; the limit is {MAX_BYTES:,}")
        call = hashlib.sha256(f"{context.turn_id} {context.call_id}".encode()).hexdigest()[:16]
        copy = context.files / "sent" / call / path.name
        durable_file.make_folders(copy.parent, mode=0o700)
        with open_checked(parsed.path, context, self._home) as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        copy.chmod(0o600)
        durable_file.sync_written(copy)
        confirmation = Text(f"{path.name}, {size:,} bytes, will be sent with the reply.")
        return ToolOutput(parts=(confirmation, File(f"file:{copy.relative_to(context.files)}", path.name)))
