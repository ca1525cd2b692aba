import asyncio
import base64
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.model.errors import Invalid
from holdfast.model.message import Image, text_of
from holdfast.tools import file_snapshot
from holdfast.tools.atomic_replace import FileEditor, replace_file, run_in_thread, short_diff
from holdfast.tools.edit_file import EditFileTool
from holdfast.tools.read_file import ReadFileTool
from holdfast.tools.write_file import WriteFileTool

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def read(scene):
    async def read(path, **more):
        return await ReadFileTool(home=Path("/data/hf")).run({"path": str(path), **more}, scene)

    return read


@pytest.fixture
def write(scene):
    async def write(path, content):
        return await WriteFileTool(FileEditor()).run({"path": str(path), "content": content}, scene)

    return write


@pytest.fixture
def edit(scene):
    tool = EditFileTool(FileEditor())

    async def edit(path, old, new, **more):
        return await tool.run({"path": str(path), "old": old, "new": new, **more}, scene)

    return edit


def said(output):
    return text_of(output.parts)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


class TestReading:
    async def test_lines_are_numbered(self, read, scene):
        (scene.workdir / "a.txt").write_text("one\n\ttwo\r\nthree")

        output = await read("a.txt")

        assert output.ok
        assert said(output) == "     1\tone\n     2\t\ttwo\n     3\tthree"

    async def test_a_long_file_is_read_page_by_page(self, read, scene):
        (scene.workdir / "a.txt").write_text("".join(f"{number}\n" for number in range(1, 5001)))

        first, second = said(await read("a.txt")), said(await read("a.txt", offset=4999, limit=1))

        assert "  2000\t2000\n[more lines follow; continue with offset=2001]" in first
        assert second == "  4999\t4999\n[more lines follow; continue with offset=5000]"
        assert said(await read("a.txt", offset=5000)) == "  5000\t5000"

    async def test_a_page_has_a_size_too(self, read, scene):
        (scene.workdir / "a.txt").write_text(("x" * 1999 + "\n") * 1000)

        text = said(await read("a.txt"))

        assert len(text) < 110_000
        assert text.endswith("]") and "continue with offset=" in text

    async def test_very_long_lines_are_truncated(self, read, scene):
        (scene.workdir / "a.txt").write_text("x" * 50_000_000 + "\nnext\n")

        text = said(await read("a.txt"))

        assert len(text) < 3_000
        assert text.endswith("the rest of this line is omitted]\n     2\tnext")

    async def test_an_offset_past_the_end_says_how_long_the_file_is(self, read, scene):
        (scene.workdir / "a.txt").write_text("one\ntwo\n")

        output = await read("a.txt", offset=3)

        assert not output.ok
        assert "has only 2 lines" in said(output)

    async def test_an_empty_file_says_so(self, read, scene):
        (scene.workdir / "a.txt").touch()

        assert "is empty" in said(await read("a.txt"))

    async def test_bytes_that_are_not_utf8_are_kept(self, read, scene):
        (scene.workdir / "a.txt").write_bytes(b"caf\xe9\n")

        assert said(await read("a.txt")) == "     1\tcaf\udce9"

    async def test_binary_files_are_not_shown(self, read, scene):
        (scene.workdir / "a.bin").write_bytes(b"ELF\0\1\2")

        output = await read("a.bin")

        assert not output.ok
        assert "binary file of 6 bytes" in said(output)

    @pytest.mark.parametrize(
        ("data", "media_type"),
        [
            (PNG, "image/png"),
            (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
            (b"GIF89arest", "image/gif"),
            (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        ],
    )
    async def test_images_are_returned_as_images_whatever_their_name(self, read, scene, data, media_type):
        (scene.workdir / "picture").write_bytes(data)

        (part,) = (await read("picture")).parts

        assert part == Image(f"data:{media_type};base64,{base64.b64encode(data).decode()}", media_type)

    async def test_an_image_that_is_too_large_is_not_shown(self, read, scene):
        (scene.workdir / "a.png").write_bytes(PNG + bytes(6_000_000))

        assert not (await read("a.png")).ok

    async def test_a_folder_is_listed_instead(self, read, scene):
        (scene.workdir / "b").mkdir()
        (scene.workdir / "a.txt").touch()

        output = await read(".")

        assert not output.ok
        assert "is a folder. It contains:\na.txt\nb/" in said(output)

    async def test_a_missing_file_is_reported_with_similar_names(self, read, scene):
        (scene.workdir / "readme.md").touch()

        assert "similar names in the folder: readme.md" in said(await read("readmee.md"))
        assert "neither does the folder" in said(await read("no/such/readme.md"))

    async def test_pipes_and_devices_are_not_waited_for(self, read, scene):
        os.mkfifo(scene.workdir / "pipe")

        assert not (await read("pipe")).ok
        assert not (await read("/dev/zero")).ok

    @pytest.mark.parametrize("path", ["", " ", "a\0b", "\ud800", "~nosuchuser/x", "x" * 5000])
    async def test_an_invalid_path_is_refused(self, read, path):
        assert not (await read(path)).ok

    async def test_relative_absolute_and_home_paths_are_resolved(self, read, scene):
        (scene.workdir / "a.txt").write_text("x")

        assert (await read("a.txt")).ok
        assert (await read(scene.workdir / "a.txt")).ok
        assert "is a folder" in said(await read("~"))

    async def test_a_link_to_a_secret_is_not_followed_without_approval(self, read, scene):
        (scene.workdir / ".env").write_text("PASSWORD=x")
        (scene.workdir / "notes.txt").symlink_to(".env")

        output = await read("notes.txt")

        assert not output.ok
        assert "PASSWORD" not in said(output)
        assert (await read(".env")).ok, "it was approved here"

    def test_showing_secrets_needs_approval(self, scene):
        tool = ReadFileTool(home=Path("/data/hf"))

        assert tool.risk({"path": "~/.ssh/id_rsa"}, scene)
        assert tool.risk({"path": "README.md"}, scene) == ()


class TestWriting:
    async def test_a_new_file_is_created_with_its_folders(self, write, scene):
        output = await write("a/b/c.txt", "one\ntwo")

        assert output.ok
        assert said(output) == "created a/b/c.txt with 2 lines"
        assert (scene.workdir / "a/b/c.txt").read_text() == "one\ntwo"

    async def test_a_file_that_exists_is_overwritten_and_the_change_shown(self, write, scene):
        (scene.workdir / "a.txt").write_text("one\ntwo\nthree\n")

        text = said(await write("a.txt", "one\n2\nthree\n"))

        assert text.startswith("overwrote a.txt with 3 lines\n--- a.txt\n+++ a.txt\n@@ -1,3 +1,3 @@\n")
        assert "-two\n+2\n" in text

    async def test_the_mode_stays_and_new_files_follow_the_umask(self, write, scene):
        script = scene.workdir / "run.sh"
        script.write_text("old")
        script.chmod(0o751)
        before = os.umask(0o027)
        try:
            await write("run.sh", "new")
            await write("new.txt", "x")
        finally:
            os.umask(before)

        assert mode(script) == 0o751
        assert mode(scene.workdir / "new.txt") == 0o640

    async def test_a_link_stays_a_link(self, write, scene):
        (scene.workdir / "real.txt").write_text("old")
        (scene.workdir / "link.txt").symlink_to("real.txt")

        await write("link.txt", "new")

        assert (scene.workdir / "link.txt").is_symlink()
        assert (scene.workdir / "real.txt").read_text() == "new"

    async def test_bytes_that_are_not_utf8_go_back_as_they_were(self, write, scene):
        await write("a.txt", "caf\udce9")

        assert (scene.workdir / "a.txt").read_bytes() == b"caf\xe9"

    async def test_text_that_cannot_be_encoded_is_refused_and_leaves_nothing(self, write, scene):
        output = await write("a.txt", "\ud800")

        assert not output.ok
        assert list(scene.workdir.iterdir()) == []

    @pytest.mark.parametrize("path", ["folder", "pipe", "file/x"])
    async def test_a_file_that_cannot_be_written_is_reported(self, write, scene, path):
        (scene.workdir / "folder").mkdir()
        (scene.workdir / "file").touch()
        os.mkfifo(scene.workdir / "pipe")

        assert not (await write(path, "x")).ok

    async def test_a_failed_write_leaves_the_old_text_and_no_temporary_file(self, scene):
        file = scene.workdir / "a.txt"
        file.write_text("old")
        before = file.stat()
        file.write_text("changed by somebody")

        with pytest.raises(Invalid):
            replace_file(file, "new", before)

        assert file.read_text() == "changed by somebody"
        assert list(scene.workdir.iterdir()) == [file]

    @pytest.mark.process
    def test_a_full_disk_leaves_the_old_text_and_no_temporary_file(self, scene):
        file = scene.workdir / "a.txt"
        file.write_text("old")
        program = (
            "import resource, sys; from pathlib import Path; from holdfast.tools.atomic_replace import replace_file\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); file = Path(sys.argv[1])\n"
            "try: replace_file(file, 'x' * 2000, file.stat())\n"
            "except OSError: print('told')"
        )
        ended = subprocess.run([sys.executable, "-c", program, file], capture_output=True, text=True, check=True)

        assert ended.stdout == "told\n"
        assert file.read_text() == "old"
        assert list(scene.workdir.iterdir()) == [file]

    async def test_a_file_that_appears_meanwhile_is_not_overwritten(self, scene):
        file = scene.workdir / "a.txt"
        file.write_text("theirs")

        with pytest.raises(Invalid):
            replace_file(file, "ours", None)

        assert file.read_text() == "theirs"

    async def test_a_link_to_a_guarded_file_is_not_followed_without_approval(self, write, scene):
        (scene.workdir / ".git/hooks").mkdir(parents=True)
        (scene.workdir / "x").symlink_to(".git/hooks/pre-commit")

        assert not (await write("x", "evil")).ok
        assert (await write(".git/hooks/pre-commit", "agreed")).ok

    def test_writing_files_that_grant_rights_needs_approval(self, scene):
        tool = WriteFileTool(FileEditor(home=Path("/data/hf")))

        for path in [
            "~/.ssh/authorized_keys",
            "~/.bashrc",
            "/etc/hosts",
            ".git/hooks/pre-push",
        ]:
            assert tool.risk({"path": path, "content": ""}, scene), path
        assert tool.risk({"path": "src/x.py", "content": ""}, scene) == ()

    async def test_a_cancelled_write_is_finished_before_the_cancellation_propagates(self):
        begun, may_end, ended = threading.Event(), threading.Event(), []

        def work():
            begun.set()
            may_end.wait(10)
            ended.append(True)

        task = asyncio.ensure_future(run_in_thread(work))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert ended == [True]


class TestEditing:
    async def test_a_unique_passage_is_replaced_and_the_change_shown(self, edit, scene):
        file = scene.workdir / "a.py"
        file.write_text("def f():\n    return 1\n")

        output = await edit("a.py", "return 1", "return 2")

        assert output.ok
        assert "-    return 1\n+    return 2\n" in said(output)
        assert file.read_text() == "def f():\n    return 2\n"

    async def test_a_passage_that_occurs_several_times_is_refused_unless_all_is_set(self, edit, scene):
        file = scene.workdir / "a.txt"
        file.write_text("x\ny\nx\n")

        refused = await edit("a.txt", "x", "z")
        unchanged = file.read_text()
        done = await edit("a.txt", "x", "z", all=True)

        assert "2 times in a.txt (lines 1, 3)" in said(refused)
        assert unchanged == "x\ny\nx\n"
        assert "edited a.txt, 2 times" in said(done)
        assert file.read_text() == "z\ny\nz\n"

    @pytest.mark.parametrize(
        ("old", "hint"),
        [
            ("  return total", "line 2 starts the same"),
            ("return totl", "the most similar line is 2: 'return total'"),
            ("nothing like it", "read the file again"),
        ],
    )
    async def test_a_missing_passage_is_reported_with_the_nearest_line(self, edit, scene, old, hint):
        (scene.workdir / "a.py").write_text("def f():\n\treturn total\n")

        output = await edit("a.py", old, "x")

        assert not output.ok
        assert hint in said(output)

    @pytest.mark.parametrize(("old", "new"), [("", "x"), ("x", "x")])
    async def test_an_edit_without_a_change_is_refused(self, edit, scene, old, new):
        (scene.workdir / "a.txt").write_text("x")

        assert not (await edit("a.txt", old, new)).ok

    async def test_windows_line_endings_are_kept(self, edit, scene):
        file = scene.workdir / "a.txt"
        file.write_bytes(b"one\r\ntwo\r\nthree\r\n")

        await edit("a.txt", "one\ntwo", "1\n2\n2.5")

        assert file.read_bytes() == b"1\r\n2\r\n2.5\r\nthree\r\n"

    async def test_mixed_line_endings_are_left_unchanged(self, edit, scene):
        file = scene.workdir / "a.txt"
        file.write_bytes(b"one\r\ntwo\nthree\r\n")

        await edit("a.txt", "two\n", "2\n")

        assert file.read_bytes() == b"one\r\n2\nthree\r\n"

    async def test_bytes_that_are_not_utf8_survive(self, edit, scene):
        file = scene.workdir / "a.txt"
        file.write_bytes(b"caf\xe9 one\n")

        await edit("a.txt", "one", "two")

        assert file.read_bytes() == b"caf\xe9 two\n"

    async def test_concurrent_edits_do_not_undo_each_other(self, edit, scene):
        file = scene.workdir / "a.txt"
        file.write_text("".join(f"line {number};\n" for number in range(20)))

        outputs = await asyncio.gather(*(edit("a.txt", f"line {number};", f"done {number};") for number in range(20)))

        assert all(output.ok for output in outputs)
        assert file.read_text() == "".join(f"done {number};\n" for number in range(20))

    @pytest.mark.parametrize("name", ["missing.txt", "folder", "binary"])
    async def test_a_file_that_cannot_be_edited_is_reported(self, edit, scene, name):
        (scene.workdir / "folder").mkdir()
        (scene.workdir / "binary").write_bytes(b"a\0b")

        assert not (await edit(name, "a", "b")).ok

    async def test_a_file_that_is_too_large_is_left_unchanged(self, edit, scene):
        with (scene.workdir / "big").open("wb") as file:
            file.truncate(file_snapshot.MAX_READ_BYTES + 1)

        assert "too large to edit" in said(await edit("big", "a", "b"))


class TestDiff:
    def test_only_the_context_of_a_change_is_shown_with_correct_line_numbers(self):
        old = [f"{number}\n" for number in range(1, 101)]
        new = [*old[:49], "fifty\n", *old[50:]]

        text = short_diff("".join(old), "".join(new), "f")

        assert text == "--- f\n+++ f\n@@ -47,7 +47,7 @@\n 47\n 48\n 49\n-50\n+fifty\n 51\n 52\n 53\n"

    def test_insertions_and_deletions_at_either_end_are_shown(self):
        assert "+new\n a\n" in short_diff("a\n", "new\na\n", "f")
        assert " a\n+new\n" in short_diff("a\n", "a\nnew\n", "f")
        assert "-b\n" in short_diff("a\nb\n", "a\n", "f")
        assert short_diff("a\n", "a\n", "f") == "nothing changed"

    def test_a_huge_change_is_counted_instead(self):
        old = "".join(f"{number}\n" for number in range(100_000))

        assert short_diff(old, old.replace("1", "x"), "f").endswith("lines")

    def test_a_long_diff_is_cut(self):
        text = short_diff("", "x\n" * 1000, "f")

        assert text.endswith("[… the rest of the diff is omitted]")
        assert text.count("\n") < 210
