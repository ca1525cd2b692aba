"""E-mail: an IMAP mailbox is read, replies go out by SMTP. One session for each correspondent.

How far the mailbox was read is kept together with the mails. A mail that is sent again has the same Message-ID, by which mail
programs and many servers know it. Mails of machines are never answered, so that two programs cannot write to each
other for ever. Anybody can write any sender into a mail: see `authserv` in `docs/gateway.md`.
"""

import asyncio
import email
import email.policy
import hashlib
import html
import json
import re
import smtplib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import EmailMessage, MIMEPart
from email.utils import formatdate, parseaddr
from pathlib import Path
from typing import Any, cast

from aioimaplib import IMAP4, IMAP4_SSL, Abort, Error, Response

from holdfast.gateway import web
from holdfast.gateway.port import (
    Attachment,
    Fate,
    Incoming,
    Inlet,
    Later,
    Limits,
    Never,
    Options,
    Outgoing,
    Platform,
    Sent,
    Unsure,
    reason,
)
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import SECOND, Clock

IMAP_SECONDS = 30.0
IDLE_SECONDS = 300.0
SMTP_SECONDS = 15.0
MAX_MAIL = 20 * 1024 * 1024
"""Bytes of a mail that are read whole; of a longer one only the beginning."""
BEGINNING = 256 * 1024
NETWORK = (Abort, Error, OSError, TimeoutError, asyncio.IncompleteReadError)
QUOTED = re.compile(r"\n+(?:[^\n>]{0,200}:\s*\n)?(?:>[^\n]*(?:\n|$))+\s*$")
"""What the mail that is answered had said, at the end of a text, with the line that introduces it."""
MACHINES = re.compile(r"^(mailer-daemon|postmaster|no-?reply|bounces?)([+@-]|$)", re.IGNORECASE)


class Mailbox:
    """An IMAP connection with one folder open."""

    def __init__(self, imap: IMAP4) -> None:
        self._imap = imap

    async def select(self, folder: str) -> tuple[str, int]:
        """What tells this numbering from another, and the number that the next mail gets."""
        lines = await self._ask(self._imap.select(folder))
        validity = re.search(rb"UIDVALIDITY (\d+)", lines)
        following = re.search(rb"UIDNEXT (\d+)", lines)
        if validity is None or following is None:
            raise Unavailable("the server does not number its mails")
        return validity[1].decode(), int(following[1])

    async def above(self, uid: int) -> list[int]:
        """The numbers of mails above one, in order."""
        lines = await self._ask(self._imap.uid_search(f"UID {uid + 1}:*", charset=None))
        found = sorted(int(word) for word in lines.split() if word.isdigit())
        return [one for one in found if one > uid]

    async def fetch(self, uid: int) -> bytes | None:
        """A mail, or the beginning of a very long one; None if it is gone."""
        answer = await self._checked(self._imap.uid("fetch", str(uid), "(RFC822.SIZE)"))
        size = re.search(rb"RFC822\.SIZE (\d+)", b" ".join(bytes(line) for line in answer.lines))
        if size is None:
            return None
        what = "BODY.PEEK[]" if int(size[1]) <= MAX_MAIL else f"BODY.PEEK[]<0.{BEGINNING}>"
        answer = await self._checked(self._imap.uid("fetch", str(uid), f"({what})"))
        return next((bytes(line) for line in answer.lines if isinstance(line, bytearray)), None)

    async def mark_seen(self, uid: int) -> None:
        await self._checked(self._imap.uid("store", str(uid), r"+FLAGS.SILENT (\Seen)"))

    async def wait(self) -> None:
        """Until the server has news, or for some minutes."""
        if not self._imap.has_capability("IDLE"):
            await asyncio.sleep(15)
            return
        idle = await self._imap.idle_start(timeout=IDLE_SECONDS)
        try:
            await self._imap.wait_server_push(timeout=IDLE_SECONDS)
        except TimeoutError:
            pass
        finally:
            self._imap.idle_done()
            await asyncio.wait_for(idle, IMAP_SECONDS)

    async def _ask(self, asked: "asyncio.Future[Response] | object") -> bytes:
        answer = await self._checked(asked)
        return b" ".join(bytes(line) for line in answer.lines)

    async def _checked(self, asked: object) -> Response:
        answer = cast("Response", await asked)  # type: ignore[misc] # the library has no types
        if answer.result != "OK":
            raise Unavailable(f"the mail server said {answer.result}: {b' '.join(map(bytes, answer.lines))[:200]!r}")
        return answer


