"""The content of a message: text, pictures and files, as parts."""

from typing import Any

from holdfast.api.errors import Refusal
from holdfast.model.message import Content as Part
from holdfast.model.message import File, Image, Text
from holdfast.providers import media

Content = str | list[dict[str, Any]]
"""As the client writes it."""


def content(given: Content | None, where: str) -> tuple[Part, ...]:
    """The parts of a message. Raises a Refusal that names the one that cannot be taken."""
    if given is None:
        return ()
    if isinstance(given, str):
        return (Text(given),)
    if not given:
        raise Refusal(400, "invalid_request", f"{where}: an empty list is no content", where)
    return tuple(part_of(part, f"{where}[{n}]") for n, part in enumerate(given))


def text_only(given: Content | None, where: str) -> str:
    """The words of a message that can hold nothing else."""
    parts = content(given, f"{where}.content")
    if not all(isinstance(part, Text) for part in parts):
        raise Refusal(400, "invalid_request", f"{where}: system text can hold only text", f"{where}.content")
    return "".join(part.text for part in parts if isinstance(part, Text))


def part_of(part: dict[str, Any], where: str) -> Part:
    """One part. Raises a Refusal if it cannot be taken."""
    kind = part.get("type")
    match kind:
        case "text" | "refusal":
            return Text(_string(part, str(kind), where))
        case "image_url":
            return _image(part.get("image_url"), f"{where}.image_url")
        case "file":
            return _file(part.get("file"), f"{where}.file")
        case _:
            told = f"{where}: a part is text, image_url or file, not {kind!r}"
            raise Refusal(400, "unsupported_content", told, f"{where}.type")


def _string(part: object, name: str, where: str) -> str:
    value = part.get(name) if isinstance(part, dict) else None
    if not isinstance(value, str):
        raise Refusal(400, "invalid_type", f"{where}.{name} must be a text", f"{where}.{name}")
    return value


def _image(given: object, where: str) -> Image:
    url = _string(given, "url", where)
    detail = given.get("detail") if isinstance(given, dict) else None
    image = Image(url, detail=detail if detail in ("auto", "low", "high") else "")
    if len(url) > media.MAX_PICTURE_CHARACTERS and not media.is_link(url):
        told = f"{where}: a picture of {len(url):,} characters is over the limit of {media.MAX_PICTURE_CHARACTERS:,}"
        raise Refusal(413, "image_too_large", told, where)
    if media.picture(image) is None:
        told = f"{where}: a picture is an http(s) address, or a data URL in base64 of a PNG, JPEG, GIF or WebP"
        raise Refusal(400, "invalid_image", told, where)
    return image


def _file(given: object, where: str) -> File:
    if isinstance(given, dict) and given.get("file_id"):
        raise Refusal(400, "unsupported_content", f"{where}: files by id are not supported; send file_data", where)
    data = _string(given, "file_data", where)
    name = given.get("filename") if isinstance(given, dict) else None
    file = File(data, name=name if isinstance(name, str) else "")
    if len(data) > media.MAX_FILE_CHARACTERS:
        told = f"{where}: a file of {len(data):,} characters is over the limit of {media.MAX_FILE_CHARACTERS:,}"
        raise Refusal(413, "file_too_large", told, where)
    if media.document(file) is None and media.text_file(file) is None:
        raise Refusal(400, "invalid_file", f"{where}: a file is a data URL in base64 of a PDF or of text", where)
    return file
