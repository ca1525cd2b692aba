"""Links and directories that another process replaces while a tool runs."""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.model.message import text_of
from holdfast.model.tool import ToolContext
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.toolbox import Toolbox

KEY = "hfk-0123456789abcdef"
TRIES = 500
LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, RENAME_EXCHANGE = -100, 2


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    (home / "api-key").write_text(KEY)
    return home


@pytest.fixture
def toolbox(home: Path) -> Toolbox:
    return Toolbox(builtin_tools(os.environ, home=home))


@contextlib.contextmanager
def repeating(action: Callable[[], None]) -> Iterator[None]:
    """Repeat it during the test."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            action()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def exchange_link(link: Path, *targets: Path) -> None:
    for target in targets:
        new = link.with_name("new-link")
        new.symlink_to(target)
        new.replace(link)


def exchange_directory(place: Path, link_to: Path) -> None:
    """Replace a directory by a link to the home for a moment."""
    link = place.with_name("aside")
    if not link.is_symlink():
        link.symlink_to(link_to)
    for _ in range(2):
        exchanged = LIBC.renameat2(AT_FDCWD, os.fsencode(place), AT_FDCWD, os.fsencode(link), RENAME_EXCHANGE)
        assert exchanged == 0, os.strerror(ctypes.get_errno())


@pytest.mark.slow
async def test_a_link_replaced_meanwhile_does_not_let_read_file_into_the_home(
    toolbox: Toolbox, scene: ToolContext, home: Path
) -> None:
    (scene.workdir / "plain.txt").write_text("plain")
    link = scene.workdir / "link"
    link.symlink_to("plain.txt")
    said = set()

    with repeating(lambda: exchange_link(link, home / "api-key", Path("plain.txt"))):
        for _ in range(5 * TRIES):
            said.add(text_of((await toolbox.get("read_file").run({"path": "link"}, scene)).parts))

    assert any("plain" in text for text in said)
    assert not any(KEY in text for text in said)


@pytest.mark.slow
async def test_a_directory_replaced_meanwhile_does_not_let_write_file_into_the_home(
    toolbox: Toolbox, scene: ToolContext, home: Path
) -> None:
    (scene.workdir / "folder").mkdir()
    arguments = {"path": "folder/config.toml", "content": 'approvals = "allow"'}
    outcomes = set()

    with repeating(lambda: exchange_directory(scene.workdir / "folder", home)):
        for _ in range(TRIES):
            outcomes.add((await toolbox.get("write_file").run(arguments, scene)).ok)

    assert True in outcomes
    assert {path.name for path in home.iterdir()} == {"api-key"}


async def test_a_directory_replaced_meanwhile_does_not_let_edit_file_see_the_home(
    toolbox: Toolbox, scene: ToolContext, home: Path
) -> None:
    (home / "notes.txt").write_text(f"one\n{KEY}")
    folder = scene.workdir / "folder"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\ntwo")
    said = set()

    with repeating(lambda: exchange_directory(folder, home)):
        for turn in range(TRIES):
            old, new = ("one", "ONE") if turn % 2 == 0 else ("ONE", "one")
            arguments = {"path": "folder/notes.txt", "old": old, "new": new}
            said.add(text_of((await toolbox.get("edit_file").run(arguments, scene)).parts))

    assert not any(KEY in text for text in said)
    assert (home / "notes.txt").read_text() == f"one\n{KEY}"