class Email:
    def __init__(self, options: Options, clock: Clock) -> None:
        self._name = options.name
        self._clock = clock
        self._address = options.text("address").lower()
        self._folder = options.text("folder", "INBOX")
        self._authserv = options.text("authserv", "").lower()
        self._imap = _Server(options, "imap", 993)
        self._smtp = _Server(options, "smtp", 465)
        self.limits = Limits(text=1_000_000, keyed=True, tells_queued=False)

    async def receive(self, inlet: Inlet, position: str) -> None:
        imap = await self._imap.open()
        try:
            mailbox = Mailbox(imap)
            validity, following = await mailbox.select(self._folder)
            known, _, last = position.partition(":")
            # Without a position we begin here; with that of another numbering we read all, and know what came before.
            uid = int(last) if known == validity else (following - 1 if not known else 0)
            await inlet.take([], f"{validity}:{uid}")
            await inlet.connected()
            while True:
                for one in await mailbox.above(uid):
                    content = await mailbox.fetch(one)
                    await inlet.take([content] if content is not None else [], f"{validity}:{one}")
                    await mailbox.mark_seen(one)
                    uid = one
                await mailbox.wait()
        except NETWORK as e:
            raise Unavailable(f"the mail server does not answer: {reason(e)}") from e
        finally:
            await _hang_up(imap)

    def read(self, payload: str) -> Incoming:
        content = payload.encode("utf-8", "surrogateescape")
        mail = email.message_from_bytes(content, policy=email.policy.default)
        name, sender = parseaddr(_header(mail, "from"))
        if "@" not in sender:
            raise Invalid("it has no sender")
        message = _header(mail, "message-id").strip() or f"<{hashlib.sha256(content).hexdigest()}@no.id>"
        references = f"{_header(mail, 'references')} {message}".split()[-20:]
        origin = {"id": message, "references": references, "subject": _header(mail, "subject")}
        return Incoming(
            chat=sender.lower(),
            message=message[:500],
            person=sender.lower(),
            name=name or sender,
            text=_text(mail),
            attachments=tuple(_attachments(mail)),
            reply_to=json.dumps(origin),
            ignored=self._ignored(mail, sender.lower()),
        )

    def _ignored(self, mail: EmailMessage, sender: str) -> str:
        if sender == self._address:
            return "our own words"
        automatic = _header(mail, "auto-submitted").lower() not in ("", "no")
        bulk = _header(mail, "precedence").lower() in ("bulk", "list", "junk", "auto_reply")
        if automatic or bulk or mail["list-id"] or MACHINES.match(sender) or _header(mail, "return-path") == "<>":
            return "a mail of a machine"
        if self._authserv and not _is_authentic(mail, self._authserv):
            return f"{self._authserv} does not vouch for its sender"
        return ""

    async def send(self, message: Outgoing) -> Fate:
        return await asyncio.to_thread(self._smtp.send, self._compose(message), self._address, message.chat)

    def _compose(self, message: Outgoing) -> EmailMessage:
        mail = EmailMessage(policy=email.policy.SMTP)
        origin = json.loads(message.reply_to) if message.reply_to.startswith("{") else {}
        subject = _one_line(str(origin.get("subject", "")))
        mail["From"], mail["To"] = self._address, message.chat
        mail["Subject"] = subject if subject.lower().startswith("re:") else f"Re: {subject}" if subject else "Holdfast"
        mail["Date"] = formatdate(self._clock.now() / SECOND)
        mail["Message-ID"] = f"<{message.key}@{self._address.partition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-replied"
        if origin:
            mail["In-Reply-To"] = _one_line(str(origin["id"]))
            mail["References"] = _one_line(" ".join(map(str, origin["references"])))
        mail.set_content(message.text.encode("utf-8", "replace").decode())
        if message.file is not None:
            mail.add_attachment(
                message.file.read_bytes(), maintype="application", subtype="octet-stream", filename=message.file.name
            )
        return mail

    async def edit(self, chat: str, remote: str, text: str) -> Fate:
        return Never("a mail cannot be changed")

    async def typing(self, chat: str) -> None:
        """Nobody sees somebody write a mail."""

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        import base64

        web.save(base64.b64decode(attachment.ref), target, max_bytes)


