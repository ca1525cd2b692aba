"""Keeps what the API sends to tests, one document of each shape, for a check by another program.

`recording_to(FOLDER)` starts it in this process, HOLDFAST_TEST_RECORD=FOLDER in a run of pytest.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WORD = re.compile(r"[a-z][a-z_.]{0,40}")
"""A text that may be a constant of the API, such as a type or a status."""


class Recorder:
    def __init__(self) -> None:
        self.folder = os.environ.get("HOLDFAST_TEST_RECORD", "")
        self._seen: set[str] = set()

    def record(self, kind: str, document: Any) -> None:
        shape = json.dumps([kind, _shape(document)], sort_keys=True)
        if not self.folder or shape in self._seen:
            return
        self._seen.add(shape)
        with (Path(self.folder) / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps([kind, document]) + "\n")

    @contextmanager
    def recording_to(self, folder: Path) -> Iterator[None]:
        before, self.folder, self._seen = self.folder, str(folder), set()
        yield
        self.folder, self._seen = before, set()


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shape(one) for name, one in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(_shape(one), sort_keys=True) for one in value})
    if isinstance(value, str):
        return value if WORD.fullmatch(value) else "text"
    return type(value).__name__


def read_recorded(folder: Path) -> list[tuple[str, Any]]:
    """Each kind and document, one of each shape."""
    found = {}
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            kind, document = json.loads(line)
            found.setdefault(json.dumps([kind, _shape(document)], sort_keys=True), (kind, document))
    return list(found.values())


_recorder = Recorder()
record = _recorder.record
recording_to = _recorder.recording_to
