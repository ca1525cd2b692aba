"""The identity of a file: the same with and without its times."""

from pathlib import Path

import pytest

from holdfast.store.sqlite import file_identity


def test_the_lookup_finds_what_stat_finds(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "broken").symlink_to(tmp_path / "missing")
    look_up = file_identity.choose_lookup(str(tmp_path))

    for path in (
        "/",
        "/dev/null",
        "/proc/self",
        *(str(tmp_path / name) for name in ("", "file", "link", "broken", "é\udcff")),
    ):
        assert look_up(path) == file_identity._look_up_by_stat(path)
    assert look_up(str(tmp_path / "link")) == look_up(str(tmp_path / "file")) is not None
    assert look_up(str(tmp_path / "missing")) is None


def test_a_replaced_file_has_another_identity(tmp_path: Path) -> None:
    look_up = file_identity.choose_lookup(str(tmp_path))
    one, other = tmp_path / "one", tmp_path / "other"
    one.touch()
    other.touch()
    before = look_up(str(one))

    other.replace(one)

    assert look_up(str(one)) not in (before, None)


@pytest.mark.parametrize("missing", ["function", "call"])
def test_where_the_call_does_not_exist_stat_is_used(missing: str, tmp_path: Path) -> None:
    class Library:
        """A C library that does not have the function, or whose kernel does not."""

        if missing == "call":

            def statx(self, *_: object) -> int:
                return -1

    assert file_identity.choose_lookup(str(tmp_path), Library()) is file_identity._look_up_by_stat
