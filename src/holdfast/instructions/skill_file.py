"""Reads a skill: a directory with a file `SKILL.md`, whose header names and describes it.

The format is the public one (agentskills.io): the name is that of the directory, in lower case with hyphens.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.instructions import frontmatter
from holdfast.instructions.text_file import read_text
from holdfast.model.errors import Invalid
from holdfast.model.sanitize import one_line
from holdfast.model.session import collapse_line

FILE = "SKILL.md"
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MAX_NAME = 64
MAX_DESCRIPTION = 1024
FIELDS = ("name", "description", "license", "compatibility")
MAX_BYTES = 256 * 1024
"""Of a `SKILL.md`. The model can read further files when it needs them."""
VERSION = 12
"""Characters of the hash that the model is shown."""


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill, or the reason why a directory cannot be used as one."""

    name: str
    path: Path
    """Of its `SKILL.md`."""
    sha256: str = ""
    """Of the whole file."""
    size: int = 0
    description: str = ""
    fields: Mapping[str, str] = {}
    """Its licence, what it needs, and its own further data."""
    body: str = ""
    refused: str = ""

    @property
    def version(self) -> str:
        return self.sha256[:VERSION]


def read_skill(folder: Path, within: Path | None) -> Skill | None:
    """Read the skill in a directory; None if it has no `SKILL.md`. With `within`, links must stay in that directory."""
    path = folder / FILE
    file = read_text(path, within, max_bytes=MAX_BYTES)
    if file.is_missing:
        return None
    skill = Skill(name=one_line(folder.name), path=path, sha256=file.sha256, size=file.size, refused=file.refused)
    if skill.refused:
        return skill
    try:
        header = frontmatter.parse(file.text, FIELDS)
        _check(folder.name, header.fields)
    except Invalid as e:
        return msgspec.structs.replace(skill, refused=str(e))
    more = {key: header.fields[key] for key in ("license", "compatibility") if header.fields.get(key)}
    return msgspec.structs.replace(
        skill,
        description=collapse_line(header.fields["description"]),
        fields=more | {f"metadata.{key}": value for key, value in header.metadata.items()},
        body=header.body,
    )


def check_name(name: str) -> None:
    """Raise Invalid if this cannot be the name of a skill."""
    if len(name) > MAX_NAME or not NAME.fullmatch(name):
        raise Invalid(
            f"{name[:100]!r} is not a name: up to {MAX_NAME} lower-case letters and digits, joined by hyphens"
        )


def _check(folder: str, fields: Mapping[str, str]) -> None:
    name, description = fields.get("name", ""), fields.get("description", "").strip()
    if not name:
        raise Invalid("its header has no name")
    check_name(name)
    if name != folder:
        raise Invalid(f"its name is {name!r}, and its directory is called {folder[:100]!r}; both must be the same")
    if not description:
        raise Invalid("its header has no description, by which the model chooses it")
    if len(description) > MAX_DESCRIPTION:
        raise Invalid(
            f"its description has {len(description):,} characters, and at most {MAX_DESCRIPTION:,} are allowed"
        )
