"""Every code that the API answers with stands in docs/api.md with its status, and every error of ours has one."""

import ast
import re
from pathlib import Path

import holdfast.api
from holdfast.api import response_shapes
from holdfast.api.errors import STATUS, TURN_STATUS
from holdfast.api.shapes import NEUTRAL, PASSED_ON, ChatRequest
from holdfast.cli.errors import EXIT

TEXT = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")


def documented() -> dict[str, int]:
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| (\d{3}) \|", TEXT, flags=re.MULTILINE)
    return {code: int(status) for codes, status in rows for code in re.findall(r"`(\w+)`", codes)}


def refused() -> set[tuple[str, int]]:
    """Each code that the sources refuse with, and its status."""
    found = set()
    for path in Path(holdfast.api.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Refusal", "self._refuse"):
                values = [getattr(argument, "value", None) for argument in node.args[:2]]
                if len(values) == 2 and isinstance(values[0], int):
                    found.add((str(values[1]), values[0]))
    return found


def test_every_named_error_has_a_status() -> None:
    assert STATUS.keys() == EXIT.keys() - {"internal"}


def test_every_code_is_documented_with_its_status() -> None:
    ours = dict(refused()) | TURN_STATUS | {code: status for code, status in STATUS.items() if code != "not_found"}

    assert documented() == ours | {"not_found": 404}


def test_every_parameter_is_documented() -> None:
    assert named_under("## What a request may hold") == {*ChatRequest.__struct_fields__, *NEUTRAL, *PASSED_ON}
    known = {*response_shapes.Request.__struct_fields__, *response_shapes.NEUTRAL, *response_shapes.PASSED_ON}
    assert named_under("### What a request for a response may hold") == known


def named_under(heading: str) -> set[str]:
    """The parameters that the table under a heading names."""
    table = TEXT.partition(f"{heading}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    return set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.+?) \|", table, flags=re.MULTILINE))))
