"""The program's own log: private, bounded, without secrets; and a terminal that shows only warnings."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import config, logs

log = logging.getLogger("holdfast.somewhere")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    logs.remove_handlers()
    logging.getLogger("holdfast").setLevel(logging.NOTSET)


def written(home: Path) -> str:
    return (home / "logs" / "holdfast.log").read_text()


def test_no_file_is_created_before_the_first_record(home: Path) -> None:
    logs.add_handlers(config.read({}, home))

    assert not home.exists()


def test_the_file_is_private_and_the_terminal_shows_warnings_only(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.add_handlers(config.read({}, home))

    log.debug("a detail")
    log.info("a fact")
    log.warning("a warning\nof two lines \x1b[31m")

    assert "a fact" in written(home) and "a detail" not in written(home)
    assert (home / "logs" / "holdfast.log").stat().st_mode & 0o777 == 0o600
    assert (home / "logs").stat().st_mode & 0o777 == 0o700
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "WARNING: a warning\\nof two lines \\x1b[31m\n")


def test_warnings_are_passed_on_instead_of_printed_while_they_are_redirected(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.add_handlers(config.read({}, home))
    shown: list[str] = []

    with logs.redirect_warnings(shown.append):
        log.warning("first")
    log.warning("second")

    assert shown == ["WARNING: first"]
    assert capsys.readouterr().err == "WARNING: second\n"


def test_the_level_is_a_setting(home: Path) -> None:
    logs.add_handlers(config.read({"HOLDFAST_LOG": "debug"}, home))
    log.debug("a detail")
    logs.add_handlers(config.read({"HOLDFAST_LOG": "error"}, home))
    log.warning("a warning")

    assert "a detail" in written(home) and "a warning" not in written(home)


@pytest.mark.parametrize(
    "text",
    [
        "key sk-proj-{} end",
        "key hfk-{} end",
        "user key hfu-{} end",
        "https://:hfk-{}@peer:8420/v1",
        "key sk-ant-api03-{} end",
        "Authorization: Bearer {}",
        "'Authorization': 'Bearer {}'",
        "authorization: {}",
        '{{"api_key": "{}"}}',
        "x-api-key: {}",
        "https://host/path?api_key={}&b=1",
        "OPENAI_API_KEY={}",
        "password = '{}'",
        "postgresql://me:{}@host/db",
        "bot_token={}",
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    secret = "Q7rT9xZ2Lm4Np6Vb8"

    shown = logs.Redactor([])(text.format(secret))

    assert secret not in shown and "[hidden]" in shown


FORMATS = [
    *(
        "sk-{}",
        "hfk-{}",
        "hfu-{}",
        "ghp_{0}{0}",
        "gho_{0}{0}",
        "ghu_{0}{0}",
        "ghs_{0}{0}",
        "ghr_{0}{0}",
        "github_pat_{0}{0}",
    ),
    *("xoxb-{}", "AKIAQ7RT9XZ2LM4NP6VB", "AIza{0}{0}", "12345678:{0}{0}x", "Bearer {}", "basic {}", "s3://me:{}@host"),
    *(
        "x-api-key: {}",
        "APIKEY={}",
        "Authorization={}",
        "access_token: {}",
        "secret={}",
        "Password: {}",
        "my odd secret",
    ),
]


@given(st.lists(st.sampled_from(FORMATS) | st.text(st.characters(codec="ascii"), max_size=12), max_size=6))
@example(["12345678:{0}{0}x"])
def test_the_fast_check_misses_no_secret(pieces: list[str]) -> None:
    redact = logs.Redactor(["my odd secret"])
    secret = "Q7rT9xZ2Lm4Np6Vb8"
    text = " ".join(piece.format(secret) if piece in FORMATS else piece for piece in pieces)

    assert redact(text) == redact(f"{text} é").removesuffix(" é")  # which takes the slow way
    assert all(redact(piece.format(secret)) != piece.format(secret) for piece in pieces if piece in FORMATS)


def test_ordinary_text_is_not_redacted(home: Path) -> None:
    redact = logs.Redactor(["ab"])

    for text in ("the token grows", "a basic idea", "session hf-1m7fa1917d0nfvbfj81g", "12:30:15 took 3 s", "abacus"):
        assert redact(text) == text


def test_the_secrets_of_the_settings_are_hidden_in_messages_and_tracebacks(home: Path) -> None:
    env = {"OPENAI_API_KEY": "my-own-odd-key", "HOLDFAST_API_KEY": "another odd one"}
    logs.add_handlers(config.read(env, home))

    try:
        raise ValueError("refused my-own-odd-key")
    except ValueError:
        log.exception("with another odd one")

    assert "odd" not in written(home)
    assert "Traceback" in written(home) and "refused [hidden]" in written(home)


def test_the_terminal_shows_an_exception_in_one_line_and_the_file_has_its_traceback(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.add_handlers(config.read({"HOLDFAST_API_KEY": "a-secret-of-mine"}, home))

    try:
        raise ValueError("no room for a-secret-of-mine")
    except ValueError:
        log.exception("task %s failed", "janitor")

    told = capsys.readouterr().err
    assert told == "ERROR: task janitor failed: ValueError: no room for [hidden]; see the log file\n"
    assert "Traceback" in written(home)


def test_the_file_never_grows_beyond_its_limit(home: Path) -> None:
    handler = logs.PrivateFileHandler(home / "log", max_bytes=1_000)
    for number in range(100):
        handler.emit(logging.makeLogRecord({"msg": f"line {number:03} " + "x" * 50}))
    handler.close()

    newest, before = (home / "log").read_text(), (home / "log.1").read_text()
    assert len(newest) < 1_100 and len(before) < 1_100
    assert "line 099" in newest + before
    assert (home / "log.1").stat().st_mode & 0o777 == 0o600


@pytest.mark.process
def test_two_processes_share_the_file_and_lose_no_line(home: Path) -> None:
    code = (
        "import logging, sys; from pathlib import Path; from holdfast.logs import PrivateFileHandler;"
        "h = PrivateFileHandler(Path(sys.argv[1]), max_bytes=12_000);"
        "[h.emit(logging.makeLogRecord({'msg': f'{sys.argv[2]} {n:04}'})) for n in range(1000)]"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(home / "log"), name]) for name in ("one", "two")]
    assert [writer.wait(30) for writer in writers] == [0, 0]

    lines = ((home / "log").read_text() + (home / "log.1").read_text()).splitlines()
    assert sorted(lines) == [f"{name} {number:04}" for name in ("one", "two") for number in range(1000)]


def test_a_log_that_cannot_be_written_is_reported_once_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home").write_text("in the way")
    handler = logs.PrivateFileHandler(tmp_path / "home" / "logs" / "log")

    handler.emit(logging.makeLogRecord({"msg": "one"}))
    handler.emit(logging.makeLogRecord({"msg": "two"}))

    assert capsys.readouterr().err.count("cannot write to") == 1
