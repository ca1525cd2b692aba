"""Lists modules and functions that exceed the size limits of the style guide. Never fails."""

import ast
from pathlib import Path

MODULE_LINES = 400
FUNCTION_LINES = 60
ROOT = Path(__file__).resolve().parent.parent


def over(path: Path) -> list[str]:
    """The parts of a file that exceed the limits, with their sizes."""
    text = path.read_text("utf-8")
    name, lines = path.relative_to(ROOT), len(text.splitlines())
    found = [f"{lines:5} lines  {name}"] if lines > MODULE_LINES else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                found.append(f"{length:5} lines  {name}:{node.lineno} {node.name}()")
    return found


def main() -> None:
    files = sorted(file for folder in ("src", "bench", "scripts") for file in (ROOT / folder).rglob("*.py"))
    found = [line for file in files for line in over(file)]
    print(f"{len(files)} modules; over {MODULE_LINES} lines, or with a function over {FUNCTION_LINES}: {len(found)}")
    print("\n".join(found), end="\n" if found else "")


if __name__ == "__main__":
    main()
