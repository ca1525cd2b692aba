"""An IMAP mailbox that is read by UID, and the connections to the IMAP and SMTP servers."""

import asyncio
import re
import smtplib
import ssl
from email.message import EmailMessage
from typing import cast

from aioimaplib import IMAP4, IMAP4_SSL, Abort, Error, Response

from holdfast.gateway.platforms.email.message import TRUNCATED_HEADER
from holdfast.gateway.port import (
    DeliveryResult,
    DeliveryUnknown,
    PlatformOptions,
    Rejected,
    RetryLater,
    Sent,
    describe_error,
)
from holdfast.model.errors import Invalid, Unavailable
from holdfast.tasks import raise_if_cancelled

IMAP_SECONDS = 30.0
IDLE_SECONDS = 300.0
SMTP_SECONDS = 15.0
MAX_MAIL_BYTES = 20 * 1024 * 1024
"""The largest mail that is read completely; of a larger one only the first part is read."""
TRUNCATED_BYTES = 256 * 1024
NETWORK = (Abort, Error, OSError, TimeoutError, asyncio.IncompleteReadError)


class Mailbox:
    """An IMAP connection with one folder open."""

    def __init__(self, imap: IMAP4) -> None:
        self._imap = imap

    async def select(self, folder: str) -> tuple[str, int]:
        """Open a folder. Return its UIDVALIDITY and the UID that the next mail gets."""
        lines = await self._request(self._imap.select(folder))
        validity = re.search(rb"UIDVALIDITY (\d+)", lines)
        following = re.search(rb"UIDNEXT (\d+)", lines)
        if validity is None or following is None:
            raise Unavailable("the mail server reports no UIDVALIDITY or UIDNEXT")
        return validity[1].decode(), int(following[1])

    async def list_uids_above(self, uid: int) -> list[int]:
        """The UIDs above this one, in order."""
        lines = await self._request(self._imap.uid_search(f"UID {uid + 1}:*", charset=None))
        found = sorted(int(word) for word in lines.split() if word.isdigit())
        return [one for one in found if one > uid]

    async def fetch(self, uid: int) -> bytes | None:
        """Read a mail, or the first part of a very large one; None if it is gone."""
        response = await self._checked(self._imap.uid("fetch", str(uid), "(RFC822.SIZE)"))
        size = re.search(rb"RFC822\.SIZE (\d+)", b" ".join(bytes(line) for line in response.lines))
        if size is None:
            return None
        what = "BODY.PEEK[]" if int(size[1]) <= MAX_MAIL_BYTES else f"BODY.PEEK[]<0.{TRUNCATED_BYTES}>"
        response = await self._checked(self._imap.uid("fetch", str(uid), f"({what})"))
        content = next((bytes(line) for line in response.lines if isinstance(line, bytearray)), None)
        if content is None or int(size[1]) <= MAX_MAIL_BYTES:
            return content
        return f"{TRUNCATED_HEADER}: {int(size[1])}\r\n".encode() + content

    async def mark_seen(self, uid: int) -> None:
        await self._checked(self._imap.uid("store", str(uid), r"+FLAGS.SILENT (\Seen)"))

    async def wait(self) -> None:
        """Wait until the server has news, or for some minutes."""
        if not self._imap.has_capability("IDLE"):
            await asyncio.sleep(15)
            return
        idle = await self._imap.idle_start(timeout=IDLE_SECONDS)
        try:
            raise_if_cancelled()
            await self._imap.wait_server_push(timeout=IDLE_SECONDS)
        except TimeoutError:
            pass
        finally:
            self._imap.idle_done()
            await asyncio.wait_for(idle, IMAP_SECONDS)

    async def _request(self, pending: object) -> bytes:
        response = await self._checked(pending)
        return b" ".join(bytes(line) for line in response.lines)

    async def _checked(self, pending: object) -> Response:
        response = cast("Response", await pending)  # type: ignore[misc] # the library has no types
        raise_if_cancelled()
        if response.result != "OK":
            raise Unavailable(
                f"the mail server answered {response.result}: {b' '.join(map(bytes, response.lines))[:200]!r}"
            )
        return response


class MailServerSettings:
    """The address and the account of an IMAP or SMTP server."""

    def __init__(self, options: PlatformOptions, kind: str, port: int) -> None:
        self.host = options.text(f"{kind}_host")
        self.port = int(options.number(f"{kind}_port", port))
        self.user = options.text(f"{kind}_user", options.text("address"))
        self.password = options.text(f"{kind}_password", options.text("password", ""))
        self.security = options.one_of(f"{kind}_security", ("tls", "starttls", "none"))

    async def connect_imap(self) -> IMAP4:
        """Connect and log in. Raises Unavailable."""
        if self.security == "starttls":
            raise Invalid("imap_security: expected tls or none")
        try:
            if self.security == "tls":
                imap = IMAP4_SSL(self.host, self.port, timeout=IMAP_SECONDS, ssl_context=ssl.create_default_context())
            else:
                imap = IMAP4(self.host, self.port, timeout=IMAP_SECONDS)
            await imap.wait_hello_from_server()
            response = await imap.login(self.user, self.password)
        except NETWORK as e:
            raise Unavailable(f"the mail server does not respond: {describe_error(e)}") from e
        if response.result != "OK":
            raise Unavailable(f"the mail server rejects the login of {self.user}")
        return imap

    def send(self, mail: EmailMessage, sender: str, to: str) -> DeliveryResult:
        """Send a mail. If the connection breaks during the transfer, it is unknown whether the server accepted it."""
        try:
            smtp = self._connect_smtp()
        except (OSError, smtplib.SMTPException) as e:
            return RetryLater(describe_error(e), everywhere=True)
        try:
            smtp.send_message(mail, sender, [to])
        except smtplib.SMTPRecipientsRefused as e:
            return _rejection(*next(iter(e.recipients.values())))
        except smtplib.SMTPResponseException as e:
            return _rejection(e.smtp_code, e.smtp_error)
        except (OSError, smtplib.SMTPException) as e:
            return DeliveryUnknown(describe_error(e))
        finally:
            smtp.close()
        return Sent(str(mail["Message-ID"]))

    def _connect_smtp(self) -> smtplib.SMTP:
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


def _rejection(code: int, message: bytes | str) -> DeliveryResult:
    text = f"{code}: {message.decode('utf-8', 'replace') if isinstance(message, bytes) else message}"[:300]
    return RetryLater(text) if 400 <= code < 500 else Rejected(text)


async def log_out(imap: IMAP4) -> None:
    try:
        await asyncio.wait_for(imap.logout(), 2)
    except NETWORK:
        pass
