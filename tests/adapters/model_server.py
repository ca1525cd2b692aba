"""A model behind the APIs of OpenAI and Gemini, which the examples of the documentation find through documented variables."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = "A log of changes."


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.dumps(answer(self.path)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def answer(path: str) -> dict[str, Any]:
    if "generateContent" in path:
        content = {"role": "model", "parts": [{"text": ANSWER}]}
        return {"candidates": [{"content": content, "finishReason": "STOP"}]}
    part = {"type": "output_text", "text": ANSWER, "annotations": []}
    if path.endswith("/responses/compact"):
        usage = {
            "input_tokens": 9,
            "output_tokens": 1,
            "total_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        summary = {"type": "compaction", "id": "c", "encrypted_content": ANSWER}
        return {"id": "r", "object": "response.compaction", "created_at": 1, "output": [summary], "usage": usage}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    return {
        "id": "r",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": "gpt-5",
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


@contextmanager
def running() -> Iterator[dict[str, str]]:
    """The variables that name the server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield {
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "GOOGLE_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": url,
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
