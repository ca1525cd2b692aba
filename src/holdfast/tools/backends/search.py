"""Searches files inside a backend with the `find` and `grep` that are there."""

import re

from holdfast.model.errors import Invalid
from holdfast.model.tool import ToolContext
from holdfast.tools.backends.files import BackendFiles
from holdfast.tools.backends.port import TerminalBackend

MATCH = re.compile(r"(?P<path>.+?):(?P<number>\d+):(?P<text>.*)")
NO_MATCH = 1
"""The exit code of grep if no line matches."""
SEARCH = """
path=$1 pattern=$2 glob=$3 most=$4
case $glob in */*) kind=-path glob="*/$glob" ;; *) kind=-name ;; esac
printf x | grep -E -e "$pattern" >/dev/null; [ $? -le 1 ] || exit 2
find "$path" \\( -name .git -o -name .hg -o -name .svn -o -name node_modules -o -name __pycache__ -o -name .venv \\) -prune \\
  -o -type f $kind "${glob:-*}" -exec grep -n -H -E -e "$pattern" -- {} + 2>/dev/null | head -n "$most"
"""


async def search_inside(
    backend: TerminalBackend, context: ToolContext, pattern: str, path: str, glob: str, *, most: int
) -> list[tuple[str, int, str]]:
    """The path, number and text of the lines that match, up to a number. Raises Invalid for a pattern that grep rejects."""
    start = await BackendFiles(backend, context).resolve(path)
    done = await backend.run(context, ["sh", "-c", SEARCH, "holdfast", str(start), pattern, glob, str(most)])
    if done.code > NO_MATCH:
        raise Invalid(f"the search failed: {done.errors or 'the pattern is not valid'}")
    lines = done.output.decode("utf-8", "surrogateescape").splitlines()
    found = (MATCH.fullmatch(line) for line in lines)
    return [(match["path"], int(match["number"]), match["text"]) for match in found if match is not None]
