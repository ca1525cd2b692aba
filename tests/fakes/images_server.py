"""A fake of OpenAI's images API on a loopback port, written from its public reference; it validates requests.

It really edits: it inverts the colours of the first input where the mask is transparent, or everywhere without a mask.
A test defines what happens next by appending to `acts`. The server runs in a thread, so that tests of other processes
can use it, too.
"""

import base64
import io
import json
import re
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from PIL import Image, ImageChops, ImageDraw

Json = dict[str, Any]
DISPOSITION = re.compile(r'form-data; name="([^"]+)"(?:; filename="([^"]*)")?')
SIZE = (96, 64)
BOX = (24, 16, 72, 48)
"""The part of the sample that the sample mask leaves transparent."""


@dataclass
class FormPart:
    name: str
    content: bytes
    file_name: str = ""
    media_type: str = ""


@dataclass
class Received:
    """A request as it arrived. `parts` of an edit, `body` of a generation."""

    path: str
    headers: dict[str, str]
    body: Json = field(default_factory=dict)
    parts: list[FormPart] = field(default_factory=list)

    def text(self, name: str) -> str | None:
        return next((part.content.decode() for part in self.parts if part.name == name), None)

    def files(self, name: str) -> list[FormPart]:
        return [part for part in self.parts if part.name == name and part.file_name]


class ImagesHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_HttpServer"

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        found = self.server.subject.files.get(self.path)
        self.answer(404 if found is None else 200, found or b"", "image/png")

    def do_POST(self) -> None:
        subject = self.server.subject
        content = self.rfile.read(int(self.headers["content-length"]))
        received = parse(self.path, {name.lower(): value for name, value in self.headers.items()}, content)
        subject.requests.append(received)
        if (complaint := self.complain(received)) is not None:
            self.answer_error(400, complaint)
        elif subject.acts:
            subject.acts.popleft()(self)
        else:
            self.fulfil(received)

    def complain(self, received: Received) -> str | None:
        return complain(received)

    def fulfil(self, received: Received) -> None:
        edits = bool(received.parts)
        self.answer_images(self.server.subject.edit(received) if edits else draw(received.body["prompt"]))

    def answer(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def answer_json(self, status: int, body: object, **headers: str) -> None:
        self.answer(status, json.dumps(body).encode(), **headers)

    def answer_error(self, status: int, message: str, code: str = "invalid_request_error", **headers: str) -> None:
        error = {"message": message, "type": "image_generation_user_error", "param": None, "code": code}
        self.answer_json(status, {"error": error}, **headers)

    def answer_images(self, *images: bytes) -> None:
        data = [{"b64_json": base64.b64encode(image).decode()} for image in images]
        self.answer_json(200, {"created": 1, "data": data, "usage": {"total_tokens": 100}})


Act = Callable[[ImagesHandler], None]


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    subject: "ImagesServer"

    def handle_error(self, request: object, client_address: object) -> None:
        """Print what went wrong, unless the client disconnected, which some tests do."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type] # it only prints the address


class ImagesServer:
    handler: type[ImagesHandler] = ImagesHandler

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.acts: deque[Act] = deque()
        self.files: dict[str, bytes] = {}
        """What a URL in a reply can name."""
        self.hanging = threading.Event()
        """Set while a request gets no answer."""
        self._released = threading.Event()
        self._http = _HttpServer(("127.0.0.1", 0), self.handler)
        self._http.subject = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def hang(self, handler: ImagesHandler) -> None:
        self.hanging.set()
        self._released.wait()
        handler.close_connection = True

    def edit(self, received: Received) -> bytes:
        inputs = received.files("image") or received.files("image[]")
        masks = received.files("mask")
        return edited(inputs[0].content, masks[0].content if masks else None)


def parse(path: str, headers: dict[str, str], content: bytes) -> Received:
    kind, _, parameter = headers["content-type"].partition("; boundary=")
    if kind != "multipart/form-data":
        return Received(path, headers, body=json.loads(content))
    start, end = b"--" + parameter.encode() + b"\r\n", b"\r\n--" + parameter.encode()
    assert content.startswith(start)
    assert content.endswith(end + b"--\r\n")
    inner = content.removeprefix(start).removesuffix(end + b"--\r\n")
    return Received(path, headers, parts=[_form_part(part) for part in inner.split(end + b"\r\n")])


def _form_part(part: bytes) -> FormPart:
    head, _, content = part.partition(b"\r\n\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.decode().split("\r\n"))}
    found = DISPOSITION.fullmatch(headers["content-disposition"])
    assert found is not None, headers
    return FormPart(found[1], content, found[2] or "", headers.get("content-type", ""))


def complain(received: Received) -> str | None:
    """The vendor's error for the request, if any."""
    if received.path == "/v1/images/generations":
        known = {"model", "prompt", "n", "size"}
        return None if set(received.body) <= known and received.body.get("prompt") else "Unknown parameter"
    if received.path != "/v1/images/edits":
        return f"Invalid URL (POST {received.path})"
    names = [part.name for part in received.parts]
    if set(names) - {"model", "prompt", "n", "size", "image", "image[]", "mask"}:
        return "Unknown parameter"
    if names.count("image") > 1 or ("image" in names and "image[]" in names):
        return "Duplicate parameter: 'image'. You provided multiple values for this parameter."
    kinds = {part.media_type for part in received.parts if part.file_name}
    return None if kinds <= {"image/png", "image/jpeg", "image/webp"} else "Unsupported mimetype"


def draw(prompt: str) -> bytes:
    """A picture of the prompt."""
    picture = Image.new("RGB", SIZE, "white")
    ImageDraw.Draw(picture).text((4, 4), prompt[:12], fill="black")
    return png(picture)


def edited(content: bytes, mask: bytes | None) -> bytes:
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    changed = ImageChops.invert(picture)
    if mask is None:
        return png(changed)
    opaque = Image.open(io.BytesIO(mask)).convert("RGBA").getchannel("A").point(lambda alpha: 255 if alpha else 0)
    return png(Image.composite(picture, changed, opaque))


def png(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def sample(kind: str = "PNG", size: tuple[int, int] = SIZE) -> bytes:
    """A photo of a sunset, as far as a gradient can be one."""
    rows = Image.linear_gradient("L").resize(size)
    columns = rows.transpose(Image.Transpose.ROTATE_90).resize(size)
    picture = Image.merge("RGB", (columns, rows, Image.new("L", size, 160)))
    out = io.BytesIO()
    picture.save(out, kind)
    return out.getvalue()


def sample_mask(size: tuple[int, int] = SIZE, box: tuple[int, int, int, int] = BOX) -> bytes:
    """Opaque, with a transparent box in the middle."""
    mask = Image.new("RGBA", size, (0, 0, 0, 255))
    mask.paste((0, 0, 0, 0), box)
    return png(mask)
