"""Images in the terminal: each protocol is parsed again, as a terminal does."""

import base64
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from holdfast.cli.chat.output.image_protocols import Protocol, detect_protocol, encode_image
from holdfast.cli.chat.output.png_pixels import MAX_PIXELS, decode_png
from holdfast.cli.turn_output import describe_event
from holdfast.model.entry import Entry
from holdfast.model.event import ToolEnded
from holdfast.model.message import Image as ImagePart
from holdfast.model.message import Text
from tests.cli.terminal import ENTER, Terminal
from tests.fakes.images_server import ImagesServer, draw, sample

KITTY = re.compile(r"\x1b_G([^;\x1b]*);([A-Za-z0-9+/=]*)\x1b\\")
ITERM = re.compile(r"\x1b\]1337;File=([^:]*):([A-Za-z0-9+/=]*)\x07")
SIXEL = re.compile(r"\x1bP0;1;0q(.*?)\x1b\\", re.DOTALL)
PROTOCOLS: tuple[Protocol, ...] = ("kitty", "iterm2", "sixel")
LARGE = sample(size=(640, 400))


def parse_kitty(text: str) -> tuple[dict[str, str], bytes]:
    """The keys and the content of the image, which comes in chunks."""
    chunks = KITTY.findall(text)
    keys = [dict(pair.split("=") for pair in head.split(",")) for head, _ in chunks]

    assert all(0 < len(data) <= 4096 and (len(data) % 4 == 0) for _, data in chunks)
    assert [key["m"] for key in keys] == ["1"] * (len(chunks) - 1) + ["0"]
    assert all(set(key) == {"m"} for key in keys[1:])
    return keys[0], base64.b64decode("".join(data for _, data in chunks), validate=True)


def parse_iterm(text: str) -> tuple[dict[str, str], bytes]:
    [(head, data)] = ITERM.findall(text)
    return dict(pair.split("=") for pair in head.split(";")), base64.b64decode(data, validate=True)


def parse_sixel(text: str) -> tuple[tuple[int, int], dict[tuple[int, int], tuple[int, int, int]]]:
    """The size and the painted pixels."""
    [body] = SIXEL.findall(text)
    tokens = re.findall(r'"[\d;]+|#\d+(?:;2;\d+;\d+;\d+)?|!\d+[?-~]|[?-~]|[$-]', body)
    assert "".join(tokens) == body
    palette: dict[int, tuple[int, int, int]] = {}
    painted: dict[tuple[int, int], tuple[int, int, int]] = {}
    width = height = x = y = color = 0
    for token in tokens:
        if token[0] == '"':
            width, height = (int(number) for number in token.split(";")[2:])
        elif token[0] == "#":
            color, *rest = (int(number) for number in token[1:].split(";"))
            if rest:
                red, green, blue = (part * 255 // 100 for part in rest[1:])
                palette[color] = (red, green, blue)
        elif token in "$-":
            x, y = 0, y + 6 * (token == "-")
        else:
            count = int(token[1:-1]) if token[0] == "!" else 1
            bits = [bit for bit in range(6) if (ord(token[-1]) - 63) >> bit & 1]
            painted |= {(x + step, y + bit): palette[color] for step in range(count) for bit in bits}
            x += count
    return (width, height), painted


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm2"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm2"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "foot-extra"}, "sixel"),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "footling"}, None),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}, None),
        ({"TERM": "screen-256color", "TERM_PROGRAM": "iTerm.app"}, None),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app", "STY": "1.pts"}, None),
        ({}, None),
    ],
)
def test_only_known_terminals_get_images(environment: Mapping[str, str], protocol: str | None) -> None:
    assert detect_protocol(environment) == protocol


def test_kitty_gets_the_file_in_chunks_and_is_asked_not_to_answer() -> None:
    noise = Image.effect_noise((200, 100), 90)
    out = io.BytesIO()
    noise.save(out, "PNG")
    keys, content = parse_kitty(encode_image(out.getvalue(), "kitty", 78) or "")

    assert content == out.getvalue()
    assert {**keys, "m": ""} == {"a": "T", "f": "100", "c": "20", "q": "2", "m": ""}


def test_iterm2_gets_the_file_whatever_its_format() -> None:
    for kind in ("PNG", "JPEG", "WEBP", "GIF"):
        made = sample(kind, size=(640, 400))
        keys, content = parse_iterm(encode_image(made, "iterm2", 40) or "")

        assert content == made
        assert keys == {"size": str(len(made)), "width": "40", "preserveAspectRatio": "1", "inline": "1"}


def test_sixels_paint_the_picture() -> None:
    size, painted = parse_sixel(encode_image(LARGE, "sixel", 30) or "")
    wanted = Image.open(io.BytesIO(LARGE)).convert("RGB").resize(size, Image.Resampling.BOX)

    assert size == (300, 187)
    assert len(painted) == 300 * 187
    # Dithering keeps the average colour of each part, and never is off by more than a step.
    smooth = Image.new("RGB", size)
    for place, color in painted.items():
        smooth.putpixel(place, color)
    ours, theirs = (one.resize((10, 10), Image.Resampling.BOX) for one in (smooth, wanted))
    pairs = zip(ours.tobytes(), theirs.tobytes(), strict=True)
    assert max(abs(mine - other) for mine, other in pairs) <= 12


