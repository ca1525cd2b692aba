"""Text is decoded in the character set that a page or mail names, if it is one."""

import pytest

from holdfast.model.text import decode_text


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        (b"F\xfc\xdfe", "latin-1", "Füße"),
        ("Füße".encode(), "nosuch", "Füße"),
        ("Füße".encode(), "", "Füße"),
        ("Füße".encode(), "a\0b", "Füße"),
        (b"F\xfc", "ascii", "F\ufffd"),
        (b"abc", "base64", "abc"),
        (b"x-" + b"a" * 5_000_000, "punycode", "x-" + "a" * 5_000_000),
    ],
)
def test_a_named_character_set_is_used_if_it_is_one(data: bytes, charset: str, text: str) -> None:
    assert decode_text(data, charset) == text
