"""docs/api.md lists every error code of the API with its status, and every error class has a status."""

import ast
import re
from pathlib import Path

from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase

import holdfast.api
from holdfast.api.errors import STATUS, TURN_STATUS
from holdfast.api.openai.chat_request import FORWARDED, NO_EFFECT, ChatRequest
from holdfast.api.openai.responses import request
from holdfast.cli.errors import EXIT

TEXT = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")


def documented() -> dict[str, int]:
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| (\d{3}) \|", TEXT, flags=re.MULTILINE)
    return {code: int(status) for codes, status in rows for code in re.findall(r"`(\w+)`", codes)}


def refused() -> set[tuple[str, int]]:
    """Each error code in the sources, and its status."""
    found = set()
    api = Path(holdfast.api.__file__).parent
    for path in (*api.rglob("*.py"), *api.parent.glob("http_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("ApiError", "self._refuse"):
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
    known = {*ChatRequest.__struct_fields__, *NO_EFFECT, *FORWARDED}
    assert named_under("## Request parameters") == known | set(CompletionCreateParamsBase.__annotations__)
    known = {
        *request.ResponsesRequest.__struct_fields__,
        *request.NO_EFFECT,
        *request.ForwardedParameters.__struct_fields__,
    }
    assert named_under("### Parameters of a Responses request") == known | set(ResponseCreateParamsBase.__annotations__)


def named_under(heading: str) -> set[str]:
    """The parameters that the table under a heading names."""
    table = TEXT.partition(f"{heading}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    return set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.+?) \|", table, flags=re.MULTILINE))))
