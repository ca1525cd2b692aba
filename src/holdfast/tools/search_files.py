"""Searching the text of files by regular expression, with ripgrep where it is installed."""

import asyncio
import os
import re
import stat
import sys
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid
from holdfast.model.tool import Output, Scene
from holdfast.tools import children, scan
from holdfast.tools.describe import spec
from holdfast.tools.paths import existing, resolve, shown
from holdfast.tools.sensitive import check_target, why_secret

MAX_MATCHES = 200
MAX_SECONDS = 30.0
MAX_TEXT_CHARS = 300
MATCH = re.compile(r"(?P<path>[^\0]+)\0(?P<number>\d+):(?P<text>.*)", re.DOTALL)
SKIPPED = (".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".ruff_cache")
UNREADABLE = 2
"""The exit code for an error; where nothing is complained of, it was a file."""
RIPGREP = ("--no-config", "--no-messages", "--no-ignore", "--hidden", "--line-number", "--with-filename", "--null")
LOOKS = ("--no-heading", "--color=never", "--sort=path", "--max-columns=1000", "--max-columns-preview")


class Asked(msgspec.Struct, frozen=True):
    pattern: str
    path: str = "."
    glob: str = ""


class Found(msgspec.Struct):
    matches: list[tuple[str, int, str]] = []
    """Path, line and text."""
    notes: list[str] = []
    complaint: str = ""
    """What was wrong with the pattern or the glob."""


class SearchFiles:
    repeatable = True
    spec = spec(
        "search_files",
        {
            "pattern": {"type": "string", "description": "A regular expression, held against each line."},
            "path": {"type": "string", "description": "A file or a folder; the working folder if not given."},
            "glob": {"type": "string", "description": "Which files, such as `*.py` or `src/**/*.ts`."},
        },
        ("pattern",),
    )

    def __init__(
        self, *, ripgrep: str | None = None, home: Path | None = None, max_seconds: float = MAX_SECONDS
    ) -> None:
        self._ripgrep = ripgrep
        self._home = home
        self._max_seconds = max_seconds

    def risk(self, arguments: dict[str, object]) -> str | None:
        return why_secret(msgspec.convert(arguments, Asked).path, self._home)

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        asked = msgspec.convert(arguments, Asked)
        try:
            place = resolve(asked.path, scene.workdir)
            workdir = await asyncio.to_thread(self._start_folder, asked, place)
            found = await self._search(asked, place, workdir)
        except (Invalid, ValueError) as e:
            return Output.say(str(e), ok=False)
        except OSError as e:
            return Output.say(f"the search could not be started: {e}", ok=False)
        if found.complaint:
            return Output.say(f"the search failed: {found.complaint}", ok=False)
        is_agreed = why_secret(asked.path, self._home) is not None
        return Output.say(self._report(found, scene.workdir, is_agreed=is_agreed))

    def _start_folder(self, asked: Asked, place: Path) -> Path:
        status = existing(place)
        if not why_secret(asked.path, self._home):
            check_target(Path(os.path.realpath(place)), why_secret, self._home)
        return place if stat.S_ISDIR(status.st_mode) else place.parent

    def _command(self, asked: Asked, place: Path) -> list[str]:
        if self._ripgrep is None:
            # Isolated, for else the modules beside it would stand in the way of the standard library's.
            return [sys.executable, "-IS", scan.__file__, asked.pattern, str(place), asked.glob, *SKIPPED]
        globs = [asked.glob, *(f"!{name}" for name in SKIPPED)]
        options = [f"--glob={glob}" for glob in globs if glob]
        return [self._ripgrep, *RIPGREP, *LOOKS, *options, f"--regexp={asked.pattern}", "--", str(place)]

    async def _search(self, asked: Asked, place: Path, workdir: Path) -> Found:
        found = Found()
        async with children.listening() as (mouth, reader), children.listening() as (errors, complaints):
            with mouth, errors:
                process = await children.start(
                    self._command(asked, place), workdir=workdir, output=mouth, errors=errors
                )
            try:
                async with asyncio.timeout(self._max_seconds):
                    if not await _collect(reader, found):
                        found.notes.append(f"there are more than {MAX_MATCHES} matches; narrow the path or the pattern")
                        return found
                    found.complaint = (await complaints.read(1000)).decode("utf-8", "replace").strip()
                    if await process.wait() == UNREADABLE:
                        found.notes.append("some files could not be read")
            except TimeoutError:
                found.notes.append(f"stopped after {self._max_seconds:g} s; narrow the path or the pattern")
            finally:
                await children.end(process, grace_seconds=0)
        return found

    def _report(self, found: Found, workdir: Path, *, is_agreed: bool) -> str:
        secret = {path for path, _, _ in found.matches if not is_agreed and why_secret(path, self._home)}
        lines = [
            f"{shown(Path(path), workdir)}:{number}: {text[:MAX_TEXT_CHARS]}"
            for path, number, text in found.matches
            if path not in secret
        ]
        notes = list(found.notes)
        if secret:
            notes.append(f"matches in files that hold secrets are not shown: {', '.join(sorted(secret)[:10])}")
        return "\n".join([*(lines or ["no matches"]), *(f"[{note}]" for note in notes)])


async def _collect(reader: asyncio.StreamReader, found: Found) -> bool:
    """Take in matches; False if there are more than can be shown."""
    while line := await reader.readline():
        match = MATCH.fullmatch(line.decode("utf-8", "surrogateescape"))
        if match is None:
            continue
        if len(found.matches) == MAX_MATCHES:
            return False
        found.matches.append((match["path"], int(match["number"]), match["text"].rstrip("\r\n")))
    return True
