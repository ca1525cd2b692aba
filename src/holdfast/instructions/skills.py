"""The skills of a session: those of the user and of the project, listed for the model by name and description.

They are searched in the same directories as the rules, under the same conditions. Of several skills with one name the
nearest is used; the user's own come last.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from holdfast.instructions.rules import project_folders
from holdfast.instructions.skill_file import Skill, read_skill
from holdfast.model.event import InstructionsLoaded, InstructionSource
from holdfast.model.instructions import LoadedPart
from holdfast.model.sanitize import one_line
from holdfast.model.text import truncate

FOLDER = "skills"
"""In the home."""
PROJECT_FOLDERS = (".holdfast/skills", ".agents/skills", ".claude/skills")
"""In each directory of a project."""
MAX_FOLDERS = 500
"""Directories that are looked at in one place."""
MAX_SKILLS = 100
"""Skills that are listed for the model."""
MAX_LISTING = 16 * 1024
"""Characters of the whole list."""
SHORTEST = 60
"""Characters that a description keeps at least; if that is too much, the last skills are left out."""
MAX_NOTICES = 20
HEADING = (
    "# Skills\n"
    "Instructions for particular tasks. Before you begin a task that one of them describes, call `skill` with its name, "
    "and follow what it returns. If the version here is not the one that you loaded, load it again."
)
NO_ROOM = "the list of skills is full"


def find_skills(workdir: Path | None, home: Path) -> list[Skill]:
    """Every skill that exists, the nearest first, with those that are refused."""
    names: dict[str, Skill] = {}
    found: list[Skill] = []
    for skill in _read_all(workdir, home):
        nearer = names.setdefault(skill.name, skill)
        if nearer is skill or skill.refused:
            found.append(skill)
        elif nearer.sha256 != skill.sha256:
            why = f"{one_line(str(nearer.path))} is nearer and has the same name"
            found.append(Skill(name=skill.name, path=skill.path, refused=why))
    return found


def _read_all(workdir: Path | None, home: Path) -> Iterator[Skill]:
    if workdir is not None:
        folders = project_folders(workdir)
        for folder in folders:
            for name in PROJECT_FOLDERS:
                yield from _read_folder(folder / name, folders[-1])
    yield from _read_folder(home / FOLDER, None)


def _read_folder(folder: Path, within: Path | None) -> Iterator[Skill]:
    try:
        names = sorted(one.name for one in islice(folder.iterdir(), MAX_FOLDERS) if not one.name.startswith("."))
    except OSError:  # no such directory, or not readable
        return
    for name in names:
        skill = read_skill(folder / name, within)
        if skill is not None:
            yield skill


def load_skills(
    workdir: Path | None, home: Path, recorded: InstructionsLoaded | None, *, limit: int = MAX_LISTING
) -> LoadedPart:
    """Read the skills as they are now. `limit` is the number of characters of the list."""
    found = find_skills(workdir, home)
    usable = [skill for skill in found if not skill.refused]
    listed = _fit(usable, limit)
    refused = [(skill, skill.refused) for skill in found if skill.refused]
    refused += [(skill, NO_ROOM) for skill in usable[len(listed) :]]
    text, sources = HEADING, list[InstructionSource]()
    for skill, line in listed:
        text += "\n"
        sources.append(_source(skill, start=len(text), shown=len(line)))
        text += line
    sources += [_source(skill, refused=why) for skill, why in refused]
    notices = describe_changes(None if recorded is None else recorded.sources, sources)
    return LoadedPart(
        part="skills", text=text if listed else "", sources=tuple(sources), notices=tuple(_first(list(notices)))
    )


def listed_skills(sources: Iterable[InstructionSource]) -> dict[str, InstructionSource]:
    """The recorded skills that the model can load, by name."""
    return {skill_name(source): source for source in sources if source.shown}


def skill_name(source: InstructionSource) -> str:
    return Path(source.path).parent.name


def _source(skill: Skill, *, start: int = 0, shown: int = 0, refused: str = "") -> InstructionSource:
    return InstructionSource(
        path=str(skill.path), sha256=skill.sha256, size=skill.size, start=start, shown=shown, refused=refused
    )


def _fit(skills: Sequence[Skill], limit: int) -> list[tuple[Skill, str]]:
    """The line of each skill; the descriptions are shortened, and the last skills left out, if there is no room."""
    skills = skills[:MAX_SKILLS]
    left = limit - len(HEADING)
    lines = [_line(skill, len(skill.description)) for skill in skills]
    if skills and sum(map(len, lines)) + len(lines) > left:
        names = sum(len(_line(skill, 0)) + 1 for skill in skills)
        each = max(SHORTEST, (left - names) // len(skills))
        lines = [_line(skill, each) for skill in skills]
    fitted: list[tuple[Skill, str]] = []
    for skill, line in zip(skills, lines, strict=True):
        left -= len(line) + 1
        if left < 0:
            break
        fitted.append((skill, line))
    return fitted


def _line(skill: Skill, chars: int) -> str:
    return f"- {skill.name} (version {skill.version}): {truncate(skill.description, chars)}"


def describe_changes(before: Sequence[InstructionSource] | None, after: Sequence[InstructionSource]) -> Iterator[str]:
    """What a person is told: the skills that there are at first, later one line for each that is new, changed or gone."""
    known = {source.path: source for source in before or ()}
    usable = [skill_name(source) for source in after if source.shown]
    if before is None and usable:
        more = f" and {len(usable) - MAX_NOTICES} more" if len(usable) > MAX_NOTICES else ""
        yield f"{', '.join(usable[:MAX_NOTICES])}{more}"
    for source in after:
        old = known.pop(source.path, None)
        name = skill_name(source)
        if source.refused:
            if old is None or old.refused != source.refused:
                yield f"{one_line(source.path)} is not used: {source.refused}"
        elif before is not None and (old is None or not old.shown):
            yield f"{name} was added"
        elif old is not None and old.sha256 != source.sha256:
            yield f"{name} was changed; it applies from this turn on"
    yield from (f"{one_line(skill_name(old))} no longer exists" for old in known.values() if old.shown)


def _first(notices: list[str]) -> list[str]:
    if len(notices) <= MAX_NOTICES:
        return notices
    return [*notices[:MAX_NOTICES], f"{len(notices) - MAX_NOTICES} more; `holdfast skills list` shows them"]
