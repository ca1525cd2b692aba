"""E-mail against a real mail server: the gateway is killed at every point, and no mail is lost."""

import asyncio
from email.message import EmailMessage
from pathlib import Path

import pytest

from holdfast.gateway.platforms.email import platform as email
from holdfast.gateway.policy import Ignore, PlatformRules, decide
from holdfast.gateway.port import Outgoing, PlatformOptions, Rejected, RetryLater, Sent
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.event import TurnEnded
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, inbox, log, outbox, session_list
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.tasks import stop
from tests.contract.test_channel import Notes
from tests.fakes.clock import FakeClock
from tests.gateway.crash_loop import MESSAGES, CrashLoop, choose_crash_points
from tests.gateway.mailserver import PASSWORD, MailServer
from tests.gateway.synapse import free_port

PEOPLE = 4
AGENT = "agent@holdfast.test"
CONFIG = """
model = "scripted:echo"
[agent]
titles = false
[gateway.email]
address = "{agent}"
password = "{password}"
imap_host = "127.0.0.1"
imap_port = {imap}
imap_security = "none"
smtp_host = "127.0.0.1"
smtp_port = {smtp}
smtp_security = "none"
accept_unauthenticated_senders = true
allow = ["*"]
"""


def settle(mailserver: MailServer, home: Path, agent: str) -> None:
    home.mkdir()
    text = CONFIG.format(agent=agent, password=PASSWORD, imap=mailserver.imap, smtp=mailserver.smtp)
    (home / "config.toml").write_text(text)


async def until_connected(home: Path, loop: CrashLoop) -> None:
    """Wait until the mailbox is read: earlier mail is not for the agent."""
    from holdfast.store.repos import platforms

    async with asyncio.timeout(60):
        while True:
            loop.check()
            if (home / "holdfast.db").exists():
                database = await open_sqlite(home / "holdfast.db")
                found = await database.read(platforms.get, "email")
                await database.close()
                if found is not None and found.position:
                    return
            await asyncio.sleep(0.2)


def text_of(mail: EmailMessage) -> str:
    return str(mail.get_content()).strip()


@pytest.mark.clients
@pytest.mark.timeout(200 + MESSAGES)
async def test_mails_survive_kills_at_every_point(mailserver: MailServer, tmp_path: Path) -> None:
    home, agent = tmp_path / "home", "storm@holdfast.test"
    settle(mailserver, home, agent)
    points = choose_crash_points(seed=11)
    people = [f"person{number}@holdfast.test" for number in range(PEOPLE)]
    async with CrashLoop(home, points) as loop:
        await until_connected(home, loop)
        for number in range(MESSAGES):
            await asyncio.to_thread(mailserver.send, people[number % PEOPLE], agent, f"mail {number}")
        extra = 0
        async with asyncio.timeout(100 + MESSAGES):
            while True:
                loop.check()
                got = [await asyncio.to_thread(mailserver.read, one) for one in people]
                count = sum(len({mail["Message-ID"] for mail in mails}) for mails in got)
                if count >= MESSAGES + extra:
                    if loop.is_finished:
                        break
                    await asyncio.to_thread(mailserver.send, people[0], agent, f"mail {MESSAGES + extra}")
                    extra += 1
                await asyncio.sleep(0.2)
        assert len(loop.crashed) == len(points)

    doubled = 0
    database = await open_sqlite(home / "holdfast.db")
    for place, mails in enumerate(got):
        numbers = [n for n in range(MESSAGES) if n % PEOPLE == place]
        numbers += range(MESSAGES, MESSAGES + extra) if place == 0 else ()
        sent = await database.read(log_of_deliveries, people[place])
        assert sent == [f"You said: mail {n}" for n in numbers]
        seen: dict[str, str] = {}
        for mail in mails:
            doubled += mail["Message-ID"] in seen
            assert seen.setdefault(mail["Message-ID"], text_of(mail)) == text_of(mail)
        assert list(seen.values()) == sent
    # SMTP cannot detect duplicates: a mail sent just before a kill arrives again, with the same Message-ID.
    assert doubled <= len(points) * PEOPLE
    page = await database.read(session_list.list_page, session_list.SessionFilters(), limit=100)
    assert sum(session.summary.turn_count for session in page.sessions) == MESSAGES + extra
    assert await database.read(inbox.count_by_state) == []
    await database.close()


