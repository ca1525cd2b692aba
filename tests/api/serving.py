"""A real server process on a home of its own, and ways to talk to it."""

import json
import re
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from openai import OpenAI

from tests.crash.programs import Hung, Process

KEY = "hfk-for-the-tests-only"
WORDS = 150
SLOWLY = " ".join(f"word{n}" for n in range(WORDS))
"""What the slow model says, in some three seconds."""
BRISKLY = " ".join(f"piece{n}" for n in range(80))
"""What the brisk model says, in some eight tenths of a second."""
SCRIPTS = {
    "slow": {"steps": [{"say": SLOWLY, "delay_seconds": 0.02}], "loop": True},
    "dawdling": {"steps": [{"say": SLOWLY, "delay_seconds": 0.3}], "loop": True},
    "fails": {"steps": [{"fail": "refused", "message": "I will not."}, {"say": "Then again, why not."}]},
    "silent": {"steps": [{"hang": True}]},
    "brisk": {"steps": [{"say": BRISKLY, "delay_seconds": 0.01}], "loop": True},
    "asks": {"steps": [{"call": [{"name": "terminal", "arguments": {"command": "rm -rf gone"}}]}, {"say": "Asked."}]},
}


def write_config(
    home: Path,
    alone: str = "",
    context_window: int = 0,
    vendor: str = "",
    approval_seconds: int = 0,
    **api: object,
) -> None:
    """Models that a request can ask for by name: echo, tools, and the scripts above; or one `alone`, for which none stands in."""
    home.mkdir(parents=True, exist_ok=True)
    for name, script in SCRIPTS.items():
        (home / f"{name}.json").write_text(json.dumps(script))
    models = ["scripted:tools", *(f"scripted:{home}/{name}.json" for name in SCRIPTS)]
    lines = ['model = "scripted:echo"', f"fallback_models = {json.dumps(models)}", "[api]"]
    if alone:
        name = alone if alone in ("echo", "tools") else f"{home}/{alone}.json"
        lines = [f'model = "scripted:{name}"', "[api]"]
    if vendor:
        lines = [
            'model = "openai:gpt-fake"',
            "[models.openai]",
            f'base_url = "{vendor}"',
            'api_key = "sk-test"',
            "[api]",
        ]
    context = ["[context]", f"window = {context_window}"] if context_window else []
    lines += [f"{name} = {json.dumps(value)}" for name, value in {"key": KEY, **api}.items()]
    (home / "config.toml").write_text(
        "\n".join([*lines, *context, "[agent]", f"approval_seconds = {approval_seconds}", ""])
    )
    (home / "config.toml").chmod(0o600)


class Server:
    """`holdfast serve` as a process. It can be killed and started again on the same home and port."""

    def __init__(self, home: Path, *options: str, alone: str = "", **api: object) -> None:
        self.home = home
        self._options = options
        write_config(home, alone, **api)
        self.port = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "holdfast", "--home", str(self.home), "serve", "--port", str(self.port)]
        self.process = Process(*command, *self._options)
        self.process.__enter__()
        if not self.process.wait_for_words("Holdfast serves at"):
            raise Hung(f"the server did not start: {self.process.complaints}")
        said = self.process.words
        found = re.search(r"http://\S+:(\d+);", said)
        assert found is not None, said
        self.port = int(found[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> int:
        self.process.signal(signal.SIGTERM)
        return self.process.wait()

    def restart(self) -> None:
        self.process.__exit__(None, None, None)
        self.start()

    def model(self, name: str) -> str:
        return f"scripted:{name}" if name in ("echo", "tools") else f"scripted:{self.home}/{name}.json"

    def http(self, **options: Any) -> httpx.Client:
        headers = {"authorization": f"Bearer {KEY}", **options.pop("headers", {})}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, **options)

    def openai(self, **options: Any) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=KEY, **{"max_retries": 0, "timeout": 30, **options})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.process.__exit__(None, None, None)


def ask(
    http: httpx.Client, *messages: str | dict[str, Any], headers: dict[str, str] | None = None, **more: Any
) -> httpx.Response:
    """A request; messages alternate between the user and the assistant unless they say who they are."""
    body = {"model": "holdfast", "messages": as_messages(*messages), **more}
    return http.post("/v1/chat/completions", json=body, headers=headers)


def as_messages(*messages: str | dict[str, Any]) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [m if isinstance(m, dict) else {"role": roles[n % 2], "content": m} for n, m in enumerate(messages)]


def text(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    content = response.json()["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


def session(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return response.headers["x-session-id"]


def events(body: str) -> list[Any]:
    """The data of a stream, `[DONE]` as text."""
    found = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    return [piece if piece == "[DONE]" else json.loads(piece) for piece in found]


def told(chunks: list[Any]) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for chunk in chunks
        if isinstance(chunk, dict)
        for choice in chunk["choices"]
    )
