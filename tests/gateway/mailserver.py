"""A real mail server on loopback: Dovecot with the mailboxes, and a small SMTP server that delivers to it."""

import asyncio
import contextlib
import email
import email.policy
import grp
import imaplib
import os
import pwd
import shutil
import smtplib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.gateway.synapse import free_port

PASSWORD = "open-sesame"
LOST = "lost"
CONFIG = """
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/dovecot.log
protocols = imap lmtp
ssl = no
disable_plaintext_auth = no
listen = 127.0.0.1
default_internal_user = {user}
default_login_user = {user}
default_internal_group = {group}
first_valid_uid = 0
# Not a maildir: a mail that arrives while the folder is read could get a higher UID than the next one.
mail_location = sdbox:{folder}/mail/%u
mail_fsync = optimized
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={user} gid={group} home={folder}/mail/%u
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service lmtp {{
  inet_listener lmtp {{
    port = {lmtp}
  }}
}}
service anvil {{
  chroot =
}}
"""


class Relay:
    """Accepts mail and delivers it to Dovecot; responds only after the mailbox has it."""

    def __init__(self, lmtp: int) -> None:
        self._lmtp = lmtp
        self.problems: list[str] = []
        """Responses to the next mails instead; LOST accepts the mail without a response."""

    async def handle_RCPT(  # noqa: N802 # aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address.startswith("gone@"):
            return "550 nobody of that name is here"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 # aiosmtpd's name
        problem = self.problems.pop(0) if self.problems else ""
        if problem not in ("", LOST):
            return problem
        await asyncio.to_thread(self._deliver, envelope)
        if problem == LOST:
            assert server.transport is not None
            server.transport.abort()
        return "250 taken"

    def _deliver(self, envelope: Envelope) -> None:
        self.deliver(envelope.mail_from or "", envelope.rcpt_tos, envelope.original_content or b"")

    def deliver(self, sender: str, to: list[str], content: bytes) -> None:
        """Deliver to the mailboxes directly, without a size limit."""
        with smtplib.LMTP("127.0.0.1", self._lmtp) as lmtp:
            lmtp.sendmail(sender, to, content)


class MailServer:
    def __init__(self, folder: Path, imap: int, smtp: int, relay: Relay) -> None:
        self.folder = folder
        self.imap = imap
        self.smtp = smtp
        self.relay = relay

    def send(self, sender: str, to: str, text: str, **headers: str) -> str:
        """Send a mail; return its Message-ID."""
        mail = EmailMessage()
        mail["From"], mail["To"] = sender, to
        for name, value in {"Subject": "Hello", **headers}.items():
            mail[name.replace("_", "-")] = value
        mail.set_content(text)
        self.post(sender, to, mail.as_bytes())
        return str(mail["Message-ID"])

    def post(self, sender: str, to: str, content: bytes) -> None:
        """Send any bytes as a mail."""
        with smtplib.SMTP("127.0.0.1", self.smtp) as smtp:
            smtp.sendmail(sender, to, content)

    def read(self, who: str) -> list[EmailMessage]:
        """All mails in somebody's inbox, oldest first."""
        with imaplib.IMAP4("127.0.0.1", self.imap) as imap:
            imap.login(who, PASSWORD)
            imap.select("INBOX", readonly=True)
            _, [found] = imap.search(None, "ALL")
            mails = []
            for number in found.split():
                _, parts = imap.fetch(number, "(RFC822)")
                mails.append(email.message_from_bytes(parts[0][1], policy=email.policy.default))
            return mails


@contextlib.contextmanager
def running() -> Iterator[MailServer]:
    """A mail server in its own directory; root starts it as the user nobody, as Dovecot requires."""
    dovecot = shutil.which("dovecot", path=f"{os.environ['PATH']}:/usr/sbin")
    assert dovecot is not None, "the tests of e-mail need Debian's dovecot-imapd and dovecot-lmtpd"
    imap, lmtp, smtp = free_port(), free_port(), free_port()
    user = pwd.getpwnam("nobody") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
    group = grp.getgrgid(user.pw_gid).gr_name
    with tempfile.TemporaryDirectory(prefix="holdfast-mail-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        text = CONFIG.format(folder=folder, imap=imap, lmtp=lmtp, password=PASSWORD, user=user.pw_name, group=group)
        (folder / "dovecot.conf").write_text(text)
        for one in ("mail", "state", "run"):
            (folder / one).mkdir()
        if os.getuid() == 0:
            for path in (folder, *folder.iterdir()):
                os.chown(path, user.pw_uid, user.pw_gid)
        server = subprocess.Popen(
            [dovecot, "-F", "-c", str(folder / "dovecot.conf")], user=user.pw_uid, group=user.pw_gid, extra_groups=[]
        )
        relay = Relay(lmtp)
        controller = Controller(relay, hostname="127.0.0.1", port=smtp)
        try:
            _wait(imap, lmtp, server, folder / "dovecot.log")
            controller.start()
            yield MailServer(folder, imap, smtp, relay)
        finally:
            controller.stop(no_assert=True)
            server.terminate()
            server.wait(20)


def _wait(imap: int, lmtp: int, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert server.poll() is None, log.read_text() if log.exists() else "it did not start"
        with (
            contextlib.suppress(OSError, imaplib.IMAP4.error),
            imaplib.IMAP4("127.0.0.1", imap),
            smtplib.LMTP("127.0.0.1", lmtp),
        ):
            return
        time.sleep(0.05)
    raise AssertionError(f"the mail server did not start: {log.read_text()}")