def log_of_deliveries(tx: Transaction, chat: str) -> list[str]:
    """The deliveries to a chat, in the order in which they were recorded."""
    session_id = aliases.get_channel_session(tx, f"email:{chat}")
    assert session_id is not None
    turns = [e.event for e in log.read(tx, session_id) if isinstance(e.event, TurnEnded)]
    found = [row for turn in turns for row in outbox.list_by_turn(tx, session_id, turn.turn_id)]
    assert [row.number for row in found] == sorted(row.number for row in found)
    # The last ones may have arrived before their result was recorded.
    sent_at = [row.sent_at for row in found if row.sent_at is not None]
    assert sent_at == sorted(sent_at)
    return [row.message.text for row in found]


@pytest.mark.clients
async def test_a_reply_refers_to_the_mail_it_answers(mailserver: MailServer, tmp_path: Path) -> None:
    home, agent = tmp_path / "home", "thread@holdfast.test"
    settle(mailserver, home, agent)
    async with CrashLoop(home, ()) as loop, asyncio.timeout(60):
        await until_connected(home, loop)
        await asyncio.to_thread(
            mailserver.send, "carol@holdfast.test", agent, "What now?", Subject="Plans", Message_ID="<first@x>"
        )
        while not (mails := await asyncio.to_thread(mailserver.read, "carol@holdfast.test")):
            loop.check()
            await asyncio.sleep(0.1)

    assert mails[0]["Subject"] == "Re: Plans"
    assert mails[0]["In-Reply-To"] == "<first@x>"
    assert mails[0]["Auto-Submitted"] == "auto-replied"


def platform(server: MailServer | None = None, **more: object) -> email.Email:
    given = {
        "address": AGENT,
        "imap_host": "127.0.0.1",
        "smtp_host": "127.0.0.1",
        "smtp_port": server.smtp if server else 25,
        "smtp_security": "none",
        "accept_unauthenticated_senders": "authserv" not in more,
        **more,
    }
    return email.Email(PlatformOptions("email", given), FakeClock())


@pytest.mark.clients
async def test_the_response_of_the_server_determines_the_delivery_result(mailserver: MailServer) -> None:
    mail = Outgoing(chat="dan@holdfast.test", text="hello", key="out-1-1")
    mailserver.relay.problems = ["451 come back later", "552 the mailbox is full"]
    later, never, sent = [await platform(mailserver).send(mail) for _ in range(3)]
    nobody = await platform(smtp_port=free_port()).send(mail)

    assert isinstance(later, RetryLater)
    assert isinstance(never, Rejected)
    assert sent == Sent("<out-1-1@holdfast.test>")
    assert isinstance(nobody, RetryLater)


def mail(**headers: str) -> str:
    lines = {"From": "Alice <Alice@X.test>", "To": AGENT, "Message-ID": "<1@x>", **headers}
    return "".join(f"{name.replace('_', '-')}: {value}\n" for name, value in lines.items()) + "\nHello\n"


@pytest.mark.parametrize(
    "headers",
    [
        {"Auto_Submitted": "auto-replied"},
        {"Precedence": "bulk"},
        {"List_Id": "<list.x>"},
        {"From": "MAILER-DAEMON@x.test"},
        {"From": "no-reply@x.test"},
        {"Return_Path": "<>"},
        {"From": AGENT},
    ],
)
def test_automated_mail_is_not_answered(headers: dict[str, str]) -> None:
    assert platform().read(mail(**headers)).ignored
    assert not platform().read(mail()).ignored


def test_without_authserv_no_mail_is_read_unless_unauthenticated_senders_are_accepted() -> None:
    with pytest.raises(Invalid, match="accept_unauthenticated_senders = true"):
        platform(accept_unauthenticated_senders=False)


