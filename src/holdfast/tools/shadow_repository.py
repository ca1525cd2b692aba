"""A git repository of Holdfast's own that holds snapshots of a working directory, beside whatever git is used there.

The repository is private and outside the reach of tools. The patterns of `.gitignore` apply; the attributes of
the project do not.
"""

import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.file_change import CUT_OFF_HASH, MAX_IMAGE_BYTES, NO_FILE, TOO_LARGE, NewFileChange, hash_content
from holdfast.store import durable_file
from holdfast.tools.file_snapshot import MAX_READ_BYTES
from holdfast.tools.paths import TEMPORARY_NAMES
from holdfast.tools.shadow_git import ShadowGit

MAX_CONTENT_BYTES = 512 * 1024 * 1024
"""Of all files of one snapshot together."""
MAX_CHANGES = 1_000
"""Changed files of one command."""
MAX_CHANGED_BYTES = 128 * 1024 * 1024
"""Content of changed files of one command, before and after it together."""
USUAL_MODES = (0o644, 0o755)
NO_CONVERSION = "* -text -eol -filter -ident -working-tree-encoding"
FILE, EXECUTABLE, LINK, REPOSITORY = "100", "100755", "120000", "160000"
"""Modes of git."""
OTHER = b"? "
"""What a name begins with that is not in the index."""
UNCERTAIN = "it may have been there before the command: git ignored it, or it was in a nested repository"
WAS_LINK = "it was a link before the command"
VANISHED = "unable to stat"
"""In the message of `git add` about a file that was deleted after git had listed it."""
ADD_TRIES = 20
"""How often `git add` is repeated while other programs delete files."""
SPECIAL = re.compile(r"([\\*?\[\]! #])")


class Snapshot(msgspec.Struct, frozen=True):
    """A tree of git, and what git does not keep."""

    tree: str
    started: int
    """When it began, in nanoseconds by the clock of the file system."""
    modes: dict[str, int] = {}
    """Unusual permissions."""
    large: tuple[str, ...] = ()
    """Files that are left out because of their size."""
    nested: tuple[str, ...] = ()
    """Directories that are repositories of their own, whose files are left out."""