def test_transparent_pixels_are_not_painted() -> None:
    picture = Image.new("RGBA", (8, 7), (255, 0, 0, 255))
    picture.paste((0, 255, 0, 0), (0, 0, 4, 7))
    out = io.BytesIO()
    picture.save(out, "PNG")
    size, painted = parse_sixel(encode_image(out.getvalue(), "sixel", 30) or "")

    assert size == (8, 7)
    assert set(painted) == {(x, y) for x in range(4, 8) for y in range(7)}
    assert set(painted.values()) == {(255, 0, 0)}


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P"])
def test_every_kind_of_png_is_decoded(mode: str) -> None:
    picture = Image.open(io.BytesIO(LARGE)).convert(mode)
    out = io.BytesIO()
    picture.save(out, "PNG")
    image = decode_png(out.getvalue(), 640, 400)

    assert image is not None
    flat = bytes(value for row in image.rows for pixel in row for value in pixel)
    assert flat == picture.convert("RGBA").tobytes()


def test_a_png_that_cannot_be_decoded_is_not_shown() -> None:
    out = io.BytesIO()
    Image.new("1", (9, 9)).save(out, "PNG")
    huge = bytearray(sample())
    huge[16:24] = (MAX_PIXELS).to_bytes(4, "big") + (2).to_bytes(4, "big")

    for content in (out.getvalue(), bytes(huge), LARGE[: len(LARGE) // 2], sample("JPEG")):
        assert encode_image(content, "sixel", 30) is None
    assert encode_image(sample("JPEG"), "kitty", 30) is None
    assert encode_image(b"no image", "iterm2", 30) is None


@given(st.data())
def test_no_damage_to_an_image_raises_or_adds_control_characters(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP"]))
    content = bytearray(sample(kind, size=(24, 12)) if data.draw(st.booleans()) else palette_png())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]

    kitty, iterm, sixel = (encode_image(bytes(content), name, 30) for name in PROTOCOLS)
    assert kitty is None or parse_kitty(kitty)[1] == content
    assert iterm is None or parse_iterm(iterm)[1] == content
    assert sixel is None or parse_sixel(sixel)[0] <= (300, 400)


def palette_png() -> bytes:
    out = io.BytesIO()
    Image.open(io.BytesIO(sample(size=(24, 12)))).convert("P").save(out, "PNG", transparency=3)
    return out.getvalue()


def test_a_high_image_is_narrow_and_a_small_one_is_not_enlarged() -> None:
    high, _ = parse_kitty(encode_image(sample(size=(100, 1000)), "kitty", 78) or "")
    small, _ = parse_kitty(encode_image(sample(size=(15, 15)), "kitty", 78) or "")
    wide, _ = parse_kitty(encode_image(sample(size=(3000, 500)), "kitty", 78) or "")

    assert (high["c"], small["c"], wide["c"]) == ("4", "2", "60")


def test_line_mode_prints_the_path() -> None:
    parts = (Text("Saved as /files/image-1.png (96x64 PNG, 500 bytes)."), ImagePart("data:,", saved_as="image-1.png"))
    made = ToolEnded(turn_id="t", call_id="c", name="make_image", outcome="ok", parts=parts, millis=1200)
    read = msgspec.structs.replace(made, name="read_file", parts=(Text("words"),))

    assert describe_event(Entry(1, 1, made, "")) == f"← make_image: ok (1.2 s): {parts[0].text}"
    assert describe_event(Entry(1, 1, read, "")) == "← read_file: ok (1.2 s)"


def made_in_chat(home: Path, service: ImagesServer, term: str) -> str:
    """What the chat wrote while it made an image."""
    home.mkdir()
    (home / "config.toml").write_text(f'[images]\nbase_url = "{service.url}"\n')
    with Terminal(home, "chat", model="scripted:tools", env={"TERM": term}) as terminal:
        terminal.see("❯")
        terminal.press(f"use tool make_image {json.dumps({'prompt': 'a tree'})}{ENTER}")
        terminal.see("done: make_image")
        return terminal.written.decode("utf-8", "replace")


@pytest.mark.parametrize("term", ["xterm-kitty", "foot", "xterm-256color"])
def test_the_chat_shows_the_image_or_its_path(tmp_path: Path, term: str) -> None:
    with ImagesServer() as service:
        written = made_in_chat(tmp_path / "home", service, term)

    assert "Saved as" in written
    if term == "xterm-kitty":
        assert parse_kitty(written)[1] == draw("a tree")
    elif term == "foot":
        assert parse_sixel(written)[0] == (96, 64)
    else:
        assert not KITTY.search(written)
        assert not SIXEL.search(written)
