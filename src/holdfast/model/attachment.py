"""Content attached to a message: a text part with a header, which lists of messages do not show in full."""

from collections.abc import Iterator

from holdfast.model.message import ATTACHED, Part, Text, is_attached
from holdfast.model.sanitize import one_line


def header(kind: str, name: str, facts: str) -> str:
    """The first line of an attachment."""
    return f"{ATTACHED}{kind} {one_line(name)}: {facts}]"


def attachment_headers(parts: tuple[Part, ...]) -> Iterator[str]:
    """The header of each attachment."""
    for part in parts[1:]:
        if isinstance(part, Text) and is_attached(part):
            yield part.text.removeprefix("\n\n").partition("\n")[0]
