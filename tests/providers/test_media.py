import base64

import pytest

from holdfast.model.message import File, Image
from holdfast.providers import media

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


def data_url(content: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def test_an_image_in_a_data_url_is_sent_in_the_request() -> None:
    found = media.load_image(Image(data_url(PNG)))

    assert found == media.InlineContent("image/png", base64.b64encode(PNG).decode(), PNG)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a..", "image/gif"),
        (b"RIFF....WEBPVP8 ", "image/webp"),
    ],
)
def test_the_type_of_an_image_comes_from_its_bytes_not_its_label(content: bytes, kind: str) -> None:
    found = media.load_image(Image(data_url(content, "image/bmp")))

    assert isinstance(found, media.InlineContent)
    assert found.media_type == kind


def test_an_image_url_is_sent_as_a_url() -> None:
    assert media.load_image(Image("https://example.org/a.png?x=1")) == "https://example.org/a.png?x=1"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file:photo.png",
        "ftp://example.org/a.png",
        "http://",
        "https://example.org/a b.png",
        "https://example.org/\ud800",
        "data:",
        "data:image/png;base64,",
        "data:image/png;base64,not base64!",
        "data:image/png;base64,\ud800",
        "data:image/png,%89PN\ud800",
        data_url(b"plain words"),
        data_url(PNG + bytes(media.MAX_IMAGE_CHARACTERS)),
    ],
)
def test_an_image_that_vendors_would_refuse_is_not_sent(url: str) -> None:
    assert media.load_image(Image(url)) is None
    assert media.placeholder(Image(url[:80])).startswith("[image that cannot be shown here: ")


def test_a_text_file_is_sent_as_text() -> None:
    assert media.load_text_file(File(data_url(b"a,b\n1,2", "text/csv"), name="t.csv")) == "[file t.csv]\na,b\n1,2"
    assert media.load_text_file(File("data:text/plain,two%20words")) == "[file unnamed]\ntwo words"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a\0b"])
def test_a_binary_file_is_not_sent(content: bytes) -> None:
    assert media.load_text_file(File(data_url(content))) is None


def test_a_pdf_is_recognised_by_its_bytes() -> None:
    assert media.load_pdf(File(data_url(b"%PDF-1.7", "text/plain"))) is not None
    assert media.load_pdf(File(data_url(b"no pdf", "application/pdf"))) is None
    assert media.load_pdf(File("https://example.org/a.pdf")) is None


def test_a_note_never_contains_the_data_itself() -> None:
    assert media.placeholder(File(data_url(b"\xff" * 500, "application/zip"), media_type="application/zip")) == (
        "[file that cannot be shown here: application/zip]"
    )
    assert media.placeholder(File("file:notes.zip")) == "[file that cannot be shown here: file:notes.zip]"
