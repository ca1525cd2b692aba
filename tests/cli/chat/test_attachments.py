"""Files, directories, images and command output that a user attaches: the model receives exactly what they contain."""

import base64
import json
import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.chat.attachments.compose import MAX_ATTACHMENTS, compose
from holdfast.cli.chat.attachments.file_content import MAX_TEXT_BYTES
from holdfast.cli.chat.attachments.folder_content import MAX_COUNTED, MAX_NAMES
from holdfast.cli.chat.attachments.mentions import find_mentions, mention
from holdfast.cli.chat.captured_output import FIRST_BYTES, LAST_BYTES, CapturedOutput, plain_text
from holdfast.cli.chat.input.file_completion import complete_path
from holdfast.cli.chat.input.paste import PasteBuffer
from holdfast.cli.chat.input.pasted_path import image_mention
from holdfast.model.attachment import attachment_headers
from holdfast.model.errors import Invalid
from holdfast.model.message import Image, Text, text_of, typed_text
from tests.api.serving import recording_vendor
from tests.cli.chats import newest, said
from tests.cli.conftest import Holdfast
from tests.cli.terminal import ENTER, ESCAPE, TAB, Terminal
from tests.fakes.images_server import sample

CTRL_V = "\x16"
FILES = "attached file"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    (directory / "src").mkdir(parents=True)
    (directory / "src" / "main.py").write_text('print("x < y")  # café\r\n')
    return directory


def parts(typed: str, work: Path) -> tuple[Any, ...]:
    return compose(typed, typed, work, work.parent / "home").parts


def attached(typed: str, work: Path) -> str:
    return text_of(parts(typed, work)[1:])


# mentions


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("see @a.txt", [("a.txt",)]),
        ("(@a.txt), or @b/?", [("a.txt),", "a.txt"), ("b/?", "b/")]),
        ('@"two words.md" and @~/x', [("two words.md",), ("~/x",)]),
        ("me@example.org, a @", []),
    ],
)
def test_mentions_are_words_after_an_at_sign(text: str, paths: list[tuple[str, ...]]) -> None:
    assert list(find_mentions(text)) == paths


@given(st.from_regex(r"[\w ./-]{1,20}", fullmatch=True).filter(lambda path: '"' not in path and "\n" not in path))
def test_a_mention_names_its_path(path: str) -> None:
    assert next(iter(find_mentions(f"see {mention(path)}")))[0] == path


# content


def test_a_file_is_attached_exactly(work: Path) -> None:
    content = "a\tb \r\n\n  last line without an end ✓"
    (work / "notes.md").write_bytes(content.encode())

    typed, file = parts("summarize @notes.md.", work)

    assert typed == Text("summarize @notes.md.")
    assert file.text == f"\n\n[attached file notes.md: 3 lines, {len(content.encode())} bytes]\n{content}"


def test_a_file_that_is_not_utf_8_keeps_its_bytes_and_says_so(work: Path) -> None:
    (work / "latin.txt").write_bytes(b"caf\xe9\n")

    text = attached("@latin.txt", work)

    assert "not valid UTF-8" in text
    assert text.partition("]\n")[2].encode("utf-8", "surrogateescape") == b"caf\xe9\n"


def test_an_image_is_attached_as_an_image(work: Path) -> None:
    (work / "chart.png").write_bytes(sample())

    _, header, image = parts("what is in @chart.png?", work)

    assert "[attached image chart.png: image/png, " in header.text
    assert isinstance(image, Image)
    assert base64.b64decode(image.url.partition(",")[2]) == sample()


def test_a_directory_is_attached_with_the_text_of_its_files(work: Path) -> None:
    (work / "src" / "deep").mkdir()
    (work / "src" / "deep" / "b.txt").write_text("bee")
    (work / "src" / "logo.bin").write_bytes(b"\0\1\2")
    (work / "src" / ".env").write_text("SECRET=1")
    (work / "src" / "node_modules").mkdir()
    (work / "src" / "node_modules" / "x.js").write_text("skipped")

    text = attached("review @src/", work)

    assert '[file main.py: 1 line, 25 bytes]\nprint("x < y")  # café\r\n' in text
    assert "[file deep/b.txt: 1 line, 3 bytes]\nbee" in text
    assert "[not attached: logo.bin is a binary file of 3 bytes" in text
    assert "[not attached: .env is not attached" in text
    assert "SECRET" not in text and "skipped" not in text


