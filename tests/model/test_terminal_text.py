"""The text of what a program wrote for a terminal."""

from time import process_time

import pytest

from holdfast.model.terminal_text import plain_text


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b" 10%\r 99%\r100%\r\nab\x08c\x07\n", "100%\nac\n"),
        (b"abc\x08\x08\x08\x08x\n\x08y", "x\ny"),
        (b"old\rnew", "new"),
        (b"kept\r", "kept"),
        (b"kept\r\r\nnext", "kept\nnext"),
        (b"\r\rx\ry\n\rz", "y\nz"),
        (b"\x1b]0;title\x07\x1b[1;32mok\x1b[0m", "ok"),
    ],
)
def test_it_is_what_the_terminal_shows_at_the_end(written: bytes, shown: str) -> None:
    assert plain_text(written) == shown


@pytest.mark.parametrize("written", [b"a" * 200_000, b"a" * 100_000 + b"\x08" * 100_000, b"a\r" * 100_000])
def test_the_time_grows_with_the_length_only(written: bytes) -> None:
    start = process_time()
    plain_text(written)

    assert process_time() - start < 5, "with the square of the length it would take minutes"
