"""Parses a mail: its text, attachments and sender. Pure."""

import base64
import html
import re
from email.message import EmailMessage, MIMEPart
from email.utils import parseaddr
from typing import Any

from holdfast.gateway.port import Attachment
from holdfast.model.errors import Invalid
from holdfast.model.text import decode_text

TRUNCATED_HEADER = "X-Holdfast-Cut"
"""Our own header on a mail that was not read completely: its size."""
QUOTED = re.compile(r"\n+(?:[^\n>]{0,200}:\s*\n)?(?:>[^\n]*(?:\n|$))+\s*$")
"""The quoted mail at the end of a reply, with the line that introduces it."""
AUTOMATED_SENDERS = re.compile(r"^(mailer-daemon|postmaster|no-?reply|bounces?)([+@-]|$)", re.IGNORECASE)


def read_header(mail: EmailMessage, name: str) -> str:
    """A header as one line; empty if it is missing or cannot be parsed."""
    try:
        return one_line(str(mail[name] or ""))
    except (ValueError, AttributeError, IndexError):
        return ""


def parse_sender(mail: EmailMessage) -> tuple[str, str]:
    """The name and the address in From. Raises Invalid unless there is exactly one."""
    try:
        addresses = mail["from"].addresses
        found = [(str(one.display_name), str(one.addr_spec)) for one in addresses]
    except (ValueError, AttributeError, IndexError):
        found = [parseaddr(read_header(mail, "from"))]
    if len(found) != 1 or "@" not in found[0][1]:
        raise Invalid("it has no sender or several senders")
    return found[0]


def one_line(text: str) -> str:
    return " ".join(text.split())


def body_text(mail: EmailMessage) -> str:
    """The text of a mail without the quoted mail at its end."""
    part = mail.get_body(("plain", "html"))
    if part is None:
        return read_header(mail, "subject")
    content = _decode_part(part)
    if part.get_content_subtype() == "html":
        content = html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"(?is)<(script|style).*?</\1>", " ", content)))
    content = content.replace("\r\n", "\n")
    return (QUOTED.sub("", content).strip() or content.strip()) or read_header(mail, "subject")


def _decode_part(part: "MIMEPart[Any, Any]") -> str:
    """The text of a part, even if its declared encoding is wrong."""
    raw = part.get_payload(decode=True)
    return decode_text(raw, part.get_content_charset("utf-8")) if isinstance(raw, bytes) else ""


def list_attachments(mail: EmailMessage) -> list[Attachment]:
    """The attachments of a mail with their content; for a mail that was not read completely, only their names."""
    truncated, found = read_header(mail, TRUNCATED_HEADER), []
    for part in mail.iter_attachments():
        content = part.get_payload(decode=True)
        data = content if isinstance(content, bytes) else part.as_bytes()
        name = part.get_filename() or "file"
        ref = "" if truncated else base64.b64encode(data).decode("ascii")
        size = None if truncated else len(data)
        found.append(Attachment(ref=ref, name=str(name), media_type=part.get_content_type(), size=size))
    return found


def is_automated(mail: EmailMessage, sender: str) -> bool:
    automatic = read_header(mail, "auto-submitted").lower() not in ("", "no")
    bulk = read_header(mail, "precedence").lower() in ("bulk", "list", "junk", "auto_reply")
    listed = bool(mail["list-id"]) or read_header(mail, "return-path") == "<>"
    return automatic or bulk or listed or AUTOMATED_SENDERS.match(sender) is not None
