"""Where mail is: an IMAP mailbox that is read by its numbers, and the servers that are reached with the settings."""

import asyncio
import re
import smtplib
import ssl
from email.message import EmailMessage
from typing import cast

from aioimaplib import IMAP4, IMAP4_SSL, Abort, Error, Response

from holdfast.gateway.mail import CUT
from holdfast.gateway.port import Fate, Later, Never, Options, Sent, Unsure, reason
from holdfast.model.errors import Invalid, Unavailable

IMAP_SECONDS = 30.0
IDLE_SECONDS = 300.0
SMTP_SECONDS = 15.0
MAX_MAIL = 20 * 1024 * 1024
"""Bytes of a mail that are read whole; of a longer one only the beginning."""
BEGINNING = 256 * 1024
NETWORK = (Abort, Error, OSError, TimeoutError, asyncio.IncompleteReadError)


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
        content = next((bytes(line) for line in answer.lines if isinstance(line, bytearray)), None)
        if content is None or int(size[1]) <= MAX_MAIL:
            return content
        return f"{CUT}: {int(size[1])}\r\n".encode() + content

    async def mark_seen(self, uid: int) -> None:
        await self._checked(self._imap.uid("store", str(uid), r"+FLAGS.SILENT (\Seen)"))

    async def wait(self) -> None:
        """Until the server has news, or for some minutes."""
        if not self._imap.has_capability("IDLE"):
            await asyncio.sleep(15)
            return
        idle = await self._imap.idle_start(timeout=IDLE_SECONDS)
        try:
            _heed()
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
        _heed()
        if answer.result != "OK":
            raise Unavailable(f"the mail server said {answer.result}: {b' '.join(map(bytes, answer.lines))[:200]!r}")
        return answer


class Server:
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


async def hang_up(imap: IMAP4) -> None:
    try:
        await asyncio.wait_for(imap.logout(), 2)
    except NETWORK:
        pass


def _heed() -> None:
    """Stop if we were told to: the library loses that if an answer comes at the same moment (Python 3.11's `wait_for` does)."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
