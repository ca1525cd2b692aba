"""Searches the text of files for a regular expression, with ripgrep where it is installed."""

import asyncio
import re
import stat
import sys
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.finding import Finding
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.tools import grep_fallback, subprocesses
from holdfast.tools.backends.port import TerminalBackend
from holdfast.tools.backends.registry import Backends, only_local
from holdfast.tools.backends.search import search_inside
from holdfast.tools.home_guard import check_read, find_read_risks, is_protected, readable_folders
from holdfast.tools.paths import display_path, stat_path
from holdfast.tools.sensitive_paths import why_secret
from holdfast.tools.spec import load_spec

MAX_MATCHES = 200
TOO_MANY = f"more than {MAX_MATCHES} matches; narrow the path or the pattern"
MAX_SECONDS = 30.0
MAX_TEXT_CHARS = 300
MATCH = re.compile(r"(?P<path>[^\0]+)\0(?P<number>\d+):(?P<text>.*)", re.DOTALL)
SKIPPED = (".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".ruff_cache")
UNREADABLE = 2
"""The exit code for an error; with nothing on stderr, some file could not be read."""
RIPGREP = ("--no-config", "--no-messages", "--no-ignore", "--hidden", "--line-number", "--with-filename", "--null")
RIPGREP_OUTPUT = ("--no-heading", "--color=never", "--sort=path", "--max-columns=1000", "--max-columns-preview")


class SearchFilesArguments(msgspec.Struct, frozen=True):
    pattern: str
    path: str = "."
    glob: str = ""


class FileMatches(msgspec.Struct):
    matches: list[tuple[str, int, str]] = []
    """Path, line and text."""
    notes: list[str] = []
    error: str = ""
    """What is wrong with the pattern or the glob."""


class SearchFilesTool:
    repeatable = True
    spec = load_spec(
        "search_files",
        {
            "pattern": {"type": "string", "description": "A regular expression, matched against each line."},
            "path": {"type": "string", "description": "A file or a folder; default: the working folder."},
            "glob": {
                "type": "string",
                "description": "Limits the search to matching files, such as `*.py` or `src/**/*.ts`.",
            },
        },
        ("pattern",),
    )

    def __init__(
        self,
        *,
        ripgrep: str | None = None,
        home: Path | None = None,
        max_seconds: float = MAX_SECONDS,
        backends: Backends | None = None,
    ) -> None:
        self._backends = backends or only_local()
        self._ripgrep = ripgrep
        self._home = home
        self._max_seconds = max_seconds

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return find_read_risks(msgspec.convert(arguments, SearchFilesArguments).path, context, self._home)

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, SearchFilesArguments)
        try:
            backend = self._backends.of(context)
            await backend.prepare(context)
            if backend.is_direct:
                path = await asyncio.to_thread(check_read, parsed.path, context, self._home)
                workdir = await asyncio.to_thread(_start_folder, path)
                prefix = backend.prefix(context, workdir, background=False)
                found = await self._search([*prefix, *self._command(parsed, path)], workdir)
            else:
                found = await self._search_inside(backend, parsed, context)
        except (Invalid, Unavailable, ValueError) as e:
            return ToolOutput.say(str(e), ok=False)
        except OSError as e:
            return ToolOutput.say(f"the search could not be started: {e}", ok=False)
        if found.error:
            return ToolOutput.say(f"the search failed: {found.error}", ok=False)
        is_approved = bool(find_read_risks(parsed.path, context, self._home))
        return ToolOutput.say(self._report(found, context, backend, is_approved=is_approved))

    def _command(self, parsed: SearchFilesArguments, path: Path) -> list[str]:
        if self._ripgrep is None:
            # Isolated: otherwise the modules in its folder would shadow those of the standard library.
            return [sys.executable, "-IS", grep_fallback.__file__, parsed.pattern, str(path), parsed.glob, *SKIPPED]
        globs = [parsed.glob, *(f"!{name}" for name in SKIPPED)]
        options = [f"--glob={glob}" for glob in globs if glob]
        return [self._ripgrep, *RIPGREP, *RIPGREP_OUTPUT, *options, f"--regexp={parsed.pattern}", "--", str(path)]

    async def _search(self, command: list[str], workdir: Path) -> FileMatches:
        found = FileMatches()
        async with subprocesses.open_pipe() as (write_end, reader), subprocesses.open_pipe() as (errors, stderr):
            with write_end, errors:
                process = await subprocesses.start(command, workdir=workdir, output=write_end, errors=errors)
            try:
                async with asyncio.timeout(self._max_seconds):
                    if not await _collect(reader, found):
                        found.notes.append(TOO_MANY)
                        return found
                    found.error = (await stderr.read(1000)).decode("utf-8", "replace").strip()
                    if await process.wait() == UNREADABLE:
                        found.notes.append("some files could not be read")
            except TimeoutError:
                found.notes.append(f"stopped after {self._max_seconds:g} s; narrow the path or the pattern")
            finally:
                await subprocesses.end_group(process, grace_seconds=0)
        return found

    async def _search_inside(
        self, backend: TerminalBackend, parsed: SearchFilesArguments, context: ToolContext
    ) -> FileMatches:
        """As `_search`, by programs that run in the backend."""
        if backend.shares_files:
            await asyncio.to_thread(check_read, parsed.path, context, self._home)
        arguments = parsed.pattern, parsed.path, parsed.glob
        matches = await search_inside(backend, context, *arguments, most=MAX_MATCHES + 1)
        notes = [TOO_MANY] if len(matches) > MAX_MATCHES else []
        return FileMatches(matches[:MAX_MATCHES], notes)

    def _report(self, found: FileMatches, context: ToolContext, backend: TerminalBackend, *, is_approved: bool) -> str:
        own, workdir = readable_folders(context, self._home), backend.workdir(context)
        paths = {path for path, _, _ in found.matches}
        secret = {path for path in paths if not is_approved and why_secret(path, self._home)}
        secret |= {path for path in paths if backend.shares_files and is_protected(path, self._home, own)}
        lines = [
            f"{display_path(Path(path), workdir)}:{number}: {text[:MAX_TEXT_CHARS]}"
            for path, number, text in found.matches
            if path not in secret
        ]
        notes = list(found.notes)
        if secret:
            notes.append(f"matches in files with secrets are not shown: {', '.join(sorted(secret)[:10])}")
        return "\n".join([*(lines or ["no matches"]), *(f"[{note}]" for note in notes)])


def _start_folder(path: Path) -> Path:
    return path if stat.S_ISDIR(stat_path(path).st_mode) else path.parent


async def _collect(reader: asyncio.StreamReader, found: FileMatches) -> bool:
    """Collect matches; False if there are more than can be shown."""
    while line := await reader.readline():
        match = MATCH.fullmatch(line.decode("utf-8", "surrogateescape"))
        if match is None:
            continue
        if len(found.matches) == MAX_MATCHES:
            return False
        found.matches.append((match["path"], int(match["number"]), match["text"].rstrip("\r\n")))
    return True
