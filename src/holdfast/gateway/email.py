"""E-mail: an IMAP mailbox is read, replies go out by SMTP. One session for each correspondent.

How far the mailbox was read is kept together with the mails. A mail that is sent again has the same Message-ID, by which mail
programs and many servers know it. Mails of machines are never answered, so that two programs cannot write to each
other for ever. Anybody can write any sender into a mail: see `authserv` in `docs/gateway.md`.
"""

import asyncio
import base64
import email
import email.policy
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from pathlib import Path

from holdfast.gateway import web
from holdfast.gateway.mail import attachments, header, is_authentic, is_of_a_machine, one_line, text
from holdfast.gateway.mailbox import MAX_MAIL, NETWORK, Mailbox, Server, hang_up
from holdfast.gateway.port import Attachment, Fate, Incoming, Inlet, Limits, Never, Options, Outgoing, Platform, reason
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import SECOND, Clock


class Email:
    def __init__(self, options: Options, clock: Clock) -> None:
        self._name = options.name
        self._clock = clock
        self._address = options.text("address").lower()
        self._folder = options.text("folder", "INBOX")
        self._authserv = options.text("authserv", "").lower()
        self._imap = Server(options, "imap", 993)
        self._smtp = Server(options, "smtp", 465)
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
            await hang_up(imap)

    def read(self, payload: str) -> Incoming:
        content = payload.encode("utf-8", "surrogateescape")
        mail = email.message_from_bytes(content, policy=email.policy.default)
        name, sender = parseaddr(header(mail, "from"))
        if "@" not in sender:
            raise Invalid("it has no sender")
        message = header(mail, "message-id").strip() or f"<{hashlib.sha256(content).hexdigest()}@no.id>"
        references = f"{header(mail, 'references')} {message}".split()[-20:]
        origin = {"id": message, "references": references, "subject": header(mail, "subject")}
        return Incoming(
            chat=sender.lower(),
            message=message[:500],
            person=sender.lower(),
            name=name or sender,
            text=text(mail),
            attachments=tuple(attachments(mail)),
            reply_to=json.dumps(origin),
            ignored=self._ignored(mail, sender.lower()),
        )

    def _ignored(self, mail: EmailMessage, sender: str) -> str:
        if sender == self._address:
            return "our own words"
        if is_of_a_machine(mail, sender):
            return "a mail of a machine"
        if self._authserv and not is_authentic(mail, self._authserv):
            return f"{self._authserv} does not vouch for its sender"
        return ""

    async def send(self, message: Outgoing) -> Fate:
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
        if attachment.size is None:
            raise Unavailable(f"the mail it came with is longer than {MAX_MAIL:,} bytes, and was not read whole")
        web.save(base64.b64decode(attachment.ref), target, max_bytes)


@asynccontextmanager
async def connect(options: Options, clock: Clock) -> AsyncIterator[Platform]:
    yield Email(options, clock)
