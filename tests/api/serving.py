"""A real server process with its own home, and clients for it."""

import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from anthropic import Anthropic
from anthropic import DefaultHttpxClient as AnthropicHttpClient
from openai import DefaultHttpxClient, OpenAI

from tests.api.sdk_types import check_document, check_event
from tests.crash.programs import Hung, Process, wait_until

KEY = "hfk-for-the-tests-only"
WORDS = 150
SLOWLY = " ".join(f"word{n}" for n in range(WORDS))
"""The reply of the slow model; it takes about three seconds."""
BRISKLY = " ".join(f"piece{n}" for n in range(80))
"""The reply of the brisk model; it takes about 0.8 seconds."""
SCRIPTS = {
    "slow": {"steps": [{"say": SLOWLY, "delay_seconds": 0.02}], "loop": True},
    "dawdling": {"steps": [{"say": SLOWLY, "delay_seconds": 0.3}], "loop": True},
    "fails": {"steps": [{"fail": "refused", "message": "I will not."}, {"say": "Then again, why not."}]},
    "silent": {"steps": [{"hang": True}]},
    "thinks": {"steps": [{"think": "Let me see. Yes.", "say": "It is so."}], "loop": True},
    "cut": {"steps": [{"say": "And then", "finish": "length"}], "loop": True},
    "declines": {"steps": [{"say": "I would rather not.", "finish": "refused"}], "loop": True},
    "brisk": {"steps": [{"say": BRISKLY, "delay_seconds": 0.01}], "loop": True},
    "breaks": {
        "steps": [{"say": "Lost words.", "think": "Lost.", "cut_after": 3}, {"say": "Whole.", "think": "Kept."}]
    },
    "pays": {
        "steps": [
            {"call": [{"name": "terminal", "arguments": {"command": "echo paid >> BESIDE/paid.txt"}}]},
            {"say": SLOWLY, "delay_seconds": 0.02},
        ],
        "loop": True,
    },
    "asks": {"steps": [{"call": [{"name": "terminal", "arguments": {"command": "rm -rf gone"}}]}, {"say": "Asked."}]},
}


def write_config(
    home: Path,
    alone: str = "",
    context_window: int = 0,
    vendor: str = "",
    approval_seconds: int = 0,
    store: str = "",
    images: str = "",
    **api: object,
) -> None:
    """Configure the models that a request can name: echo, tools, and the scripts above; or only `alone`, without fallbacks."""
    home.mkdir(parents=True, exist_ok=True)
    for name, script in SCRIPTS.items():
        (home / f"{name}.json").write_text(json.dumps(script).replace("BESIDE", str(home.parent)))
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
    if store:
        lines = [f'store = "{store}"', *lines]
    context = ["[context]", f"window = {context_window}"] if context_window else []
    service = ["[images]", f'base_url = "{images}"', 'api_key = "sk-images"'] if images else []
    lines += [f"{name} = {json.dumps(value)}" for name, value in {"key": KEY, **api}.items()]
    # The scripts write files beside the home, which the default backend would not let them do.
    terminal = ["[terminal]", 'backend = "local"']
    (home / "config.toml").write_text(
        "\n".join([*lines, *context, *service, *terminal, "[agent]", f"approval_seconds = {approval_seconds}", ""])
    )
    (home / "config.toml").chmod(0o600)


class Server:
    """`holdfast serve` as a process. It can be killed and started again on the same home and port."""

    before: tuple[str, ...] = ()
    """The command line before the program, such as a wrapper."""

    def __init__(self, home: Path, *options: str, alone: str = "", **api: object) -> None:
        self.home = home
        self._options = options
        write_config(home, alone, **api)
        self.port = 0
        self.start()

    def start(self) -> None:
        command = [
            *self.before,
            sys.executable,
            "-m",
            "holdfast",
            "--home",
            str(self.home),
            "serve",
            "--port",
            str(self.port),
        ]
        self.process = Process(*command, *self._options)
        self.process.__enter__()
        if not self.process.wait_for_output("Holdfast is listening on"):
            raise Hung(f"the server did not start: {self.process.stderr}")
        said = self.process.stdout
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
        # It needs no certificates, and to load them takes longer than most requests.
        hooks = options.pop("event_hooks", {"response": []})
        hooks["response"].append(check_document)
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, verify=False, event_hooks=hooks, **options)

    def openai(self, **options: Any) -> OpenAI:
        """The official client; each response is checked against the type that it expects."""
        checked = DefaultHttpxClient(event_hooks={"response": [check_document]})
        usual = {"max_retries": 0, "timeout": 30, "http_client": checked}
        return OpenAI(base_url=f"{self.url}/v1", api_key=KEY, **{**usual, **options})

    def anthropic(self, **options: Any) -> Anthropic:
        """Anthropic's client; each response is checked as well."""
        checked = AnthropicHttpClient(event_hooks={"response": [check_document]})
        usual = {"max_retries": 0, "timeout": 30, "http_client": checked}
        return Anthropic(base_url=self.url, api_key=KEY, **{**usual, **options})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.process.__exit__(None, None, None)


@contextmanager
def recording_vendor(record: Path, *options: str) -> Iterator[str]:
    """The address of a model server that appends each request to the file."""
    with Process(sys.executable, "-m", "tests.fakes.openai_server", "--record", str(record), *options) as running:
        wait_until(lambda: running.stdout.endswith("\n"), "the vendor's port")
        yield f"http://127.0.0.1:{running.stdout.strip()}/v1"


def ask(
    http: httpx.Client, *messages: str | dict[str, Any], headers: dict[str, str] | None = None, **more: Any
) -> httpx.Response:
    """Send a request; messages without a role alternate between user and assistant."""
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
    return [piece if piece == "[DONE]" else check_event(json.loads(piece)) for piece in found]


def told(chunks: list[Any]) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for chunk in chunks
        if isinstance(chunk, dict)
        for choice in chunk["choices"]
    )