def test_a_directory_with_too_many_files_is_attached_as_a_list_of_names(work: Path) -> None:
    for number in range(MAX_COUNTED + 5):
        os.close(os.open(work / "src" / f"{number:06}.txt", os.O_CREAT))

    text = attached("@src", work)

    assert f"names of {MAX_NAMES:,} of more than {MAX_COUNTED:,} files" in text
    assert text.count(".txt") == MAX_NAMES


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tool.bin", b"ELF\0\1", "tool.bin is a binary file of 5 bytes"),
        ("late.bin", b"x" * 20_000 + b"\0", "late.bin is a binary file of 20,001 bytes"),
        ("big.log", b"x" * (MAX_TEXT_BYTES + 1), f"big.log has {MAX_TEXT_BYTES + 1:,} bytes; the limit is"),
        (".env", b"KEY=1", ".env is not attached"),
    ],
)
def test_a_file_that_cannot_be_attached_is_refused_by_name(work: Path, name: str, content: bytes, message: str) -> None:
    (work / name).write_bytes(content)

    with pytest.raises(Invalid, match=message.replace(".", r"\.")):
        parts(f"see @{name}", work)


def test_a_pipe_and_the_files_of_holdfast_are_refused(work: Path, home: Path) -> None:
    os.mkfifo(work / "pipe")
    home.mkdir()
    (home / "api-key").write_text("hfk-secret")
    (work / "link").symlink_to(home / "api-key")

    with pytest.raises(Invalid, match="pipe is not a regular file"):
        parts("@pipe", work)
    for name in (str(home / "api-key"), "link", str(home)):
        with pytest.raises(Invalid, match="belongs to Holdfast itself"):
            compose(f"@{name}", "", work, home)


def test_a_name_that_does_not_exist_is_text_with_a_note_if_it_looks_like_a_path(work: Path) -> None:
    composed = compose("@src/mian.py @alice @app.route('/x') @README.md", "", work, work)

    assert len(composed.parts) == 1
    assert composed.notes == ["! @src/mian.py: no such file; sent as text", "! @README.md: no such file; sent as text"]


def test_too_many_files_are_refused(work: Path) -> None:
    names = [f"{number}.txt" for number in range(MAX_ATTACHMENTS + 1)]
    for name in names:
        (work / name).write_text(name)

    with pytest.raises(Invalid, match="21 files are too many"):
        parts(" ".join(f"@{name}" for name in names), work)


def test_the_typed_text_leaves_attachments_out(work: Path) -> None:
    composed = parts("look at @src/main.py", work)

    assert typed_text(composed) == "look at @src/main.py"
    assert list(attachment_headers(composed)) == ["[attached file src/main.py: 1 line, 25 bytes]"]
    assert typed_text((Text("\n\n[attached file x: y]\n"),)) == "\n\n[attached file x: y]\n"


# completion


def test_names_are_completed_in_their_directory_and_further_down(work: Path) -> None:
    (work / "two words.md").touch()
    (work / "two dirs").mkdir()

    def completed(text: str) -> list[str]:
        return [one.text for one in complete_path(text, work)]

    assert completed("see @s") == ["@src/"]
    assert completed("see @src/m") == ["@src/main.py"]
    assert completed("see @MAIN") == ["@src/main.py"]
    assert completed("see @two") == ['@"two dirs/', '@"two words.md"']
    assert completed("see src/m") == ["src/main.py"]
    assert completed("see @nosuch/x") == completed("see @\0/") == completed("@~nobody/") == []


# pasted images


@pytest.mark.parametrize("written", ["{}", "'{}'", "{quoted}", "file://{url}", " {} \n"])
def test_the_pasted_path_of_an_image_becomes_a_mention(tmp_path: Path, written: str) -> None:
    path = tmp_path / "my chart.png"
    path.write_bytes(sample())
    pasted = written.format(path, quoted=shlex.quote(str(path)), url=str(path).replace(" ", "%20"))

    assert image_mention(pasted) == f'@"{path}" '


def test_another_pasted_path_stays_text(work: Path) -> None:
    assert image_mention(str(work / "src" / "main.py")) is None
    assert image_mention("a\nb") is None
    assert image_mention("it's") is None
    assert image_mention("relative.png") is None


def test_a_placeholder_stands_for_a_pasted_image() -> None:
    pastes = PasteBuffer()
    mark = pastes.take_image(sample())

    assert list(pastes.images(f"see {mark} {mark} [image #7: x]")) == [("image #1", sample())]
    assert pastes.expand(mark) == mark


# output of commands


def test_the_output_of_a_command_is_plain_text() -> None:
    assert plain_text(b"\x1b]0;title\x07\x1b[1;32mok\x1b[0m\r\n 10%\r 99%\r100%\r\nab\x08c\x07\n") == "ok\n100%\nac\n"


def test_a_long_output_keeps_its_beginning_and_its_end() -> None:
    captured = CapturedOutput()
    for _ in range(1_000):
        captured.feed(b"m" * 1_000)
    captured.feed(b"the end")

    text = captured.text()

    assert text.startswith("m") and text.endswith("the end")
    assert f"[… {1_000_007 - FIRST_BYTES - LAST_BYTES:,} bytes omitted …]" in text


