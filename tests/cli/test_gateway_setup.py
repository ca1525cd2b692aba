"""`holdfast gateway setup`, as a user runs it in a terminal, against a server or a fake of each platform."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Holdfast
from tests.cli.setup_subjects import FIXTURES, SUBJECTS, SetupSubject, SetupThread
from tests.cli.terminal import ENTER, Terminal
from tests.gateway.synapse import free_port
from tests.gateway.telegramapi import TOKEN

pytestmark = [pytest.mark.process, pytest.mark.clients, pytest.mark.timeout(180)]
BEFORE = '# mine\nmodel = "scripted:echo"  # and a remark\n'


@pytest.fixture
def thread(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SetupThread]:
    """The platform that the test names, or Telegram."""
    kind = getattr(request, "param", "telegram")
    if kind in FIXTURES:
        request.getfixturevalue(FIXTURES[kind])
    running = SetupThread(lambda: SUBJECTS[kind](request, tmp_path))
    running.start()
    yield running
    running.stop()


every_platform = pytest.mark.parametrize("thread", list(SUBJECTS), indirect=True)


def start(home: Path, subject: SetupSubject, *args: str) -> Terminal:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(BEFORE)
    return Terminal(home, "gateway", "setup", subject.kind, *subject.given, *args, columns=200)


def answer(terminal: Terminal, subject: SetupSubject, wrong: str = "") -> None:
    for question, typed in subject.answers.items():
        terminal.see(question)
        terminal.say("nonsense" if question == wrong else typed)


@every_platform
def test_a_person_is_led_to_a_working_bot(home: Path, thread: SetupThread) -> None:
    subject = thread.subject
    with start(home, subject) as terminal:
        answer(terminal, subject)
        terminal.see(subject.greeting)
        terminal.see("Waiting up to 5 minutes")
        thread.call(subject.say())
        terminal.see("wrote. Is that you?")
        terminal.press(ENTER)
        terminal.see("Start the server: holdfast serve")
        assert terminal.wait() == 0
        assert not [secret for secret in subject.secrets if secret in terminal.text], "a secret is not shown"

    text = (home / "config.toml").read_text()
    assert text.startswith(BEFORE), "what was there is kept"
    written = tomllib.loads(text)["gateway"][subject.kind]
    assert written["allow"] == [subject.person]
    assert set(subject.answers.values()) <= {str(value) for value in written.values()}
    assert (home / "config.toml").stat().st_mode & 0o777 == 0o600
    assert "Holdfast is set up" in thread.call(subject.heard())


@every_platform
def test_a_wrong_answer_is_named_and_asked_again(home: Path, thread: SetupThread) -> None:
    subject = thread.subject
    question, message = subject.wrong
    with start(home, subject, "--wait", "0") as terminal:
        answer(terminal, subject, question)
        terminal.see(message)
        terminal.see("Try again. Enter keeps an answer")
        assert (home / "config.toml").read_text() == BEFORE
        for one, typed in subject.answers.items():
            terminal.see(one, times=2)
            terminal.say(typed if one == question else "")
        terminal.see(subject.greeting)
        assert terminal.wait() == 0
        assert "Traceback" not in terminal.text
        assert not [one for one in subject.secrets if one in terminal.text]

    assert f"[gateway.{subject.kind}]" in (home / "config.toml").read_text()


@every_platform
def test_ctrl_c_at_each_step_changes_nothing(home: Path, thread: SetupThread) -> None:
    subject = thread.subject
    for stage in (0, len(subject.answers) - 1, len(subject.answers)):
        with start(home, subject) as terminal:
            for question, typed in list(subject.answers.items())[:stage]:
                terminal.see(question)
                terminal.say(typed)
            terminal.see([*subject.answers, "Waiting up to"][stage])
            assert terminal.cancel() == 130
            assert terminal.echoes
            assert "Traceback" not in terminal.text

        assert (home / "config.toml").read_text() == BEFORE
        assert [file.name for file in home.iterdir() if file.name.startswith("config")] == ["config.toml"]


def test_ctrl_c_at_the_last_question_changes_nothing(home: Path, thread: SetupThread) -> None:
    with start(home, thread.subject, "--set", f"token={TOKEN}") as terminal:
        terminal.see("Waiting up to")
        thread.call(thread.subject.say())
        terminal.see("Is that you?")
        assert terminal.cancel() == 130

    assert (home / "config.toml").read_text() == BEFORE


@pytest.mark.parametrize("thread", ["email"], indirect=True)
def test_a_mail_that_is_ignored_is_named_with_the_reason(home: Path, thread: SetupThread) -> None:
    subject = thread.subject
    subject.given = [*subject.given[:-2], "--set", "authserv=mx.example"]
    with start(home, subject) as terminal:
        answer(terminal, subject)
        terminal.see("Waiting up to")
        thread.call(subject.say())
        terminal.see(f"warning: ignored a message of {subject.person}: mx.example has not checked its sender")
        assert terminal.cancel() == 130


def test_keys_pressed_while_waiting_do_not_give_a_stranger_access(home: Path, thread: SetupThread) -> None:
    with start(home, thread.subject) as terminal:
        terminal.see("The bot's token:")
        terminal.press(TOKEN + ENTER + ENTER)  # as if the token was pasted with an empty line
        terminal.see("Waiting up to")
        terminal.say("y")
        thread.call(thread.subject.say())
        terminal.see("Is that you?")
        terminal.say("no")
        terminal.see("No one is allowed to talk to the agent yet")
        assert terminal.wait() == 0

    assert "allow" not in tomllib.loads((home / "config.toml").read_text())["gateway"]["telegram"]


def test_a_stranger_who_writes_first_gets_no_access(home: Path, thread: SetupThread) -> None:
    with start(home, thread.subject, "--set", f"token={TOKEN}") as terminal:
        terminal.see("Waiting up to 5 minutes")
        thread.call(thread.subject.say())
        terminal.see("Is that you?")
        terminal.say("n")
        terminal.see("No one is allowed to talk to the agent yet.")
        assert terminal.wait() == 0

    assert "allow" not in tomllib.loads((home / "config.toml").read_text())["gateway"]["telegram"]


@pytest.mark.parametrize("thread", ["matrix"], indirect=True)
def test_silly_answers_are_asked_again_or_explained(home: Path, thread: SetupThread) -> None:
    subject = thread.subject
    with start(home, subject) as terminal:
        terminal.see("The homeserver's URL:")
        terminal.say("")
        terminal.see("The homeserver's URL:", times=2)
        terminal.say(f'127.0.0.1:{free_port()}/\\ "x"')
        terminal.see("such as @holdfast:example.org:")
        terminal.say("'; drop table users")
        terminal.see("The bot's password:")
        terminal.say("ü\t\\")
        terminal.see("The homeserver's URL:", times=3)
        assert terminal.cancel() == 130
        assert "Traceback" not in terminal.text
        assert "homeserver" in terminal.text

    assert (home / "config.toml").read_text() == BEFORE


def test_a_server_that_is_away_is_named(holdfast: Holdfast, home: Path) -> None:
    ran = holdfast(
        "gateway", "setup", "telegram", "--set", f"token={TOKEN}", "--set", f"api_url=http://127.0.0.1:{free_port()}"
    )

    assert ran.code != 0
    assert "Telegram does not answer" in ran.err
    assert TOKEN not in ran.err + ran.out
    assert not (home / "config.toml").exists()


def test_what_setup_does_not_know_is_refused(holdfast: Holdfast, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[gateway.telegram]\ntoken = "1:x"\n')

    assert "unknown" not in holdfast("gateway", "setup", "--help").err
    assert holdfast("gateway", "setup", "fax").code == 2
    assert "expected one of" in holdfast("gateway", "setup", "discord", "--set", "tokn=x").err
    assert "expected a list" in holdfast("gateway", "setup", "discord", "--set", "allow=[1").err
    existing = holdfast("gateway", "setup", "telegram", "--set", "token=1:x")
    assert "[gateway.telegram] exists" in existing.err
    missing = holdfast("gateway", "setup", "discord")
    assert "give it with --set token=" in missing.err
    other = holdfast("gateway", "setup", "matrix", "--set", "homeserver=http://x", "--set", "token=t")
    assert "user is missing" in other.err, "a token stands for the password"


def test_doctor_reports_what_a_platform_lacks(holdfast: Holdfast, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        '[gateway.telegram]\ntokn = "1:x"\n[gateway.fax]\nnumber = "1"\n'
        '[gateway.matrix]\nhomeserver = "http://x"\nuser = "@a:x"\ntoken = "t"\n'
        '[gateway.open]\nkind = "matrix"\nhomeserver = "http://x"\nuser = "@a:x"\ntoken = "t"\nencryption = false\n'
    )
    (home / "config.toml").chmod(0o600)
    complete = "\n".join(holdfast("doctor", "--json").json["problems"])
    monkeypatch.setattr("nio.crypto.ENCRYPTION_ENABLED", False)  # as without the libraries of the extra
    ran = holdfast("doctor", "--json")

    assert ran.code == 1
    problems = "\n".join(ran.json["problems"])
    assert "[gateway.telegram] unknown setting tokn" in problems
    assert "[gateway.telegram] needs token" in problems
    assert "[gateway.fax] unknown platform 'fax'" in problems
    assert "[gateway.matrix] cannot read encrypted rooms; run: " in problems
    assert "[gateway.open]" not in problems
    assert "encrypted rooms" not in complete
