"""Project rules: `AGENTS.md` and `CLAUDE.md` of the working directory and the directories above it in its repository.

Outside a repository only the working directory itself is searched: what lies further up belongs to no project, and on a
shared machine other users can put files there. For the same reason the search ends at a directory of another owner. Of
the files found, the nearest one comes last, so that it has the last word.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast.instructions.text_file import TextFile, cut_text, read_text
from holdfast.model.event import InstructionsLoaded, InstructionSource
from holdfast.model.instructions import LoadedPart
from holdfast.model.sanitize import one_line

NAMES = ("AGENTS.md", "CLAUDE.md")
MAX_FILE = 32 * 1024
"""Characters of one file that the model is shown."""
MAX_TOTAL = 64 * 1024
"""Characters of all files together."""
MAX_DEPTH = 32
"""Directories searched."""
GONE = "it no longer exists"
HEADING = (
    "# Rules of the user and the project\n"
    "Follow them. Where two of them disagree, the later one holds; what the user says in the conversation comes first."
)


class RuleText(msgspec.Struct, frozen=True):
    """A rules file and the part of its text that is shown."""

    source: InstructionSource
    text: str


def project_root(workdir: Path) -> Path:
    """The root of the repository that contains the directory; the directory itself if there is none."""
    for folder in _upwards(workdir):
        if exists(folder / ".git"):
            return folder
    return workdir


def project_folders(workdir: Path) -> list[Path]:
    """The directories of the project from the given one up to its root."""
    workdir = Path(workdir.absolute())
    folders = [workdir, *workdir.parents]
    return folders[: folders.index(project_root(workdir)) + 1]


def exists(path: Path) -> bool:
    """Whether there is something at the path, a broken link included; what cannot be looked at counts as missing."""
    try:
        path.lstat()
    except OSError:
        return False
    return True


def _upwards(workdir: Path) -> Iterator[Path]:
    """The directory and those above it that have the same owner."""
    try:
        owner = workdir.stat().st_uid
        for folder in [workdir, *workdir.parents][:MAX_DEPTH]:
            if folder.stat().st_uid != owner:
                return
            yield folder
    except OSError:
        return


def load_rules(
    workdir: Path | None, home: Path, recorded: InstructionsLoaded | None, *, limit: int = MAX_TOTAL
) -> LoadedPart:
    """Read the rules as they are now. `limit` is the number of characters of all files together.

    A file that was loaded before and cannot be read any more keeps its recorded text, also if its directory is gone.
    """
    files = list(_read_all(workdir, home))
    known = {} if recorded is None else {one.source.path: one for one in _recorded_texts(recorded)}
    used = [_as_rule(file, known.pop(str(file.path), None)) for file in files]
    sources, text = _render(_fit([*_gone(known.values(), files), *used], limit))
    notices = describe_changes(() if recorded is None else recorded.sources, sources)
    return LoadedPart(part="rules", text=text, sources=sources, notices=tuple(notices))


def _read_all(workdir: Path | None, home: Path) -> Iterator[TextFile]:
    """Every rules file that exists, the user's own first. A file that is found twice by links is read once."""
    seen: set[tuple[Path, str]] = set()
    own = read_text(home / NAMES[0], None)
    if not own.is_missing:
        yield own
    if workdir is None:
        return
    folders = project_folders(workdir)
    for folder in reversed(folders):
        for name in NAMES:
            file = read_text(folder / name, folders[-1])
            if file.is_missing or file.path == own.path or (folder, file.sha256 or name) in seen:
                continue
            seen.add((folder, file.sha256 or name))
            yield file


def _as_rule(file: TextFile, before: RuleText | None) -> RuleText:
    """The text of a file as it is now; if it cannot be used, the text that was recorded before."""
    if file.refused and before is not None and before.text:
        return RuleText(msgspec.structs.replace(before.source, refused=file.refused), before.text)
    source = InstructionSource(path=str(file.path), sha256=file.sha256, size=file.size, refused=file.refused)
    return RuleText(source, file.text.strip("\n"))


def _recorded_texts(recorded: InstructionsLoaded) -> list[RuleText]:
    return [RuleText(source, recorded.text[source.start : source.start + source.shown]) for source in recorded.sources]


def _gone(recorded: Iterable[RuleText], files: list[TextFile]) -> Iterator[RuleText]:
    """The recorded rules whose files no longer exist, unless the same text is found in another file."""
    hashes = {file.sha256 for file in files}
    for one in recorded:
        if one.text and one.source.sha256 not in hashes and not exists(Path(one.source.path)):
            yield RuleText(msgspec.structs.replace(one.source, refused=GONE), one.text)


def _fit(found: list[RuleText], limit: int) -> list[RuleText]:
    """Cut the texts to the limits; if there is too much, the nearest files are shown first."""
    fitted: list[RuleText] = []
    left = limit
    for one in reversed(found):
        text = cut_text(one.text, min(MAX_FILE, left))
        left -= len(text)
        if not text and one.source.refused == GONE:
            continue
        if not text and one.source.refused:
            fitted.append(RuleText(InstructionSource(path=one.source.path, refused=one.source.refused), ""))
            continue
        is_cut = one.source.cut or len(text) < len(one.text)
        fitted.append(RuleText(msgspec.structs.replace(one.source, cut=is_cut), text))
    return fitted[::-1]


def _render(found: list[RuleText]) -> tuple[tuple[InstructionSource, ...], str]:
    """Each source with its place in the text, and the text."""
    text, sources = HEADING, list[InstructionSource]()
    for one in found:
        if not one.text.strip():
            sources.append(msgspec.structs.replace(one.source, start=0, shown=0))
            continue
        text += f"\n\n## {one_line(one.source.path)}\n"
        sources.append(msgspec.structs.replace(one.source, start=len(text), shown=len(one.text)))
        text += one.text
        if one.source.cut:
            text += f"\n[cut: the file has {one.source.size:,} bytes; read it for the rest]"
    return tuple(sources), text if any(source.shown for source in sources) else ""


def describe_changes(before: Sequence[InstructionSource], after: Sequence[InstructionSource]) -> Iterator[str]:
    """What a person is told about the files: one line for each that is new, changed, gone, cut or refused."""
    known = {source.path: source for source in before}
    for source in after:
        old = known.pop(source.path, None)
        path = one_line(source.path)
        if source.refused and (old is None or old.refused != source.refused):
            kept = "; this session keeps its text. An empty file in its place drops it" if source.shown else ""
            yield f"{path} is not used: {source.refused}" if not kept else f"{path}: {source.refused}{kept}"
        elif source.refused:
            continue
        elif old is None or old.sha256 != source.sha256:
            yield f"{path} was {'loaded' if old is None else 'changed'}{_cut_notice(source)}"
        elif old.refused:
            yield f"{path} can be read again"
        elif source.cut and source.shown != old.shown:
            yield f"{path} has another limit now{_cut_notice(source)}"
    yield from (f"{one_line(path)} no longer applies" for path, old in known.items() if old.shown)


def _cut_notice(source: InstructionSource) -> str:
    if not source.cut:
        return ""
    return f"; only its first {source.shown:,} characters are used, because it has {source.size:,} bytes"