def test_with_authserv_unauthenticated_senders_are_ignored() -> None:
    strict = platform(authserv="mx.holdfast.test")
    good = mail(Authentication_Results="mx.holdfast.test; dmarc=pass header.from=x.test")
    forged = mail(Authentication_Results="mx.elsewhere.test; dmarc=pass")

    assert not strict.read(good).ignored
    assert strict.read(forged).ignored
    assert strict.read(mail()).ignored


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("Yes.\n\nOn Monday Bob wrote:\n> shall we?\n> really\n", "Yes."),
        ("> shall we?\nYes, and\n> when?\nNow.", "> shall we?\nYes, and\n> when?\nNow."),
        ("> only a quotation\n", "> only a quotation"),
    ],
)
def test_only_the_quoted_mail_at_the_end_is_removed(body: str, text: str) -> None:
    assert platform().read(mail().replace("Hello\n", body)).text == text


def test_malformed_mails_are_parsed_or_rejected_and_never_lost() -> None:
    odd = b"From: a@x\nContent-Type: text/plain; charset=no-such\nMessage-ID: <2@x>\n\n\xff\xfe caf\xe9"
    html = "From: a@x\nContent-Type: text/html\n\n<style>x{}</style><p>Hello <b>you</b></p>"

    read = platform().read(odd.decode("utf-8", "surrogateescape"))
    assert "caf" in read.text
    assert platform().read(html).text.split() == ["Hello", "you"]
    with pytest.raises(Exception, match="no sender"):
        platform().read("no mail at all")


def test_attachments_are_received() -> None:
    made = EmailMessage()
    made["From"], made["Message-ID"] = "a@x.test", "<3@x>"
    made.set_content("see there")
    made.add_attachment(b"%PDF-1", maintype="application", subtype="pdf", filename="a plan.pdf")

    [found] = platform().read(made.as_bytes().decode("utf-8", "surrogateescape")).attachments
    assert (found.name, found.media_type, found.size) == ("a plan.pdf", "application/pdf", 6)


@pytest.mark.clients
async def test_only_the_text_of_an_oversized_mail_is_read(mailserver: MailServer, tmp_path: Path) -> None:
    box: dict[str, object] = {"address": "long@holdfast.test", "password": PASSWORD, "imap_security": "none"}
    made, here = EmailMessage(), platform(mailserver, imap_port=mailserver.imap, **box)
    made["From"], made["Message-ID"] = "a@x.test", "<long@x>"
    made.set_content("see there")
    made.add_attachment(b"x" * 16 * 1024 * 1024, maintype="application", subtype="pdf", filename="plan.pdf")
    notes = Notes()
    receiving = asyncio.create_task(here.receive(notes, ""))
    await notes.until_connected(receiving)
    await asyncio.to_thread(mailserver.relay.deliver, "a@x.test", ["long@holdfast.test"], made.as_bytes())
    await notes.until(1)
    await stop(receiving)
    [content] = notes.payloads
    assert isinstance(content, bytes)
    read = here.read(content.decode("utf-8", "surrogateescape"))
    [found] = read.attachments

    assert len(content) < 300_000
    assert (read.text, found.name, found.size) == ("see there", "plan.pdf", None)
    with pytest.raises(Unavailable, match="not read completely"):
        await here.fetch(found, tmp_path / "plan.pdf", 100_000_000)


def test_a_forged_sender_who_is_allowed_never_reaches_the_agent() -> None:
    strict = platform(authserv="mx.holdfast.test")
    tricks = [
        "mx.holdfast.test; dmarc=fail smtp.mailfrom=dmarc=pass@evil.test header.from=x.test",
        'mx.holdfast.test; dmarc=fail reason="dmarc=pass" header.from=x.test',
        "mx.holdfast.test; dmarc=fail (dmarc=pass) header.from=x.test",
    ]
    for trick in tricks:
        read = strict.read(mail(Authentication_Results=trick))
        step = decide(
            read, PlatformRules(allow=frozenset({"alice@x.test"}), owners=frozenset({"alice@x.test"})), paired=True
        )
        assert isinstance(step, Ignore), trick