class ShadowRepository:
    """Not safe for concurrent use. Raises Unavailable if git does not work, and Invalid beyond a limit."""

    def __init__(self, folder: Path, worktree: Path, home: Path, path: str, max_files: int) -> None:
        self._git = ShadowGit(folder, worktree, path)
        self._folder = folder
        self._worktree = worktree
        self._home = home
        self._max_files = max_files

    @property
    def exists(self) -> bool:
        return self._folder.exists()

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(file.stat().st_size for file in self._folder.rglob("*") if file.is_file())

    def remove(self) -> None:
        shutil.rmtree(self._folder)

    def take(self) -> Snapshot:
        """Take a snapshot of every regular file that git does not ignore."""
        self._create()
        excluded = self._excluded()
        self._write("exclude", excluded)
        started = (self._folder / "info/exclude").stat().st_mtime_ns
        listed = self._list()
        modes, large, nested = self._inspect(listed)
        hidden = [*large, *(name.rstrip("/") for name in nested)]
        self._write("exclude", [*excluded, *(_pattern(name) for name in hidden if "\n" not in name)])
        # `git add` would run `git status` in a nested repository of the index, with the filters of its configuration.
        removed = [*large, *(name for name, mode in listed.items() if mode == REPOSITORY)]
        if removed:
            self._git.run("update-index", "-z", "--force-remove", "--stdin", data=_join(removed))
        self._add()
        return Snapshot(
            self._git.run("write-tree").decode("ascii").strip(), started, modes, tuple(large), tuple(nested)
        )

    def _add(self) -> None:
        """Bring the index up to date. Another command of the session may create and delete files meanwhile."""
        for attempt in range(1, ADD_TRIES + 1):
            try:
                self._git.run("add", "--all", "--ignore-errors", *self._within(), accepted=(0, 1))
            except Unavailable as e:
                if VANISHED not in str(e) or attempt == ADD_TRIES:
                    raise
            else:
                return

    def compare(self, before: Snapshot, after: Snapshot) -> list[NewFileChange]:
        """The regular files that differ, with their content before."""
        if before.tree == after.tree:
            return []
        fields = self._git.run("diff-tree", "-r", "-z", "--no-renames", before.tree, after.tree)
        rows = [row for row in _rows(fields) if self._is_change(row, before)]
        files = [row for row in rows if row.is_file]
        if len(files) > MAX_CHANGES:
            raise Invalid(f"the command changed {len(files):,} files, more than {MAX_CHANGES:,}")
        is_uncertain = any(row.may_uncover for row in rows)
        contents = self._read([digest for row in files for digest in (row.old, row.new) if digest])
        return [self._describe(row, contents, before, is_uncertain=is_uncertain) for row in files]

    def _is_change(self, row: "_Row", before: Snapshot) -> bool:
        """Whether the file changed: one that git ignored before and no longer ignores is not new."""
        if row.old or not row.new:
            return True
        try:
            return (self._worktree / row.name).lstat().st_ctime_ns >= before.started
        except OSError:
            return True

    def _describe(
        self, row: "_Row", contents: Mapping[str, bytes], before: Snapshot, *, is_uncertain: bool
    ) -> NewFileChange:
        problem = ""
        if row.name in before.large:
            problem = TOO_LARGE
        elif not row.old and (is_uncertain or row.name.startswith(before.nested)):
            problem = UNCERTAIN
        elif row.was_link:
            problem = WAS_LINK
        private = 0o700 if row.is_executable else 0o600
        return NewFileChange(
            path=str(self._worktree / row.name),
            before=contents[row.old] if row.old else None,
            after_hash=hash_content(contents[row.new]) if row.new else self._present_hash(row.name),
            mode=(before.modes.get(row.name) or self._present_mode(row.name) or private) if row.old else 0,
            problem=problem,
        )

    def _present_hash(self, name: str) -> str:
        """The hash of a file that is no longer in the snapshots: it was deleted, or it is left out now."""
        path = self._worktree / name
        try:
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode):
                return NO_FILE
            return hash_content(path.read_bytes()) if found.st_size <= MAX_READ_BYTES else CUT_OFF_HASH
        except OSError:
            return NO_FILE

    def _present_mode(self, name: str) -> int:
        """The permissions that the file has now: a command that changes a content seldom changes them."""
        try:
            return stat.S_IMODE((self._worktree / name).lstat().st_mode)
        except OSError:
            return 0

    def _create(self) -> None:
        if not (self._folder / "HEAD").exists():
            shutil.rmtree(self._folder, ignore_errors=True)
            durable_file.make_folders(self._folder, mode=0o700)
            self._git.run("init", "--quiet", "--template=")
        (self._folder / "info").mkdir(exist_ok=True)
        self._write("attributes", [NO_CONVERSION])
        (self._folder / "index.lock").unlink(missing_ok=True)  # left by a git that was killed

    def _excluded(self) -> list[str]:
        """Patterns for Holdfast's home, if it is in the directory."""
        return [f"{_pattern(name)}/" for name in self._home_inside()]

    def _home_inside(self) -> list[str]:
        """The name of Holdfast's home in the directory, if it is there."""
        inside = self._home.is_relative_to(self._worktree) and self._home != self._worktree
        return [str(self._home.relative_to(self._worktree))] if inside else []

    def _write(self, name: str, lines: list[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        (self._folder / "info" / name).write_bytes(os.fsencode(text))

    def _within(self) -> list[str]:
        """The paths to look at: all but temporary files of the file tools and Holdfast's home, which a `.gitignore` may include again."""
        home = [f":(exclude,literal){name}" for name in self._home_inside()]
        return ["--", ".", f":(exclude,glob)**/{TEMPORARY_NAMES}", *home]

    def _inspect(self, listed: Iterable[str]) -> tuple[dict[str, int], list[str], list[str]]:
        """Unusual permissions, files that are too large, and nested repositories. Raises Invalid beyond the limits."""
        modes: dict[str, int] = {}
        large: list[str] = []
        nested: list[str] = []
        total = 0
        for name in listed:
            try:
                found = (self._worktree / name).lstat()
            except OSError:  # deleted, or not readable
                continue
            if stat.S_ISDIR(found.st_mode):
                nested.append(f"{name.rstrip('/')}/")
            if not stat.S_ISREG(found.st_mode):
                continue
            if found.st_size > MAX_IMAGE_BYTES:
                large.append(name)
                continue
            total += found.st_size
            if stat.S_IMODE(found.st_mode) not in USUAL_MODES:
                modes[name] = stat.S_IMODE(found.st_mode)
        if total > MAX_CONTENT_BYTES:
            raise Invalid(f"{self._worktree} has more than {MAX_CONTENT_BYTES >> 20} MiB of files")
        return modes, large, nested

    def _list(self) -> dict[str, str]:
        """The names of the files that git does not ignore, with their modes in the index. A nested repository is one name."""
        words = ("-z", "-t", "--stage", "--cached", "--others", "--exclude-standard", *self._within())
        found: dict[str, str] = {}
        for line in self._git.run("ls-files", *words, most=self._max_files).split(b"\0")[:-1]:
            is_other = line.startswith(OTHER)
            head, name = (b"", line[len(OTHER) :]) if is_other else line.split(b"\t", 1)
            found[os.fsdecode(name)] = "" if is_other else head.split()[1].decode("ascii")
        return found

    def _read(self, digests: list[str]) -> dict[str, bytes]:
        """The contents with these hashes of git."""
        unique = list(dict.fromkeys(digests))
        names = "".join(f"{one}\n" for one in unique).encode("ascii")
        sizes = self._git.run("cat-file", "--batch-check=%(objectsize)", data=names).split()
        if sum(map(int, sizes)) > MAX_CHANGED_BYTES:
            raise Invalid(f"the command changed more than {MAX_CHANGED_BYTES >> 20} MiB of files")
        output = self._git.run("cat-file", "--batch", data=names)
        found: dict[str, bytes] = {}
        place = 0
        for digest in unique:
            end = output.index(b"\n", place)
            size = int(output[place:end].split()[2])
            found[digest] = output[end + 1 : end + 1 + size]
            place = end + size + 2
        return found


class _Row(msgspec.Struct, frozen=True):
    """A changed name; a hash is empty where there is no regular file."""

    name: str
    old: str
    new: str
    is_executable: bool
    was_link: bool

    @property
    def is_file(self) -> bool:
        return bool(self.old or self.new)

    @property
    def may_uncover(self) -> bool:
        """Whether git may see files now that were there before, but ignored."""
        return self.name.rpartition("/")[2] == ".gitignore"


def _pattern(name: str) -> str:
    """The pattern of `.gitignore` that matches only this name."""
    return "/" + SPECIAL.sub(r"\\\1", name)


def _join(names: list[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def _rows(output: bytes) -> Iterator[_Row]:
    """Parse `:MODE MODE HASH HASH STATUS NUL PATH NUL`."""
    fields = output.split(b"\0")
    for head, name in zip(fields[0:-1:2], fields[1::2], strict=True):
        old_mode, new_mode, old, new, _ = head[1:].decode("ascii").split()
        yield _Row(
            os.fsdecode(name),
            old if old_mode.startswith(FILE) else "",
            new if new_mode.startswith(FILE) else "",
            is_executable=old_mode == EXECUTABLE,
            was_link=old_mode == LINK,
        )