def test_a_full_screen_program_is_recognized() -> None:
    captured = CapturedOutput()
    captured.feed(b"x" * FIRST_BYTES + b"\x1b[?1049h")

    assert captured.is_full_screen


# in the chat


@pytest.fixture
def record(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A file with each request that the model receives, and the environment that leads to that model."""
    path = tmp_path / "requests"
    with recording_vendor(path) as url:
        yield path, {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-test"}


def test_the_model_receives_attached_files_and_images_and_they_are_shown_by_name(
    holdfast: Holdfast, home: Path, work: Path, record: tuple[Path, dict[str, str]]
) -> None:
    requests, environment = record
    (work / "chart.png").write_bytes(sample())
    tool = work / "wl-paste"
    tool.write_text(f"#!/bin/sh\nexec cat {work / 'chart.png'}\n")
    tool.chmod(0o755)
    environment |= {"WAYLAND_DISPLAY": "wayland-0", "PATH": f"{work}:{os.environ['PATH']}"}
    with Terminal(home, model="openai:gpt-test", cwd=work, env=environment) as chat:
        chat.ready().press("what is @src/ma" + TAB)
        chat.see("@src/main.py")
        chat.press(" ")
        chat.press(CTRL_V)
        chat.see("[image #1: image/png,")
        chat.paste(str(work / "chart.png").encode())
        chat.see("/project/chart.png")
        chat.press(ENTER)
        chat.see("[attached file src/main.py: 1 line, 25 bytes]")
        chat.see("[attached image image #1: image/png,")
        chat.see("You said:")
        assert chat.flat.count('print("x < y")') == 1  # in the reply, not in the message
        chat.leave()

    [user] = [one for one in json.loads(requests.read_text().splitlines()[0])["messages"] if one["role"] == "user"]
    texts = "".join(part["text"] for part in user["content"] if part["type"] == "text")
    images = [part["image_url"]["url"] for part in user["content"] if part["type"] == "image_url"]
    assert '[attached file src/main.py: 1 line, 25 bytes]\nprint("x < y")  # café\r\n' in texts
    assert [base64.b64decode(url.partition(",")[2]) for url in images] == [sample(), sample()]
    assert newest(holdfast)["title"] != "" and FILES not in (newest(holdfast)["title"] or "")


def test_a_refused_attachment_leaves_the_message_in_the_input_line_unsent(
    holdfast: Holdfast, home: Path, work: Path
) -> None:
    (work / "tool.bin").write_bytes(b"\0\0")
    with Terminal(home, cwd=work) as chat:
        chat.ready().say("run @tool.bin")
        chat.see("! not sent: tool.bin is a binary file of 2 bytes")
        chat.press("\x7f" * len("tool.bin") + "src/main.py and @src/nope.py" + ENTER)
        chat.see("! @src/nope.py: no such file; sent as text")
        chat.see("You said: run @src/main.py")
        chat.say("/undo")
        chat.see("Your message is back in the input line")
        chat.press(" again" + ENTER)
        chat.see("You said: run @src/main.py and @src/nope.py again")
        chat.leave()

    message = said(newest(holdfast), "user")[-1]
    assert message.count("attached file") == 1 and "again" in message


def test_the_output_of_a_shared_command_goes_to_the_model_with_the_next_message(
    holdfast: Holdfast, home: Path, work: Path
) -> None:
    with Terminal(home, cwd=work) as chat:
        chat.ready().say("!tty && printf '\\033[1mbold\\033[0m\\n'; exit 3")
        chat.see("[2 lines of output will be sent with your next message]")
        chat.say("!!echo for my eyes only; exit 4")
        chat.see("[exit status 4]")
        chat.say("What went wrong?")
        chat.see("You said: What went wrong?")
        chat.say("And now?")
        chat.see("You said: And now?")
        chat.leave()

    first, second = said(newest(holdfast), "user")
    assert first.startswith("What went wrong?\n\n[attached output of `tty && printf")
    assert "exit status 3]\n/dev/pts/" in first and first.endswith("\nbold\n")
    assert "my eyes" not in first and second == "And now?"


def test_a_message_that_is_taken_back_keeps_the_output_of_commands(
    holdfast: Holdfast, home: Path, work: Path, scripted: Callable[..., str]
) -> None:
    with Terminal(home, model=scripted({"say": "Once", "hang": True}, {"say": "Fine."}), cwd=work) as chat:
        chat.ready().say("A story")
        chat.see("Once")
        chat.say("!echo seen")
        chat.see("1 line of output will be sent with your next message")
        chat.say("and this")
        chat.see("queued ❯ and this")
        chat.press(ESCAPE)
        chat.see("[interrupted]")
        chat.see_no("queued ❯")
        chat.press(ENTER)
        chat.see("Fine.")
        chat.leave()

    message = said(newest(holdfast), "user")[-1]
    assert message.startswith("and this\n\n[attached output of `echo seen`") and message.endswith("seen\n")
