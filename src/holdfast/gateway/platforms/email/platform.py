"""E-mail: reads an IMAP mailbox and replies by SMTP. One session for each correspondent.

The read position is stored with the mails. A mail that is sent again has the same Message-ID, by which mail clients and
many servers recognise it. Automated mail is never answered, to prevent loops between two programs. The sender of a mail
can be forged: see `authserv` in `docs/gateway.md`.
"""

import asyncio
import email
import email.policy
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path

from holdfast.gateway.platforms import http
from holdfast.gateway.platforms.email import authentication
from holdfast.gateway.platforms.email.mailbox import MAX_MAIL_BYTES, NETWORK, Mailbox, MailServerSettings, log_out
from holdfast.gateway.platforms.email.message import (
    body_text,
    is_automated,
    list_attachments,
    one_line,
    parse_sender,
    read_header,
)
from holdfast.gateway.port import (
    Attachment,
    DeliveryResult,
    InboundPort,
    Incoming,
    Outgoing,
    Platform,
    PlatformLimits,
    PlatformOptions,
    Rejected,
    describe_error,
)
from holdfast.gateway.split import replace_unsendable
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import SECOND, Clock


class Email:
    def __init__(self, options: PlatformOptions, clock: Clock) -> None:
        self._name = options.name
        self._clock = clock
        self._address = options.text("address").lower()
        self._folder = options.text("folder", "INBOX")
        self._authserv = _authserv(options)
        self._imap = MailServerSettings(options, "imap", 993)
        self._smtp = MailServerSettings(options, "smtp", 465)
        self.limits = PlatformLimits(text=1_000_000, keyed=True, tells_queued=False)

    async def receive(self, intake: InboundPort, position: str) -> None:
        imap = await self._imap.connect_imap()
        try:
            mailbox = Mailbox(imap)
            validity, following = await mailbox.select(self._folder)
            known, _, last = position.partition(":")
            # Without a position, start with the next mail. If UIDVALIDITY has changed, read everything: duplicates are recognised.
            uid = int(last) if known == validity else (following - 1 if not known else 0)
            await intake.take([], f"{validity}:{uid}")
            await intake.report_connected()
            while True:
                for one in await mailbox.list_uids_above(uid):
                    content = await mailbox.fetch(one)
                    await intake.take([content] if content is not None else [], f"{validity}:{one}")
                    await mailbox.mark_seen(one)
                    uid = one
                await mailbox.wait()
        except NETWORK as e:
            raise Unavailable(f"the mail server does not answer: {describe_error(e)}") from e
        finally:
            await log_out(imap)

    def read(self, payload: str) -> Incoming:
        content = payload.encode("utf-8", "surrogateescape")
        mail = email.message_from_bytes(content, policy=email.policy.default)
        name, address = parse_sender(mail)
        message = read_header(mail, "message-id").strip() or f"<{hashlib.sha256(content).hexdigest()}@no.id>"
        references = f"{read_header(mail, 'references')} {message}".split()[-20:]
        origin = {"id": message, "references": references, "subject": read_header(mail, "subject")}
        return Incoming(
            chat=address.lower(),
            message=message[:500],
            person=address.lower(),
            name=name or address,
            text=body_text(mail),
            attachments=tuple(list_attachments(mail)),
            reply_to=json.dumps(origin),
            ignored=self._ignore_reason(mail, address.lower()),
        )

    def _ignore_reason(self, mail: EmailMessage, address: str) -> str:
        if address == self._address:
            return "our own message"
        if is_automated(mail, address):
            return "automated mail"
        return authentication.rejection_reason(mail, address, self._authserv) if self._authserv else ""

    async def send(self, message: Outgoing) -> DeliveryResult:
        return await asyncio.to_thread(self._smtp.send, self._compose(message), self._address, message.chat)

    def _compose(self, message: Outgoing) -> EmailMessage:
        mail = EmailMessage(policy=email.policy.SMTP)
        origin = json.loads(message.reply_to) if message.reply_to.startswith("{") else {}
        subject = one_line(str(origin.get("subject", "")))
        mail["From"], mail["To"] = self._address, message.chat
        mail["Subject"] = subject if subject.lower().startswith("re:") else f"Re: {subject}" if subject else "Holdfast"
        mail["Date"] = formatdate(self._clock.now() / SECOND)
        mail["Message-ID"] = f"<{message.key}@{self._address.partition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-replied"
        if origin:
            mail["In-Reply-To"] = one_line(str(origin["id"]))
            mail["References"] = one_line(" ".join(map(str, origin["references"])))
        mail.set_content(replace_unsendable(message.text))
        if message.file is not None:
            mail.add_attachment(
                message.file.read_bytes(), maintype="application", subtype="octet-stream", filename=message.file.name
            )
        return mail

    async def edit(self, chat: str, remote: str, text: str) -> DeliveryResult:
        return Rejected("mails cannot be edited")

    async def typing(self, chat: str) -> None:
        """E-mail has no typing indicator."""

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        if attachment.size is None:
            raise Unavailable(f"its mail has more than {MAX_MAIL_BYTES:,} bytes and was not read completely")
        http.save_bytes(http.decode_base64(attachment.ref), target, max_bytes)


def _authserv(options: PlatformOptions) -> str:
    """The mail server whose check of senders is trusted; empty if the operator turned the check off. Raises Invalid."""
    authserv = options.text("authserv", "").lower()
    if not options.flag("accept_unauthenticated_senders", default=False) and not authserv:
        raise Invalid(
            f"[gateway.{options.name}] needs authserv, the server name at the start of the "
            "Authentication-Results headers of your mail server. Without it anybody can forge an allowed sender; "
            "to accept that, set accept_unauthenticated_senders = true"
        )
    return authserv


@asynccontextmanager
async def connect(options: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
    yield Email(options, clock)
