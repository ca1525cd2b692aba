"""Sending a file along with the reply, to whoever is on a messaging platform.

What is sent is a copy in the session's folder: the file may change, or go, before the platform takes it.
"""

import asyncio
import hashlib
import os
import shutil
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid
from holdfast.model.message import File, Text
from holdfast.model.tool import Output, Scene
from holdfast.store import outbox
from holdfast.store.database import Database
from holdfast.tools.describe import spec
from holdfast.tools.paths import regular, resolve
from holdfast.tools.sensitive import check_target, why_secret

MAX_BYTES = 20 * 1024 * 1024
"""More than that few platforms take."""


class Asked(msgspec.Struct, frozen=True):
    path: str


class SendFile:
    repeatable = False
    spec = spec(
        "send_file",
        {"path": {"type": "string", "description": "The file; relative to the working folder, `~` is understood."}},
        ("path",),
    )

    def __init__(self, database: Database, *, home: Path | None = None) -> None:
        self._database = database
        self._home = home

    def risk(self, arguments: dict[str, object]) -> str | None:
        return why_secret(msgspec.convert(arguments, Asked).path, self._home)

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        asked = msgspec.convert(arguments, Asked)
        if not await self._database.read(outbox.addresses, scene.session_id, scene.turn_id):
            return Output.say("Nobody gets the reply on a messaging platform: tell the path instead.", ok=False)
        try:
            return await asyncio.to_thread(self._copy, asked, scene)
        except Invalid as e:
            return Output.say(str(e), ok=False)
        except OSError as e:
            return Output.say(f"{asked.path} cannot be sent: {e.strerror}", ok=False)

    def _copy(self, asked: Asked, scene: Scene) -> Output:
        path = resolve(asked.path, scene.workdir)
        if not why_secret(asked.path, self._home):
            check_target(Path(os.path.realpath(path)), why_secret, self._home)
        size = regular(path).st_size
        if size > MAX_BYTES:
            raise Invalid(f"{path} has {size:,} bytes; at most {MAX_BYTES:,} can be sent")
        call = hashlib.sha256(f"{scene.turn_id} {scene.call_id}".encode()).hexdigest()[:16]
        copy = scene.files / "sent" / call / path.name
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        copy.chmod(0o600)
        told = Text(f"{path.name}, {size:,} bytes, goes out with the reply.")
        return Output(parts=(told, File(f"file:{copy.relative_to(scene.files)}", path.name)))
