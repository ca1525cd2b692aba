"""Images are recognized by their content."""

import io

import pytest
from PIL import Image

from holdfast.model.image_format import image_size, image_type

KINDS = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}


def encode(kind: str, size: tuple[int, int] = (300, 20), mode: str = "RGB", **options: object) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size).save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        *(encode(kind) for kind in KINDS),
        encode("JPEG", progressive=True, comment=b"words" * 100),
        encode("WEBP", lossless=True),
        encode("WEBP", mode="RGBA", exif=b"Exif\0\0"),
    ],
)
def test_the_size_is_that_of_the_header(content: bytes) -> None:
    assert image_size(content) == (300, 20)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_image_has_a_type_but_never_a_wrong_size(kind: str) -> None:
    content = encode(kind)

    assert image_type(content[:12]) == KINDS[kind]
    assert {image_size(content[:length]) for length in range(len(content))} <= {None, (300, 20)}


@pytest.mark.parametrize("content", [b"", b"GIF", b"<svg/>", b"RIFF1234WAVE", b"\x89PNG\r\n\x1a\r", b"%PDF-1.7"])
def test_anything_else_is_no_image(content: bytes) -> None:
    assert image_type(content) is None
    assert image_size(content) is None


def test_a_size_of_zero_is_none() -> None:
    content = bytearray(encode("PNG"))
    content[16:20] = bytes(4)

    assert image_size(bytes(content)) is None
