"""Makes and edits images with a paid service. The results are files of the session.

A file is durable before the event that names it is committed. Its name is the hash of its content, so that it never changes.
"""

import asyncio
import base64
import hashlib
import os
import re
from pathlib import Path

import msgspec

from holdfast.model.errors import BadReply, Invalid, ProviderFailed, Unavailable, Unreachable
from holdfast.model.finding import Finding
from holdfast.model.image_format import EXTENSIONS, image_size
from holdfast.model.image_service import ImageContent, ImageRequest, ImageService
from holdfast.model.message import Content, Image, Text
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.store import durable_file
from holdfast.store.database import Database
from holdfast.tools.backends.registry import Backends, only_local
from holdfast.tools.home_guard import find_read_risks
from holdfast.tools.image_inputs import check_mask, is_attached, list_attached, load_attached, load_file, load_from
from holdfast.tools.spec import load_spec

MAX_PROMPT = 32_000
"""Characters; the limit of OpenAI."""
MAX_INPUTS = 16
MAX_COUNT = 4
MAX_SHOWN = 5 * 1024 * 1024
"""Characters of base64 that a provider accepts for one image."""
MAX_LOGGED = 8 * 1024 * 1024
"""Characters of base64 in one event; arbitrary. Further images are only files."""
SIZE = re.compile(r"auto|[1-9][0-9]{1,3}x[1-9][0-9]{1,3}")
MAY_COST = "The service may have made the image and charged for it: ask the user before you try again."


class MakeImageArguments(msgspec.Struct, frozen=True):
    prompt: str
    inputs: tuple[str, ...] = ()
    mask: str = ""
    size: str = ""
    count: int = 1


class MakeImageTool:
    repeatable = False
    spec = load_spec(
        "make_image",
        {
            "prompt": {"type": "string", "description": "What to make, or how to change the inputs."},
            "inputs": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Images to edit or combine: paths, or `attached:1` for an image of the user.",
            },
            "mask": {
                "type": "string",
                "description": "A PNG; only its transparent pixels may change in the first input.",
            },
            "size": {
                "type": "string",
                "description": "WIDTHxHEIGHT in pixels, for example 1024x1024; default: `auto`.",
            },
            "count": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_COUNT,
                "description": "How many variants to make; default 1. Each costs money.",
            },
        },
        ("prompt",),
    )

    def __init__(
        self, database: Database, service: ImageService, *, home: Path | None = None, backends: Backends | None = None
    ) -> None:
        self._backends = backends or only_local()
        self._database = database
        self._service = service
        self._home = home

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        named = _paths(msgspec.convert(arguments, MakeImageArguments))
        return tuple(finding for path in named for finding in find_read_risks(path, context, self._home))

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, MakeImageArguments)
        report = context.host.report if context.host is not None else _ignore
        try:
            made = await self._service.make(await self._request(parsed, context), report)
            return await asyncio.to_thread(_save_all, made, context.files)
        except (Unreachable, BadReply) as e:
            return ToolOutput.say(f"{e}. {MAY_COST}", ok=False)
        except (Invalid, ProviderFailed, Unavailable) as e:
            return ToolOutput.say(str(e), ok=False)
        except OSError as e:
            return ToolOutput.say(f"an image could not be read or saved: {e.strerror}", ok=False)

    async def _request(self, parsed: MakeImageArguments, context: ToolContext) -> ImageRequest:
        """The request with its images loaded. Raises Invalid or OSError before anything is sent."""
        _check(parsed)
        needs_log = any(map(is_attached, (*parsed.inputs, parsed.mask)))
        attached = await self._database.read(list_attached, context.session_id) if needs_log else ()

        inputs = [await self._load(name, attached, context) for name in parsed.inputs]
        mask = await self._load(parsed.mask, attached, context) if parsed.mask else None
        if mask is not None:
            check_mask(mask, inputs[0])
        return ImageRequest(prompt=parsed.prompt, inputs=tuple(inputs), mask=mask, size=parsed.size, count=parsed.count)

    async def _load(self, name: str, attached: tuple[str, ...], context: ToolContext) -> ImageContent:
        if is_attached(name):
            return await asyncio.to_thread(load_attached, name, attached)
        backend = self._backends.of(context)
        if not backend.is_direct:
            return await load_from(backend, name, context, self._home)
        return await asyncio.to_thread(load_file, name, context, self._home)


def _ignore(text: str) -> None:
    """Nobody watches."""


def _paths(parsed: MakeImageArguments) -> list[str]:
    return [name for name in (*parsed.inputs, parsed.mask) if name and not is_attached(name)]


def _check(parsed: MakeImageArguments) -> None:
    if not parsed.prompt.strip():
        raise Invalid("the prompt is empty")
    if len(parsed.prompt) > MAX_PROMPT:
        raise Invalid(f"the prompt has {len(parsed.prompt):,} characters; the limit is {MAX_PROMPT:,}")
    if len(parsed.inputs) > MAX_INPUTS:
        raise Invalid(f"there are {len(parsed.inputs)} inputs; the limit is {MAX_INPUTS}")
    if parsed.mask and not parsed.inputs:
        raise Invalid("a mask needs an input that it belongs to")
    if parsed.size and not SIZE.fullmatch(parsed.size):
        raise Invalid(f"the size {parsed.size!r} is not WIDTHxHEIGHT, for example 1024x1024")


def _save_all(made: list[ImageContent], folder: Path) -> ToolOutput:
    lines, images = [], []
    room = MAX_LOGGED
    for image in made:
        path = save(image, folder)
        width, height = image_size(image.content) or (0, 0)
        kind = image.media_type.partition("/")[2].upper()
        lines.append(f"Saved as {path} ({width}x{height} {kind}, {len(image.content):,} bytes).")
        data = base64.b64encode(image.content).decode("ascii")
        is_shown = len(data) <= min(MAX_SHOWN, room)
        room -= len(data) if is_shown else 0
        url = f"data:{image.media_type};base64,{data}" if is_shown else f"file:{path.name}"
        images.append(Image(url, image.media_type, saved_as=path.name))
    parts: tuple[Content, ...] = (Text("\n".join(lines)), *images)
    return ToolOutput(parts=parts)


def save(image: ImageContent, folder: Path) -> Path:
    """Save the image so that it survives a power cut, readable only by its owner. Saving it again changes nothing."""
    name = f"image-{hashlib.sha256(image.content).hexdigest()[:24]}{EXTENSIONS[image.media_type]}"
    durable_file.make_folders(folder, mode=0o700)
    partial = folder / f".{name}.{os.getpid()}.partial"
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(image.content)
        durable_file.rename(partial, folder / name)
    finally:
        partial.unlink(missing_ok=True)
    return folder / name
