"""Parse the content of a message: text, images and files."""

from typing import Any

from holdfast.api.errors import ApiError
from holdfast.model.message import Content as Part
from holdfast.model.message import File, Image, Text
from holdfast.providers import media

Content = str | list[dict[str, Any]]
"""As sent by the client."""


def parse_content(given: Content | None, where: str) -> tuple[Part, ...]:
    """Parse the parts of a message. Raises ApiError naming the invalid one."""
    if given is None:
        return ()
    if isinstance(given, str):
        return (Text(given),)
    if not given:
        raise ApiError(400, "invalid_request", f"{where}: content is an empty list", where)
    return tuple(parse_part(part, f"{where}[{n}]") for n, part in enumerate(given))


def parse_text(given: Content | None, where: str) -> str:
    """Parse the content of a message that may contain only text."""
    parts = parse_content(given, f"{where}.content")
    if not all(isinstance(part, Text) for part in parts):
        raise ApiError(400, "invalid_request", f"{where}: system messages may contain only text", f"{where}.content")
    return "".join(part.text for part in parts if isinstance(part, Text))


def parse_part(part: dict[str, Any], where: str) -> Part:
    """Parse one part. Raises ApiError if it is invalid."""
    kind = part.get("type")
    match kind:
        case "text" | "refusal":
            return Text(_string(part, str(kind), where))
        case "image_url":
            return _image(part.get("image_url"), f"{where}.image_url")
        case "file":
            return _file(part.get("file"), f"{where}.file")
        case _:
            reason = f"{where}: part type must be text, image_url or file, not {kind!r}"
            raise ApiError(400, "unsupported_content", reason, f"{where}.type")


def _string(part: object, name: str, where: str) -> str:
    value = part.get(name) if isinstance(part, dict) else None
    if not isinstance(value, str):
        raise ApiError(400, "invalid_type", f"{where}.{name} must be a string", f"{where}.{name}")
    return value


def _image(given: object, where: str) -> Image:
    url = _string(given, "url", where)
    detail = given.get("detail") if isinstance(given, dict) else None
    image = Image(url, detail=detail if detail in ("auto", "low", "high") else "")
    if len(url) > media.MAX_IMAGE_CHARACTERS and not media.is_link(url):
        reason = f"{where}: an image of {len(url):,} characters exceeds the limit of {media.MAX_IMAGE_CHARACTERS:,}"
        raise ApiError(413, "image_too_large", reason, where)
    if media.load_image(image) is None:
        reason = f"{where}: an image must be an http(s) URL or a base64 data URL of a PNG, JPEG, GIF or WebP"
        raise ApiError(400, "invalid_image", reason, where)
    return image


def _file(given: object, where: str) -> File:
    if isinstance(given, dict) and given.get("file_id"):
        raise ApiError(400, "unsupported_content", f"{where}: files by id are not supported; send file_data", where)
    data = _string(given, "file_data", where)
    name = given.get("filename") if isinstance(given, dict) else None
    file = File(data, name=name if isinstance(name, str) else "")
    if len(data) > media.MAX_FILE_CHARACTERS:
        reason = f"{where}: a file of {len(data):,} characters exceeds the limit of {media.MAX_FILE_CHARACTERS:,}"
        raise ApiError(413, "file_too_large", reason, where)
    if media.load_pdf(file) is None and media.load_text_file(file) is None:
        raise ApiError(400, "invalid_file", f"{where}: a file must be a base64 data URL of a PDF or of text", where)
    return file
