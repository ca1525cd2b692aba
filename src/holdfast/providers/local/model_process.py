"""The process that runs one embedded model, as the worker sees it. `model_server` describes the protocol.

Nothing here belongs to an event loop, and no task or thread runs between requests.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from holdfast.model.errors import BadReply, ProviderFailed, Refused, Unreachable

PROGRAM = Path(__file__).with_name("model_server.py")
LINE_BYTES = 16 * 1024 * 1024
"""The longest chunk: arbitrary, far above any real one."""

Json = dict[str, Any]


class ModelProcess:
    """Starts the process. It loads the model while the event loop goes on; requests wait for that.

    Create it in the thread of the event loop: the kernel kills the process when the thread that started it ends. Raises
    Unreachable if no process can be started.
    """

    def __init__(self, path: Path, *, model: str, context: int, slots: int, threads: int | None) -> None:
        self._model = model
        options = {
            "parent": os.getpid(),
            "path": str(path.absolute()),
            "model": model,
            "context": context,
            "slots": slots,
            "threads": threads,
        }
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        try:
            with theirs:
                self._process = _start(options, theirs)
        except OSError as e:
            self._control.close()
            raise Unreachable(f"cannot start the process of the embedded model: {e}") from e

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    async def ask(self, body: Json) -> AsyncGenerator[Json, None]:
        """The chunks of a reply. Closing the iterator stops the reply. Raises ProviderFailed."""
        reader, writer = await _open_stream(self._connect())
        try:
            writer.write(json.dumps(body).encode() + b"\n")
            await writer.drain()
            while (line := await reader.readline()).endswith(b"\n"):
                message = json.loads(line)
                if "end" in message:
                    return
                if "failure" in message:
                    raise await self._failure(message)
                yield message["chunk"]
        except ConnectionError as e:
            raise _ended() from e
        finally:
            writer.transport.abort()
        raise _ended()

    async def close(self) -> None:
        """Kill the process, whatever it does. Its requests fail."""
        self.release()
        self._process.kill()
        await asyncio.to_thread(self._process.wait)

    def release(self) -> None:
        """Close the control socket: the process ends after its current replies, and gets no other request."""
        self._control.close()

    def _connect(self) -> socket.socket:
        """A connection to the process. What is sent waits until the model is loaded and a slot is free."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._control, [b"."], [theirs.fileno()])
        except OSError as e:
            ours.close()
            if isinstance(e, BlockingIOError):
                raise Unreachable("too many requests wait for the embedded model; try again later") from e
            raise _ended() from e
        return ours

    async def _failure(self, message: Json) -> ProviderFailed:
        match message["failure"]:
            case "refused":
                return Refused(f"{self._model} rejected the request: {message['text']}")
            case "broken":
                return BadReply(f"{self._model} failed during the reply: {message['text']}")
            case _:
                await self.close()  # it was not loaded: the next request tries again
                return ProviderFailed(message["text"])


def _start(options: Json, control: socket.socket) -> "subprocess.Popen[bytes]":
    # `-P`: no module is imported from the working directory.
    command = [sys.executable, "-P", str(PROGRAM), json.dumps({**options, "control": control.fileno()})]
    return subprocess.Popen(  # noqa: S603 - there is no shell, and every argument is ours
        command,
        pass_fds=[control.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


async def _open_stream(connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_unix_connection(sock=connection, limit=LINE_BYTES)
    except BaseException:
        connection.close()
        raise


def _ended() -> Unreachable:
    return Unreachable("the process of the embedded model ended; check that enough memory is free, and try again")
