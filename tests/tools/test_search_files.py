import asyncio
import os
import shutil
import sys
import time
from pathlib import Path

import psutil
import pytest

from holdfast.model.message import text_of
from holdfast.tools.grep_fallback import glob_pattern
from holdfast.tools.search_files import SearchFilesTool

pytestmark = pytest.mark.process


def ripgrep():
    """The real program, so that both ways to search are tested."""
    found = shutil.which("rg", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert found, "ripgrep is not installed; it comes with the extra `dev`"
    return found


@pytest.fixture(params=["ripgrep", "python"])
def tool(request):
    return SearchFilesTool(ripgrep=ripgrep() if request.param == "ripgrep" else None, home=Path("/data/hf"))


@pytest.fixture
def search(tool, scene):
    async def search(pattern, **more):
        return await tool.run({"pattern": pattern, **more}, scene)

    return search


def said(output):
    return text_of(output.parts)


@pytest.fixture
def files(scene):
    def files(**contents):
        for name, content in contents.items():
            path = scene.workdir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return files


async def test_matches_are_given_with_path_and_line_in_order(search, files):
    files(**{"b.py": "x = 1\ny = 2\n", "a/c.txt": "no\nx = 3\n", "a/d.txt": "none"})

    output = await search(r"^x = \d")

    assert output.ok
    assert said(output) == "a/c.txt:2: x = 3\nb.py:1: x = 1"


async def test_a_search_without_matches_says_so(search, files):
    files(**{"a.txt": "x"})

    output = await search("nowhere")

    assert output.ok
    assert said(output) == "no matches"


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.py", ["a.py", "sub/deep/b.py"]),
        ("sub/**/*.py", ["sub/deep/b.py"]),
        ("*.{py,md}", ["a.py", "sub/c.md", "sub/deep/b.py"]),
        ("[ab].py", ["a.py", "sub/deep/b.py"]),
        ("?.md", ["sub/c.md"]),
        ("/a.py", ["a.py"]),
        ("!*.py", ["sub/c.md"]),
        ("*.none", []),
    ],
)
async def test_a_glob_chooses_files(search, files, glob, found):
    files(**{"a.py": "hit", "sub/deep/b.py": "hit", "sub/c.md": "hit"})

    text = said(await search("hit", glob=glob))

    assert text == ("\n".join(f"{name}:1: hit" for name in found) or "no matches")


async def test_a_folder_or_a_single_file_can_be_searched(search, files, scene):
    files(**{"a.txt": "hit", "sub/b.txt": "hit"})

    assert said(await search("hit", path="sub")) == "sub/b.txt:1: hit"
    assert said(await search("hit", path="a.txt")) == "a.txt:1: hit"
    assert said(await search("hit", path=str(scene.workdir.parent), glob="a.txt")) == "a.txt:1: hit"


async def test_binary_files_and_ignored_directories_are_skipped(search, files):
    files(
        **{"a.bin": b"\0hit\n", ".git/x": "hit", "node_modules/y": "hit", "sub/__pycache__/z": "hit", ".hidden": "hit"}
    )

    assert said(await search("hit")) == ".hidden:1: hit"


async def test_files_in_gitignore_are_searched(search, files):
    files(**{".git/HEAD": "", ".gitignore": "build\n", "build/x.txt": "hit"})

    assert said(await search("hit")) == "build/x.txt:1: hit"


async def test_too_many_matches_are_truncated_and_that_is_reported(search, files):
    files(**{"a.txt": "hit\n" * 100_000})

    text = said(await search("hit"))

    assert text.count("a.txt:") == 200
    assert "more than 200 matches" in text


async def test_long_lines_are_cut(search, files):
    files(**{"a.txt": "x" * 100_000 + "hit\n", "b.txt": "hit" + "y" * 100_000})

    text = said(await search("hit"))

    assert "a.txt:1: xxx" in text and "b.txt:1: hityyy" in text
    assert len(text) < 1_000


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "a\0b", "\ud800"])
async def test_an_invalid_pattern_is_reported(search, pattern):
    output = await search(pattern)

    assert not output.ok


@pytest.mark.parametrize("pattern", ["-v", "--help", "a b", "'"])
async def test_a_pattern_is_never_read_as_an_option(search, files, pattern):
    files(**{"a.txt": f"{pattern}\n"})

    assert said(await search(pattern)) == f"a.txt:1: {pattern}"


async def test_a_missing_path_is_reported(search):
    assert "does not exist" in said(await search("x", path="nowhere"))


async def test_names_and_texts_that_are_not_utf8_are_kept(search, scene):
    (scene.workdir / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"na\xefve hit\n")

    assert said(await search("hit")) == "caf\udce9.txt:1: na\udcefve hit"


async def test_files_that_cannot_be_read_are_mentioned(search):
    # A file that even root cannot read from its start.
    assert said(await search("x", path="/proc/self/clear_refs")) == "no matches\n[some files could not be read]"


async def test_matches_in_files_with_secrets_are_not_shown(search, files, scene):
    files(**{".env": "PASSWORD=hit", "a.txt": "hit"})

    text = said(await search("hit"))

    assert text.startswith("a.txt:1: hit\n[matches in files with secrets are not shown: ")
    assert "PASSWORD" not in text
    assert said(await search("hit", path=".env")) == ".env:1: PASSWORD=hit", "it was approved here"


async def test_a_link_to_secrets_is_not_followed_without_approval(search, files, scene):
    files(**{".ssh/config": "hit"})
    (scene.workdir / "notes").symlink_to(".ssh")

    assert not (await search("hit", path="notes")).ok
    assert "hit" not in said(await search("hit")).partition("[")[0]


def test_searching_secrets_needs_approval(tool, scene):
    assert tool.risk({"pattern": "x", "path": "~/.ssh"}, scene)
    assert tool.risk({"pattern": "x"}, scene) == ()


async def test_a_pattern_that_never_ends_is_stopped(files, scene):
    files(**{"a.txt": "hit\n", "b.txt": "a" * 40 + "!\n"})
    started = time.monotonic()

    output = await SearchFilesTool(max_seconds=5).run({"pattern": "hit|^(a+)+$"}, scene)

    assert said(output) == "a.txt:1: hit\n[stopped after 5 s; narrow the path or the pattern]"
    assert time.monotonic() - started < 30


async def test_cancelling_stops_the_search(files, scene):
    files(**{"b.txt": "a" * 40 + "!\n"})
    before = set(psutil.Process().children())
    call = asyncio.ensure_future(SearchFilesTool().run({"pattern": "^(a+)+$"}, scene))
    async with asyncio.timeout(10):
        while not (searches := set(psutil.Process().children()) - before):
            await asyncio.sleep(0.01)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in searches)


@pytest.mark.parametrize(
    ("glob", "fits", "fits_not"),
    [
        ("a*", ["a", "ab"], ["a/b", "b"]),
        ("**/a", ["a", "x/a", "x/y/a"], ["xa"]),
        ("a/**", ["a/b", "a/b/c"], ["b/a"]),
        ("[!a]", ["b"], ["a"]),
        ("{a,b*}.x", ["a.x", "bc.x"], ["c.x"]),
        ("a.b", ["a.b"], ["axb"]),
        ("{", ["{"], ["a"]),
    ],
)
def test_globs_match_as_in_ripgrep(glob, fits, fits_not):
    pattern = glob_pattern(glob)

    assert all(pattern.fullmatch(name) for name in fits)
    assert not any(pattern.fullmatch(name) for name in fits_not)