class _Server:
    """Where mail is read or sent, and as whom."""

    def __init__(self, options: Options, kind: str, port: int) -> None:
        self.host = options.text(f"{kind}_host")
        self.port = int(options.number(f"{kind}_port", port))
        self.user = options.text(f"{kind}_user", options.text("address"))
        self.password = options.text(f"{kind}_password", options.text("password", ""))
        self.security = options.one_of(f"{kind}_security", ("tls", "starttls", "none"))

    async def open(self) -> IMAP4:
        """A connection to read mail by. Raises Unavailable."""
        if self.security == "starttls":
            raise Invalid("imap_security: expected tls or none")
        try:
            if self.security == "tls":
                imap = IMAP4_SSL(self.host, self.port, timeout=IMAP_SECONDS, ssl_context=ssl.create_default_context())
            else:
                imap = IMAP4(self.host, self.port, timeout=IMAP_SECONDS)
            await imap.wait_hello_from_server()
            answer = await imap.login(self.user, self.password)
        except NETWORK as e:
            raise Unavailable(f"the mail server does not answer: {reason(e)}") from e
        if answer.result != "OK":
            raise Unavailable(f"the mail server does not let {self.user} in")
        return imap

    def send(self, mail: EmailMessage, sender: str, to: str) -> Fate:
        """Hand a mail over. Until the server has all of it, it has nothing; when it breaks after that, nobody knows."""
        try:
            smtp = self._reach()
        except (OSError, smtplib.SMTPException) as e:
            return Later(reason(e), everywhere=True)
        try:
            smtp.send_message(mail, sender, [to])
        except smtplib.SMTPRecipientsRefused as e:
            return _refusal(*next(iter(e.recipients.values())))
        except smtplib.SMTPResponseException as e:
            return _refusal(e.smtp_code, e.smtp_error)
        except (OSError, smtplib.SMTPException) as e:
            return Unsure(reason(e))
        finally:
            smtp.close()
        return Sent(str(mail["Message-ID"]))

    def _reach(self) -> smtplib.SMTP:
        context = ssl.create_default_context()
        smtp = (
            smtplib.SMTP_SSL(self.host, self.port, timeout=SMTP_SECONDS, context=context)
            if self.security == "tls"
            else smtplib.SMTP(self.host, self.port, timeout=SMTP_SECONDS)
        )
        if self.security == "starttls":
            smtp.starttls(context=context)
        if self.password and self.security != "none":
            smtp.login(self.user, self.password)
        return smtp


def _refusal(code: int, said: bytes | str) -> Fate:
    text = f"{code}: {said.decode('utf-8', 'replace') if isinstance(said, bytes) else said}"[:300]
    return Later(text) if 400 <= code < 500 else Never(text)


async def _hang_up(imap: IMAP4) -> None:
    try:
        await asyncio.wait_for(imap.logout(), 2)
    except NETWORK:
        pass


def _header(mail: EmailMessage, name: str) -> str:
    """A header as one line; one that cannot be read counts as absent."""
    try:
        return _one_line(str(mail[name] or ""))
    except (ValueError, AttributeError, IndexError):
        return ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _text(mail: EmailMessage) -> str:
    """The words of a mail, without what it quotes at its end."""
    part = mail.get_body(("plain", "html"))
    if part is None:
        return _header(mail, "subject")
    content = _content(part)
    if part.get_content_subtype() == "html":
        content = html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"(?is)<(script|style).*?</\1>", " ", content)))
    content = content.replace("\r\n", "\n")
    return (QUOTED.sub("", content).strip() or content.strip()) or _header(mail, "subject")


def _content(part: "MIMEPart[Any, Any]") -> str:
    """The text of a part, whatever it says about its encoding."""
    try:
        return str(part.get_content())
    except (LookupError, ValueError, KeyError):
        raw = part.get_payload(decode=True)
        return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else ""


def _attachments(mail: EmailMessage) -> list[Attachment]:
    import base64

    found = []
    for part in mail.iter_attachments():
        content = part.get_payload(decode=True)
        data = content if isinstance(content, bytes) else part.as_bytes()
        name = part.get_filename() or "file"
        ref = base64.b64encode(data).decode("ascii")
        found.append(Attachment(ref=ref, name=str(name), media_type=part.get_content_type(), size=len(data)))
    return found


def _is_authentic(mail: EmailMessage, authserv: str) -> bool:
    """Whether our own mail server, and not somebody in its name, vouches for the sender: it writes above all others."""
    results = mail.get_all("authentication-results") or []
    first = _one_line(str(results[0])).lower() if results else ""
    return first.split(";")[0].split()[:1] == [authserv] and "dmarc=pass" in first


@asynccontextmanager
async def connect(options: Options, clock: Clock) -> AsyncIterator[Platform]:
    yield Email(options, clock)
