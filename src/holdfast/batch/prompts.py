"""Reads the prompts of a batch: a file with one JSON value per line, checked completely before anything starts.

A prompt is identified by the name of its batch, its id, text, model and system prompt, and by how many equal prompts came
before it. So a file that was moved or extended keeps its results, and a prompt that was changed, or goes to another
model, is new work.
"""

import hashlib
import json
from collections import Counter
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid, NotFound
from holdfast.model.text import refuse_constant
from holdfast.model.validation import explain
from holdfast.settings import ModelName

MAX_ERRORS = 10
"""Lines that one error message names."""


class BatchPrompt(msgspec.Struct, frozen=True, kw_only=True):
    line: int
    """Its line in the file, starting at 1."""
    text: str
    model: str
    key: str
    """Identifies the work: equal for the same prompt, different for any other."""
    id: str | int | None = None
    system: str | None = None
    meta: object = None


class _PromptLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a line; a line that is only a string is its prompt."""

    prompt: str
    id: str | int | None = None
    model: ModelName | None = None
    system: str | None = None
    meta: object = None


def read(path: Path, name: str, model: str) -> list[BatchPrompt]:
    """The prompts of a file, in order. Raises NotFound, or Invalid with every wrong line."""
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except (FileNotFoundError, NotADirectoryError) as e:
        raise NotFound(f"file {path} does not exist") from e
    except OSError as e:
        raise Invalid(f"cannot read {path}: {e.strerror}") from e
    parser = _PromptParser(name, model)
    problems: list[str] = []
    found: list[BatchPrompt] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append(parser.parse(number, line))
            except ValueError as e:
                problems.append(f"line {number}: {e}")
    if problems:
        more = f"; and {len(problems) - MAX_ERRORS} more lines" if len(problems) > MAX_ERRORS else ""
        raise Invalid(f"nothing was run; {path} has errors: {'; '.join(problems[:MAX_ERRORS])}{more}")
    if not found:
        raise Invalid(f"{path} contains no prompts")
    return found


class _PromptParser:
    """Parses the lines in order, and remembers ids and prompts to find duplicates."""

    def __init__(self, name: str, model: str) -> None:
        self._name = name
        self._model = model
        self._ids: dict[str | int, int] = {}
        self._seen: Counter[str] = Counter()

    def parse(self, number: int, line: bytes) -> BatchPrompt:
        """Parse a line. Raises ValueError with the reason."""
        given = _decode(line)
        if not given.prompt.strip():
            raise ValueError("the prompt is empty")
        if given.id is not None:
            first = self._ids.setdefault(given.id, number)
            if first != number:
                raise ValueError(f"id {given.id!r} is already used in line {first}")
        model = given.model or self._model
        identity = json.dumps([self._name, given.id, given.prompt, model, given.system])
        self._seen[identity] += 1
        return BatchPrompt(
            line=number,
            text=given.prompt,
            model=model,
            key=hashlib.sha256(f"{self._seen[identity]} {identity}".encode()).hexdigest()[:40],
            id=given.id,
            system=given.system,
            meta=given.meta,
        )


def _decode(line: bytes) -> _PromptLine:
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=refuse_constant)
    except UnicodeDecodeError as e:
        raise ValueError("not UTF-8") from e
    except RecursionError as e:
        raise ValueError("nested too deeply") from e
    except json.JSONDecodeError as e:
        raise ValueError(f"not JSON ({e.msg} at character {e.pos + 1})") from e
    try:
        return _PromptLine(value) if isinstance(value, str) else msgspec.convert(value, _PromptLine)
    except msgspec.ValidationError as e:
        problem = "model: expected provider:name" if "regex" in str(e) else explain(e)
        raise ValueError(problem) from e
