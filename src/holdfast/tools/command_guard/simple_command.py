"""Shell text that is one simple command: words that bash passes on unchanged, and nothing else.

Independent of the parser that looks for risks: a rule that approves by prefix applies only to what this strict
reader accepts.
"""

import posixpath
import re

from holdfast.tools.command_guard.programs import runs_arguments
from holdfast.tools.command_guard.shell_syntax import ASSIGNMENT

TOKEN = re.compile(r"(?:[A-Za-z0-9_@%+=:,./-]+|'[^'\n]*'|\"[A-Za-z0-9_@%+=:,./ ;&|<>()#-]*\")+")
QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def simple_words(command: str) -> tuple[str, ...]:
    """The words of the command; empty if it is not certainly one simple command that does what its words say."""
    text = command.strip(" \t")
    words: list[str] = []
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            return ()
        words.append(QUOTED.sub(lambda part: part[1] if part[1] is not None else part[2], found[0]))
        at = found.end()
        gap = re.compile(r"[ \t]+|$").match(text, at)
        if gap is None:
            return ()
        at = gap.end()
    if not words or ASSIGNMENT.fullmatch(words[0]) or runs_arguments(posixpath.basename(words[0])):
        return ()
    return tuple(words)
