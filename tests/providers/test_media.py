import base64

import pytest

from holdfast.model.message import File, Image
from holdfast.providers import media

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


def data_url(content: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def test_a_picture_in_a_data_url_travels_in_the_request() -> None:
    found = media.picture(Image(data_url(PNG)))

    assert found == media.Inline("image/png", base64.b64encode(PNG).decode(), PNG)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a..", "image/gif"),
        (b"RIFF....WEBPVP8 ", "image/webp"),
    ],
)
def test_a_picture_is_what_its_bytes_say_and_not_its_label(content: bytes, kind: str) -> None:
    found = media.picture(Image(data_url(content, "image/bmp")))

    assert isinstance(found, media.Inline)
    assert found.media_type == kind


def test_an_address_on_the_web_stays_one() -> None:
    assert media.picture(Image("https://example.org/a.png?x=1")) == "https://example.org/a.png?x=1"


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
        data_url(PNG + bytes(media.MAX_PICTURE_CHARACTERS)),
    ],
)
def test_a_picture_that_vendors_would_refuse_is_not_sent(url: str) -> None:
    assert media.picture(Image(url)) is None
    assert media.note(Image(url[:80])).startswith("[a picture that cannot be shown here: ")


def test_a_file_of_text_is_read_to_the_model() -> None:
    assert media.text_file(File(data_url(b"a,b\n1,2", "text/csv"), name="t.csv")) == "[file t.csv]\na,b\n1,2"
    assert media.text_file(File("data:text/plain,two%20words")) == "[file without a name]\ntwo words"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a\0b"])
def test_a_file_that_is_not_text_is_not_read_to_the_model(content: bytes) -> None:
    assert media.text_file(File(data_url(content))) is None


def test_a_pdf_is_known_by_its_bytes() -> None:
    assert media.document(File(data_url(b"%PDF-1.7", "text/plain"))) is not None
    assert media.document(File(data_url(b"no pdf", "application/pdf"))) is None
    assert media.document(File("https://example.org/a.pdf")) is None


def test_a_note_never_holds_the_data_itself() -> None:
    assert media.note(File(data_url(b"\xff" * 500, "application/zip"), media_type="application/zip")) == (
        "[a file that cannot be shown here: application/zip]"
    )
    assert media.note(File("file:notes.zip")) == "[a file that cannot be shown here: file:notes.zip]"
