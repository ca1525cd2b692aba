"""The prompts of a batch: a file with one JSON value a line, checked whole before anything is begun.

A prompt is known again by what it asks: the name of its batch, its id, the words, the model and the system text, and how
many of the same kind came before it. A file that was moved, or has grown, is therefore the same work as far as it is
the same, and a prompt that was changed, or goes to another model, is new work.
"""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import NoReturn

import msgspec

from holdfast.model.errors import Invalid, NotFound
from holdfast.settings import ModelName

SHOWN = 10
"""Lines that are named in one complaint."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    line: int
    """Its line in the file, from 1 on."""
    text: str
    model: str
    key: str
    """The same for the same work, and for nothing else."""
    id: str | int | None = None
    system: str | None = None
    meta: object = None


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a line may hold; a line that is only a text is its prompt."""

    prompt: str
    id: str | int | None = None
    model: ModelName | None = None
    system: str | None = None
    meta: object = None


def read(path: Path, name: str, model: str) -> list[Prompt]:
    """The prompts of a file, in its order. Raises NotFound, or Invalid with every line that cannot be used."""
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except (FileNotFoundError, NotADirectoryError) as e:
        raise NotFound(f"there is no file {path}") from e
    except OSError as e:
        raise Invalid(f"cannot read {path}: {e.strerror}") from e
    parser = _Parser(name, model)
    complaints: list[str] = []
    found: list[Prompt] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append(parser.parse(number, line))
            except ValueError as e:
                complaints.append(f"line {number}: {e}")
    if complaints:
        more = f"; and {len(complaints) - SHOWN} lines more" if len(complaints) > SHOWN else ""
        raise Invalid(f"nothing was begun: in {path}, {'; '.join(complaints[:SHOWN])}{more}")
    if not found:
        raise Invalid(f"there is no prompt in {path}")
    return found


class _Parser:
    """Reads one line after another, and remembers what must not come twice."""

    def __init__(self, name: str, model: str) -> None:
        self._name = name
        self._model = model
        self._ids: dict[str | int, int] = {}
        self._seen: Counter[str] = Counter()

    def parse(self, number: int, line: bytes) -> Prompt:
        """Raises ValueError with what is wrong."""
        given = _decode(line)
        if not given.prompt.strip():
            raise ValueError("the prompt is empty")
        if given.id is not None:
            first = self._ids.setdefault(given.id, number)
            if first != number:
                raise ValueError(f"the id {given.id!r} stands in line {first} already")
        model = given.model or self._model
        asked = json.dumps([self._name, given.id, given.prompt, model, given.system])
        self._seen[asked] += 1
        return Prompt(
            line=number,
            text=given.prompt,
            model=model,
            key=hashlib.sha256(f"{self._seen[asked]} {asked}".encode()).hexdigest()[:40],
            id=given.id,
            system=given.system,
            meta=given.meta,
        )


def _decode(line: bytes) -> _Line:
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except UnicodeDecodeError as e:
        raise ValueError("this is not UTF-8") from e
    except RecursionError as e:
        raise ValueError("it is nested too deeply") from e
    except json.JSONDecodeError as e:
        raise ValueError(f"this is no JSON ({e.msg} at character {e.pos + 1})") from e
    try:
        return _Line(value) if isinstance(value, str) else msgspec.convert(value, _Line)
    except msgspec.ValidationError as e:
        said = str(e)
        if "regex" in said:
            said = "expected a model as provider:name - at `$.model`"
        raise ValueError(f"{said[:1].lower()}{said[1:]}".replace("`", "")) from e


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
