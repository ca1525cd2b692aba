"""A bridge between Holdfast and a messaging platform it has no module for, here one that calls back as SeaTalk does.

It needs nothing but Python. It keeps no sessions: Holdfast knows which session a chat is in, through compactions, resets
and restarts. What it must do is little: pass on, sign, acknowledge only what was passed on, and not deliver a key twice.

    python bridge.py settings.json

with {"listen": "127.0.0.1:9000", "secret": "…", "holdfast": "http://127.0.0.1:8421/", "platform": "https://…/single_chat",
"platform_token": "…", "platform_secret": "…", "delivered": "delivered.db"}
"""

import hashlib
import hmac
import json
import sqlite3
import sys
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MAX_BODY = 1 << 20


class Bridge:
    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.secret = settings["secret"].encode()
        with self._delivered() as database:
            database.execute("CREATE TABLE IF NOT EXISTS delivered (key TEXT PRIMARY KEY)")

    def _delivered(self) -> sqlite3.Connection:
        return sqlite3.connect(self.settings["delivered"], timeout=30)

    # From the platform to Holdfast.

    def is_from_platform(self, body: bytes, signature: str) -> bool:
        expected = hashlib.sha256(body + self.settings["platform_secret"].encode()).hexdigest()
        return hmac.compare_digest(expected, signature)

    def take_in(self, body: bytes) -> tuple[int, dict[str, object]]:
        """Pass a callback on. The platform is told that it arrived only if Holdfast has kept it."""
        call = json.loads(body)
        event = call.get("event", {})
        if call.get("event_type") == "event_verification":
            return 200, {"seatalk_challenge": event["seatalk_challenge"]}
        if call.get("event_type") != "message_from_bot_subscriber":
            return 200, {}
        message = event["message"]
        incoming = {
            "chat": event["employee_code"],
            "message": message["message_id"],  # the same for every repeat: Holdfast knows it by this
            "person": event["employee_code"],
            "name": event.get("email", ""),
            "text": message.get("text", {}).get("content", ""),
        }
        status, _ = self._post(self.settings["holdfast"], incoming, signed=True)
        return (200, {}) if status == 200 else (503, {"error": "not kept; call again"})

    # From Holdfast to the platform.

    def is_from_holdfast(self, body: bytes, timestamp: str, signature: str) -> bool:
        fresh = timestamp.isdecimal() and abs(time.time() - int(timestamp)) <= 300
        return fresh and hmac.compare_digest(self._sign(timestamp, body), signature)

    def send(self, body: bytes) -> tuple[int, dict[str, object]]:
        """Deliver a message, unless its key was delivered before."""
        message = json.loads(body)
        if message["type"] != "message":
            return 200, {}
        with self._delivered() as database:
            if database.execute("SELECT 1 FROM delivered WHERE key = ?", (message["key"],)).fetchone():
                return 200, {"id": message["key"]}
        outgoing = {"employee_code": message["chat"], "message": {"tag": "text", "text": {"content": message["text"]}}}
        status, _ = self._post(self.settings["platform"], outgoing, signed=False)
        if status == 429:
            return 429, {"error": "the platform is busy"}
        if status != 200:
            return 502, {"error": f"the platform said {status}"}
        with self._delivered() as database:
            database.execute("INSERT OR IGNORE INTO delivered VALUES (?)", (message["key"],))
        return 200, {"id": message["key"]}

    # Both ways.

    def _sign(self, timestamp: str, body: bytes) -> str:
        return "v1=" + hmac.new(self.secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()

    def _post(self, url: str, content: object, *, signed: bool) -> tuple[int, bytes]:
        body, timestamp = json.dumps(content).encode(), str(int(time.time()))
        headers = {"Content-Type": "application/json"}
        if signed:
            headers |= {"X-Holdfast-Timestamp": timestamp, "X-Holdfast-Signature": self._sign(timestamp, body)}
        else:
            headers["Authorization"] = f"Bearer {self.settings['platform_token']}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10) as answer:  # noqa: S310 # from our own settings
                return answer.status, answer.read()
        except urllib.error.HTTPError as e:
            return e.code, e.read()
        except OSError:
            return 503, b""


def handler(bridge: Bridge) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the library's name
            body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), MAX_BODY))
            try:
                status, answer = self._answer(body)
            except (ValueError, KeyError, TypeError) as e:
                status, answer = 400, {"error": f"not understood: {e}"}
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _answer(self, body: bytes) -> tuple[int, dict[str, object]]:
            if self.path == "/callback":
                if bridge.is_from_platform(body, self.headers.get("Signature", "")):
                    return bridge.take_in(body)
            elif self.path == "/out":
                timestamp = self.headers.get("X-Holdfast-Timestamp", "")
                if bridge.is_from_holdfast(body, timestamp, self.headers.get("X-Holdfast-Signature", "")):
                    return bridge.send(body)
            return 401, {"error": "the signature is wrong"}

        def log_message(self, format: str, *args: object) -> None:  # the library's name
            """Quiet: what matters is in the answers."""

    return Handler


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    host, _, port = settings["listen"].rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), handler(Bridge(settings)))
    print(f"the bridge listens on {settings['listen']}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
