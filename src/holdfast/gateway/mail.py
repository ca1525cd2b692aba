"""What a mail says: its words, what comes with it, and who wrote it. Pure."""

import base64
import html
import re
from email.message import EmailMessage, MIMEPart
from typing import Any

from holdfast.gateway.port import Attachment

CUT = "X-Holdfast-Cut"
"""A header of ours on a mail that was not read whole: how long it is."""
QUOTED = re.compile(r"\n+(?:[^\n>]{0,200}:\s*\n)?(?:>[^\n]*(?:\n|$))+\s*$")
"""What the mail that is answered had said, at the end of a text, with the line that introduces it."""
MACHINES = re.compile(r"^(mailer-daemon|postmaster|no-?reply|bounces?)([+@-]|$)", re.IGNORECASE)


def header(mail: EmailMessage, name: str) -> str:
    """A header as one line; one that cannot be read counts as absent."""
    try:
        return one_line(str(mail[name] or ""))
    except (ValueError, AttributeError, IndexError):
        return ""


def one_line(text: str) -> str:
    return " ".join(text.split())


def text(mail: EmailMessage) -> str:
    """The words of a mail, without what it quotes at its end."""
    part = mail.get_body(("plain", "html"))
    if part is None:
        return header(mail, "subject")
    content = _content(part)
    if part.get_content_subtype() == "html":
        content = html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"(?is)<(script|style).*?</\1>", " ", content)))
    content = content.replace("\r\n", "\n")
    return (QUOTED.sub("", content).strip() or content.strip()) or header(mail, "subject")


def _content(part: "MIMEPart[Any, Any]") -> str:
    """The text of a part, whatever it says about its encoding."""
    try:
        return str(part.get_content())
    except (LookupError, ValueError, KeyError):
        raw = part.get_payload(decode=True)
        return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else ""


def attachments(mail: EmailMessage) -> list[Attachment]:
    """What comes with a mail, each with its content. Of one that was not read whole only the names are known."""
    whole, found = header(mail, CUT), []
    for part in mail.iter_attachments():
        content = part.get_payload(decode=True)
        data = content if isinstance(content, bytes) else part.as_bytes()
        name = part.get_filename() or "file"
        ref = "" if whole else base64.b64encode(data).decode("ascii")
        size = None if whole else len(data)
        found.append(Attachment(ref=ref, name=str(name), media_type=part.get_content_type(), size=size))
    return found


def is_of_a_machine(mail: EmailMessage, sender: str) -> bool:
    automatic = header(mail, "auto-submitted").lower() not in ("", "no")
    bulk = header(mail, "precedence").lower() in ("bulk", "list", "junk", "auto_reply")
    listed = bool(mail["list-id"]) or header(mail, "return-path") == "<>"
    return automatic or bulk or listed or MACHINES.match(sender) is not None


def is_authentic(mail: EmailMessage, authserv: str) -> bool:
    """Whether our own mail server, and not somebody in its name, vouches for the sender: it writes above all others."""
    results = mail.get_all("authentication-results") or []
    first = one_line(str(results[0])).lower() if results else ""
    return first.split(";")[0].split()[:1] == [authserv] and "dmarc=pass" in first
