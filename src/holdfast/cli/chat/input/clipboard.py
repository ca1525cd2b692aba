"""Reads an image from the clipboard, with the program of the desktop: a terminal passes on only text."""

import asyncio
import re
import sys
from collections.abc import Mapping

from holdfast.model.errors import Invalid
from holdfast.model.image_format import image_type
from holdfast.tools.read_file import MAX_IMAGE_BYTES

SECONDS = 5.0
APPLESCRIPT = "the clipboard as «class PNGf»"
HEX_DATA = re.compile(rb"\xc2\xabdata PNGf([0-9A-F]+)\xc2\xbb")


def reader(environment: Mapping[str, str], platform: str = sys.platform) -> tuple[str, ...]:
    """The command that prints the image. Raises Invalid without a desktop."""
    if platform == "darwin":
        return ("osascript", "-e", APPLESCRIPT)
    if environment.get("WAYLAND_DISPLAY"):
        return ("wl-paste", "--type", "image/png")
    if environment.get("DISPLAY"):
        return ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")
    raise Invalid("no clipboard here (no DISPLAY or WAYLAND_DISPLAY); attach an image file with @PATH")


async def read_image(environment: Mapping[str, str]) -> bytes:
    """The image in the clipboard. Raises Invalid if there is none."""
    command = reader(environment)
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError as e:
        raise Invalid(f"cannot read the clipboard: {command[0]}: {e.strerror}") from e
    try:
        async with asyncio.timeout(SECONDS):
            content, _ = await process.communicate()
    except TimeoutError as e:
        process.kill()
        await process.wait()
        raise Invalid(f"cannot read the clipboard: {command[0]} did not end within {SECONDS:.0f} s") from e
    if (found := HEX_DATA.search(content)) is not None:
        content = bytes.fromhex(found[1].decode())
    if image_type(content) is None:
        raise Invalid("the clipboard contains no image")
    if len(content) > MAX_IMAGE_BYTES:
        raise Invalid(f"the image in the clipboard has {len(content):,} bytes; the limit is {MAX_IMAGE_BYTES:,}")
    return content
